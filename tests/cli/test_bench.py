"""`tvm-ext bench`, with the harness replaced."""

import json

import numpy as np
import pytest

from tvm_ext.benchmarking import benchmark as harness
from tvm_ext.benchmarking.table import BenchmarkRow, BenchmarkTable


@pytest.fixture
def table(monkeypatch):
    rows = [BenchmarkRow("tvm_ext", "tvm-ext", ((0.001,),), 0.0), BenchmarkRow("onnxruntime", "ort", ((0.002,),), 0.0)]
    table = {"rows": rows, "calls": []}

    def fake(model, against, **options):
        table["calls"].append((model, against, options))
        return BenchmarkTable("m", {"cpu": "Some CPU"}, 2, tuple(rows), reference="ort")

    monkeypatch.setattr(harness, "benchmark", fake)
    return table


def test_the_table_is_printed_and_written(cli, cli_json, table, tmp_path):
    path = tmp_path / "t.md"
    code, out, _ = cli("bench", "m.onnx", "-o", str(path), "--threads", "2", "--rounds", "8", "--against", "tvm")
    assert code == 0 and "0.500" in out and "| ort |" in path.read_text()
    model, against, options = table["calls"][0]
    assert (model, against, options["threads"], options["rounds"]) == ("m.onnx", ["tvm"], 2, 8)
    code, plain = cli_json("bench", "m.onnx", "-o", str(tmp_path / "t.json"))
    assert code == 0 and plain["ok"] and plain["rows"][1]["ratio"] == 0.5
    assert json.loads((tmp_path / "t.json").read_text())["rows"] == plain["rows"]


def test_a_row_without_a_time_exits_1(cli, table):
    table["rows"][1] = BenchmarkRow("onnxruntime", reason="killed by SIGSEGV")
    code, out, _ = cli("bench", "m.onnx")
    assert code == 1 and "killed by SIGSEGV" in out


@pytest.mark.parametrize(
    ("flags", "python"),
    [([], None), (["/a=b/python"], "/a=b/python"), (["torch=/t", "--python", "tvm=/v"], {"torch": "/t", "tvm": "/v"})],
)
def test_pythons_and_inputs_are_handed_on(cli, table, tmp_path, flags, python):
    np.save(tmp_path / "ids.npy", np.arange(3))
    flags = ["--python", *flags] if flags else []
    code, _, _ = cli("bench", "m.onnx", "--input", f"ids={tmp_path / 'ids.npy'}", *flags)
    options = table["calls"][0][2]
    assert code == 0 and options["python"] == python and options["inputs"]["ids"].tolist() == [0, 1, 2]


def test_usage_errors(refused, model):
    assert "one path for all" in refused("bench", "m.onnx", "--python", "/a", "--python", "torch=/t")
    assert "rounds=3: a whole number of 7 or more" in refused("bench", model, "--rounds", "3")
