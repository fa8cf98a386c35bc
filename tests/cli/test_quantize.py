"""`tvm-ext quantize`: what it writes and prints, and its exit codes."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.onnx_graphs import model, node, saved, value
from tests.quantization.models import residual, samples


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str, Path]:
    """A model, calibration data, and where the result may go."""
    np.savez(tmp_path / "c.npz", x=np.concatenate(samples(residual())))
    return saved(residual(), tmp_path / "m.onnx"), str(tmp_path / "c.npz"), tmp_path / "q.onnx"


def test_writes_a_model_and_prints_a_report(cli, paths: tuple[str, str, Path], tmp_path: Path) -> None:
    model, data, out = paths
    report = tmp_path / "report.md"
    code, text, _ = cli("quantize", model, "--calibration", data, "-o", str(out), "--markdown", str(report))
    assert code == 0 and "first + relu1" in text and "output y: SQNR" in text and f"wrote {out}" in text
    assert "| first + relu1 | Conv | int8 | uint8 |" in report.read_text()
    assert any(node.op_type == "QuantizeLinear" for node in onnx.load(out).graph.node)


def test_as_json_with_options(cli_json, paths: tuple[str, str, Path]) -> None:
    model, data, out = paths
    options = ("--calibration", data, "--method", "percentile", "--percentile", "99.9", "--per-tensor")
    more = ("--activations", "int8", "--exclude", "first", "--reduce-range", "yes")
    code, result = cli_json("quantize", model, *options, *more)
    assert code == 0 and result["ok"] and result["artifact"] is None and not out.exists()
    assert result["settings"] == {
        "method": "percentile", "percentile": 99.9, "per_channel": False, "activations": "int8", "exclude": ["first"],
        "operators": [], "reduce_range": True, "weights": None, "block": 32,
    }  # fmt: skip
    assert {"node": "first", "operator": "Conv", "reason": "exclude= names it"} in result["left"]


def test_errors_say_what_to_do(refused, paths: tuple[str, str, Path]) -> None:
    model, data, out = paths
    for words, message in (
        ((), "quantize needs calibration="), (("--calibration", str(out)), "neither .npz, nor .npy, nor a folder"),
        (("--calibration", data, "--operators", "Konv"), "did you mean 'Conv'?"),
        (("--calibration", data, "--method", "best"), "invalid choice: 'best'"),
    ):  # fmt: skip
        assert message in refused("quantize", model, *words)


def test_weights_alone_take_no_calibration_and_only_their_operators(cli, paths: tuple[str, str, Path]) -> None:
    proto = model([node("MatMul", "x w", "y")], [value("x", (2, 32))], [value("y", (2, 4))],
                  {"w": np.ones((32, 4), np.float32)})  # fmt: skip
    path = saved(proto, paths[2].with_name("w.onnx"))
    for words, code in ((("MatMul",), 0), (("Conv",), 2), (("MatMul", "--calibration", paths[1]), 2)):
        assert cli("quantize", path, "--weights", "int4", "--operators", *words)[0] == code
