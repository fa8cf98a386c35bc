"""Reports: every part of a small model in one page; a part that fails is named and does not take the rest along."""

import json
from pathlib import Path

import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.errors import InputError, ModelError, OptionError, ToolError
from tvm_ext.inspection.report import Report

HOSTILE = "<script>alert('x')</script>"


def small(name: str = "relu_r") -> object:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r", name), node("CumSum", "r axis", "y")]
    return model(nodes, [value("x", (5, 7))], [value("y", (5, 3))], {"w": random(7, 3), "axis": [1]})


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report without times, which take seconds."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    steps: list[str] = []
    report = tvm_ext.report(small(HOSTILE), path, profile=False, cache=False, on_step=steps.append)
    assert steps == ["analyzing", "compiling", "accuracy", "writing"]
    return report


def test_a_report_has_its_parts(report: Report) -> None:
    assert report.ok and report.failed == {}
    assert report.layers is not None and report.layers.ok
    assert report.profile is None
    assert len(report.owners.rows) == len(report.analysis.nodes) == 3
    assert report.environment["packages"]["onnx"]


def test_the_page_has_a_section_a_part_and_escapes_names(report: Report) -> None:
    assert report.path is not None
    html = report.path.read_text(encoding="utf-8")
    assert html == report.html()
    for title in (
        "Summary", "Accuracy", "Memory", "Kernels", "ONNX nodes", "Work by operator", "Passes", "Tuning records",
    ):  # fmt: skip
        assert f"<h2>{title}</h2>" in html
    assert "<h2>Profile</h2>" not in html and "<h2>Offload</h2>" not in html
    assert html.count("<script>") == 1 and "&lt;script&gt;alert" in html
    assert str(report.path) not in html  # a page tells nothing of the folders of who made it


def test_views_of_a_report(report: Report) -> None:
    plain = json.loads(json.dumps(report.as_dict()))
    assert plain["ok"] and plain["nodes"]["kinds"] == {"kernel": 3}
    assert str(report.path) in str(report) and "every kernel agrees" in str(report)
    assert "<script" not in report._repr_html_()


def test_a_part_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ToolError("no reference today")

    monkeypatch.setattr("tvm_ext.inspection.report.check_layers", fails)
    report = tvm_ext.report(small(), tmp_path / "r.html", profile=False, cache=False)
    assert not report.ok and report.failed == {"accuracy": "no reference today"}
    assert "no reference today" in report.html() and "no reference today" in str(report)


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="shapez"):
        tvm_ext.report(small(), shapez={})
    for wrong in ({"check": 1}, {"profile": "no"}, {"rounds": 0}, {"seed": 1.5}, {"on_step": 3}, {"path": 3}):
        with pytest.raises(OptionError):
            tvm_ext.report(small(), **wrong)
    for inputs in (3, {}, {"x": [1]}):
        with pytest.raises(InputError):
            tvm_ext.report(small(), inputs=inputs, profile=False, cache=False)
    with pytest.raises(ModelError, match="there is no file"):
        tvm_ext.report(tmp_path / "none.onnx")
    with pytest.raises(ToolError, match="cannot be written"):
        tvm_ext.report(small(), tmp_path / "no folder" / "r.html", profile=False, check=False)


@pytest.mark.long
def test_a_report_with_times_and_offload(tmp_path: Path) -> None:
    report = tvm_ext.report(
        small(), tmp_path / "r.html", rounds=1, offload="systolic", offload_options={"when": "always"}, cache=False
    )
    html = report.html()
    assert report.profile is not None
    assert "<h2>Profile</h2>" in html and "<h2>Offload</h2>" in html
