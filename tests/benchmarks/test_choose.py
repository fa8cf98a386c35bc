"""The benchmark of the measured choice judges its ratios and writes its page; choice, tuning and races are replaced."""

import json
import sys
import types

import pytest

import tvm_ext
from benchmarks import choose
from benchmarks.common.results import write_results
from benchmarks.common.rows import Row


def standing(measure: float) -> types.SimpleNamespace:
    minima = {"estimate": [2.0] * 9, "measure": [measure] * 9, "tune": [1.0] * 9, "onnxruntime": [3.0] * 9}
    rows = {key: types.SimpleNamespace(ok=True, minima=values, reason="") for key, values in minima.items()}
    ratios = lambda ours, other: [a / b for a, b in zip(minima[ours], minima[other], strict=True)]  # noqa: E731
    return types.SimpleNamespace(rows=rows, ratios=ratios, warnings=())


@pytest.mark.parametrize(("measure", "code"), [(1.02, 0), (1.04, 1)])
def test_the_bar_is_that_of_the_tuned_program(measure, code, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(choose, "measure_choices", lambda path, **options: calls.append(options))
    monkeypatch.setattr(tvm_ext, "tune", lambda path, **options: calls.append(options))
    monkeypatch.setattr(choose, "_standing", lambda *args: standing(measure))
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["choose.py", "--only", "mlp", "--minutes", "2", "--output", str(tmp_path)])
    assert choose.main() == code
    rows = json.loads((tmp_path / "choose.json").read_text())["rows"]
    assert [row["met"] for row in rows] == [True, not code, True]
    assert f"{measure:.3f}" in rows[1]["measured"] and rows[0]["details"]["milliseconds"]["tune"] == 1000.0
    assert [options.get("minutes") for options in calls] == [None, None, 2.0]


def test_a_run_of_some_models_keeps_the_rows_of_others(tmp_path):
    old, new = (Row(what, "1 or less", "0.9", True) for what in ("bert: measured / estimate", "mlp: measured"))
    write_results(tmp_path, "choose", [old, Row("mlp: measured / estimate", "1 or less", "2", False)], {}, "")
    for measured, rows in ((["mlp: "], [old, new]), (None, [new])):
        assert write_results(tmp_path, "choose", [new], {}, "", measured) == 0
        document = json.loads((tmp_path / "choose.json").read_text())
        assert document["rows"] == [vars(row) for row in rows]
    (tmp_path / "choose.json").write_text(json.dumps({**document, "machine": {}}))
    write_results(tmp_path, "choose", [old], {}, "", ["bert"])  # what was stored is of another machine
    assert json.loads((tmp_path / "choose.json").read_text())["rows"] == [vars(old)]
