"""Pages of comparisons layer by layer and of bisections: they name the culprit and escape what users call things."""

import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.verification.bisect import models
from tests.verification.bisect.planted import BUGS
from tvm_ext.core.pages.page import Page


def test_layers_of_a_right_program() -> None:
    nodes = [node("MatMul", "x w", "<h>", "fc"), node("Softmax", "<h>", "y", "<softmax>", axis=-1)]
    proto = model(nodes, [value("x", (3, 7))], [value("y", (3, 5))], {"w": random(7, 5)})
    compiled = tvm_ext.compile(proto, threads=1, records=None, cache=False)
    report = tvm_ext.verify(compiled, proto, layers=True)
    html = Page("checks").section("layers", *report.parts()).html()
    assert "every kernel agrees" in html and "&lt;softmax&gt;" in html and "<softmax>" not in html
    assert "every kernel agrees" in report._repr_html_() and str(report).endswith("ok")


def test_a_culprit_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["packing"].plant(monkeypatch)
    proto = models.two_dense()
    bisection = tvm_ext.bisect(proto, "layer", threads=1, records=None)
    html = bisection._repr_html_()
    assert "the error comes from layer fused_matmul_add" in html and "--off layer=fused_matmul_add" in html
    assert "fc2" in html and "trial" in html
    report = tvm_ext.verify(tvm_ext.compile(proto, threads=1, records=None, cache=False), proto, layers=True)
    html = report._repr_html_()
    assert "first bad" in html and "beyond the tolerance" in html and "fc2" in html


def test_nothing_wrong_and_nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tvm_ext.bisect(models.softmax(), threads=1, records=None)
    assert "nothing is wrong" in right._repr_html_()
    BUGS["softmax"].plant(monkeypatch)
    elsewhere = tvm_ext.bisect(models.softmax(), "record", threads=1, records=None)
    assert "there is none in this compile" in elsewhere._repr_html_()
