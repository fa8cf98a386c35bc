"""`tvm-ext analyze` and `tvm-ext report`: what they print, and their exit codes."""

from pathlib import Path

import pytest

from tests.onnx_graphs import model, node, random, saved, value


@pytest.fixture
def path(tmp_path: Path) -> str:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Relu", "r", "y")]
    proto = model(nodes, [value("x", (5, 7))], [value("y", (5, 3))], {"w": random(7, 3)})
    return saved(proto, tmp_path / "small.onnx")


def test_analyze_prints_work_and_redundancy(cli, path: str) -> None:
    code, out, _ = cli("analyze", path)
    assert code == 0 and "MatMul" in out and "the same again as relu_r" in out
    code, out, _ = cli("analyze", path, "--by", "node", "--top", "1")
    assert code == 0 and "matmul_m" in out and "5x7, 7x3" in out and "relu_r  Relu" not in out


def test_analyze_as_json(cli_json, path: str) -> None:
    code, analysis = cli_json("analyze", path)
    assert code == 0 and analysis["ok"] and analysis["nodes"][0]["flops"] == 2 * 5 * 7 * 3


def test_a_model_that_cannot_be_compiled_is_analyzed_and_says_so(cli, tmp_path: Path) -> None:
    mystery, tensors = node("Mystery", "x", "y", "m", domain="com.example"), [value(name, (2,)) for name in "xy"]
    proto = model([mystery], tensors[:1], tensors[1:], domains=["com.example"])
    code, out, _ = cli("analyze", saved(proto, tmp_path / "m.onnx"))
    assert code == 3 and "1 nodes cannot be compiled" in out
    assert cli("analyze", str(tmp_path / "none.onnx"))[0] == 2


def test_report_writes_a_page(cli, path: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, _ = cli("report", path, "-o", str(page), "--no-profile", "--no-cache")
    assert code == 0 and "every kernel agrees" in out
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
