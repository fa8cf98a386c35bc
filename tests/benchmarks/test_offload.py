"""Parts of the offload benchmark on few cases; its figures themselves are made by the script."""

import json

import numpy as np
import pytest

from benchmarks import offload
from benchmarks.common.results import ALL_RESULTS
from benchmarks.common.rows import Row
from benchmarks.offloading import int8, views

CASES = list(int8.cases())


def test_every_row_of_scalesim_is_read() -> None:
    assert views.scalesim() == {"rows": 96, "equal": 96}


def test_rows_of_scalesim_with_memories_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    some = views.scalesim_memory_rows()[:4]
    wrong = {**some[0], "stalls": str(int(some[0]["stalls"]) + 1)}
    monkeypatch.setattr(views, "scalesim_memory_rows", lambda: [wrong, *some[1:]])
    assert views.scalesim_memories() == {"rows": 4, "stalled": 3, "equal": 3}


def test_views_agree_on_a_few_gemms() -> None:
    gemms = views.stepper(6)
    assert (gemms["gemms"], gemms["runs"], gemms["other cycles"], gemms["other bits"]) == (6, 36, 0, 0)
    assert gemms["of_bound"] <= 1


def test_mutations_are_counted_all() -> None:
    mutants = views.mutations(20)
    assert mutants["errors"] + mutants["equal"] == mutants["mutations"] == 20 and mutants["different"] == 0


def test_int8_covers_each_kind_per_tensor_and_per_channel() -> None:
    kinds = {"MatMulInteger", "QLinearMatMul", "QDQ MatMul", "QDQ dense, bias, relu", "QLinearConv"}
    kinds.add("QDQ Conv, bias, relu")
    covered = {(case.kind, case.scales, case.exact) for case in CASES}
    assert covered == {(k, s, e) for k in kinds for s in ("per tensor", "per channel") for e in (True, False)}


@pytest.mark.parametrize("kind", ["MatMulInteger", "QLinearConv"])
def test_int8_saturates_here_and_there_and_fills_its_range(kind: str) -> None:
    case = next(case for case in CASES if case.kind == kind and case.exact)
    row = int8.measure(case)
    assert row["offloaded"] and row["off"]["mismatches"] == 0
    assert len(np.unique(int8.onnxruntime_output(case, optimized=False))) > 5


def test_the_page_shows_rows_of_all_parts() -> None:
    row = vars(Row("what", "bar", "measured", True))
    results = {name: {"machine": {}, "rows": [row]} for name in offload.PARTS}
    assert len(offload.main_table(results).splitlines()) == 2 + len(offload.PARTS)


def test_the_pages_are_those_of_the_stored_rows() -> None:
    """Else: python benchmarks/offload.py"""
    stored = list(ALL_RESULTS.glob("*/offload.json"))
    assert stored
    for path in stored:
        assert offload.page(json.loads(path.read_text())).strip() == path.with_suffix(".md").read_text().strip()
