"""The table's order of outcomes, and how outputs are judged."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .judge import difference
from .table import is_worse, read_table, summary, write_table


def test_only_a_step_down_is_worse():
    order = ["pass", "refused: why", "failed: Error: why", "wrong: output 0", "hang: 60 s", "crash: SIGSEGV"]
    for i, one in enumerate(order):
        for j, other in enumerate(order):
            assert is_worse(one, other) == (i > j)


def test_a_table_survives_a_file(tmp_path):
    rows = {"b": {"ours": "pass"}, "a_expanded": {"ours": 'wrong: "x" | y', "onnxruntime": "pass"}}
    write_table(rows, tmp_path / "t.json")
    assert read_table(tmp_path / "t.json") == rows
    assert (tmp_path / "t.json").read_text().count("\n") == 4
    assert summary(rows) == (tmp_path / "t.md").read_text() and "| ours | 1 | 0" in summary(rows)


F = np.float32([1, np.nan, np.inf])


@pytest.mark.parametrize(
    ("found", "wanted", "part"),
    [
        ([F], [F.copy()], ""),
        ([F * np.float32(1.0005)], [F], ""),
        ([F * np.float32(1.01)], [F], "1 of 3"),
        ([F], [F[:2]], "shape"),
        ([F.astype(np.float64)], [F], "float64, not float32"),
        ([np.int64([10_000_001])], [np.int64([10_000_000])], "1 of 1"),
        ([F, F], [F], "2 outputs"),
        ([np.array([1], ml_dtypes.float8_e5m2)], [np.array([1], ml_dtypes.float8_e5m2)], ""),
        ([np.array([3], ml_dtypes.int4)], [np.array([2], ml_dtypes.int4)], "1 of 1"),
        ([np.array(["a"], object)], [np.array(["b"], object)], "1 of 1"),
        ([[F, F]], [[F, F]], ""),
        ([[F]], [[F, F]], "1 outputs"),
        ([F], [[F]], "no sequence"),
        ([None], [None], ""),
    ],
)
def test_outputs_are_judged(found, wanted, part):
    reason = difference(found, wanted, 1e-3, 1e-7)
    assert part in reason and bool(part) == bool(reason)
