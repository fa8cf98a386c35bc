"""`tvm-ext quantize`: what it writes and prints, and its exit codes."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend import graphs
from tests.quantization.models import residual, samples
from tvm_ext.cli import main


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str, Path]:
    """A model, calibration data, and where the result may go."""
    model = residual()
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "c.npz", x=np.concatenate(samples(model)))
    return str(tmp_path / "m.onnx"), str(tmp_path / "c.npz"), tmp_path / "q.onnx"


def test_writes_a_model_and_prints_a_report(
    paths: tuple[str, str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model, data, out = paths
    report = tmp_path / "report.md"
    assert main(["quantize", model, "--calibration", data, "-o", str(out), "--markdown", str(report)]) == 0
    text = capsys.readouterr().out
    assert "first + relu1" in text and "output y: SQNR" in text and f"wrote {out}" in text
    assert "| first + relu1 | Conv | int8 | uint8 |" in report.read_text()
    assert any(node.op_type == "QuantizeLinear" for node in onnx.load(out).graph.node)


def test_as_json_with_options(paths: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    model, data, out = paths
    given = ["quantize", model, "--calibration", data, "--json", "--method", "percentile", "--percentile", "99.9"]
    given += ["--per-tensor", "--activations", "int8", "--exclude", "first", "--reduce-range", "yes"]
    assert main(given) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and found["artifact"] is None and not out.exists()
    assert found["settings"] == {
        "method": "percentile", "percentile": 99.9, "per_channel": False, "activations": "int8", "exclude": ["first"],
        "operators": [], "reduce_range": True, "weights": None, "block": 32,
    }  # fmt: skip
    assert {"node": "first", "operator": "Conv", "reason": "exclude= names it"} in found["left"]


def test_errors_say_what_to_do(paths: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    model, data, out = paths
    assert main(["quantize", model]) == 2
    assert "quantize needs calibration=" in capsys.readouterr().err
    assert main(["quantize", model, "--calibration", str(out)]) == 2
    assert "neither .npz, nor .npy, nor a folder" in capsys.readouterr().err
    assert main(["quantize", model, "--calibration", data, "--operators", "Konv"]) == 2
    assert "did you mean 'Conv'?" in capsys.readouterr().err
    assert main(["quantize", model, "--calibration", data, "--method", "best"]) == 2


def test_weights_alone_take_no_calibration_and_only_their_operators(
    paths: tuple[str, str, Path], tmp_path: Path
) -> None:
    nodes, weight = [helper.make_node("MatMul", ["x", "w"], ["y"])], np.ones((32, 4), np.float32)
    onnx.save(graphs.model(nodes, [graphs.value("x", (2, 32))], [graphs.value("y", (2, 4))], {"w": weight}),
              tmp_path / "w.onnx")  # fmt: skip
    command = ["quantize", str(tmp_path / "w.onnx"), "--weights", "int4"]
    assert main([*command, "--operators", "MatMul"]) == 0
    for wrong in (["--calibration", paths[1]], ["--operators", "Conv"]):
        assert main([*command, *wrong]) == 2
