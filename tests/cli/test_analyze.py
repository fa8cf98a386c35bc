"""`tvm-ext analyze` and `tvm-ext report`: what they print, and their exit codes."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.onnx_graphs import model, node, random, value
from tvm_ext.cli import main


@pytest.fixture
def path(tmp_path: Path) -> str:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Relu", "r", "y")]
    made = model(nodes, [value("x", (5, 7))], [value("y", (5, 3))], {"w": random(7, 3)})
    onnx.save(made, tmp_path / "small.onnx")
    return str(tmp_path / "small.onnx")


def test_analyze_prints_work_and_redundancy(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", path]) == 0
    out = capsys.readouterr().out
    assert "MatMul" in out and "the same again as relu_r" in out
    assert main(["analyze", path, "--by", "node", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert "matmul_m" in out and "5x7, 7x3" in out and "relu_r  Relu" not in out


def test_analyze_as_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and found["nodes"][0]["flops"] == 2 * 5 * 7 * 3


def test_a_model_that_cannot_be_compiled_is_analyzed_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model(
        [helper.make_node("Mystery", ["x"], ["y"], "m", domain="com.example")], [value("x", (2,))], [value("y", (2,))]
    )
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    onnx.save(made, tmp_path / "m.onnx")
    assert main(["analyze", str(tmp_path / "m.onnx")]) == 3
    assert "1 nodes cannot be compiled" in capsys.readouterr().out
    assert main(["analyze", str(tmp_path / "none.onnx")]) == 2


def test_report_writes_a_page(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["report", path, "-o", str(page), "--no-profile", "--no-cache"]) == 0
    assert "every kernel agrees" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
