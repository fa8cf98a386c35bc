"""The benchmark of the profile judges its figure and writes its page; the profiler is replaced."""

import json
import sys
from dataclasses import replace

import pytest

import tvm_ext
from benchmarks import profile_overhead
from tests.inspection.profile.fakes import sample


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (2.0, 1)])
def test_the_figure_must_lie_between_the_bars(factor, code, monkeypatch, tmp_path, capsys):
    profile = sample()
    slower = replace(profile, whole=tuple(factor * seconds for seconds in profile.whole))
    monkeypatch.setattr(tvm_ext, "profile", lambda model, **_: slower)
    monkeypatch.setattr(sys, "argv", ["profile_overhead.py", "--only", "resnet18", "--output", str(tmp_path)])
    assert profile_overhead.main() == code
    (row,) = json.loads((tmp_path / "profile_overhead.json").read_text())["rows"]
    assert row["met"] is not bool(code) and row["details"]["ratio"] == pytest.approx(1 / 1.1 / factor)
    assert "outside kernels" in (tmp_path / "profile_overhead.md").read_text()
