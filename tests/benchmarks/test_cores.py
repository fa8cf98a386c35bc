"""The table of many cores: bars, files and exit codes; the estimates are replaced."""

import json
import sys

import pytest

import tvm_ext
from benchmarks import cores
from tvm_ext.inspection.estimates import Estimate, KernelEstimate


@pytest.mark.parametrize(("fewer", "rounding", "met"), [(3e-5, 0.1, True), (1e-5, 0.1, False), (3e-5, 0.16, False)])
def test_rows_and_exit_code(fewer, rounding, met, monkeypatch, tmp_path, capsys):
    row = KernelEstimate("conv", "conv2d_nchwc", 1, 16, 2e-5, rounding, 0.25, {1: 3e-4, 4: fewer, 16: 2e-5})
    asked = []

    def fake(model, **options):
        asked.append(options["machine"])
        return Estimate("m", options["machine"], 16, (row,))

    monkeypatch.setattr(tvm_ext, "estimate", fake)
    monkeypatch.setattr(sys, "argv", ["cores.py", "--only", "mlp", "--output", str(tmp_path)])
    assert cores.main() == (0 if met else 1)
    assert asked == list(cores.MACHINES)
    rows = json.loads((tmp_path / "cores.json").read_text())["rows"]
    assert [line["met"] for line in rows] == [met, met]
    assert rows[0]["details"]["worse"] == ([] if fewer > 2e-5 else ["conv"])
    assert (tmp_path / "cores.md").read_text() == capsys.readouterr().out.rstrip() + "\n"
    assert "| mlp | cluster16-zen4 | 1 |" in (tmp_path / "cores.md").read_text()
