"""Parts of the offload benchmark on few cases; its figures themselves are made by the script."""

import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import offload
from benchmarks.common.results import ALL_RESULTS
from benchmarks.common.rows import Row
from benchmarks.offloading import int8, views
from benchmarks.pages.sweep_chart import LEVELS, SPAN, sweep_chart

SVG = "{http://www.w3.org/2000/svg}"
CASES = list(int8.cases())


def sweep_row(seconds: float, flow: str, **energy: float) -> Mapping[str, Any]:
    levels = dict.fromkeys(LEVELS, 0.0) | energy
    return {"rows": 8, "cols": 4, "dataflow": flow, "seconds": seconds, "utilization": 0.5, "energy": levels}


def test_every_row_of_scalesim_is_read() -> None:
    assert views.scalesim() == {"rows": 96, "equal": 96}


def test_rows_of_scalesim_with_memories_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    some = views.scalesim_memory_rows()[:4]
    wrong = {**some[0], "stalls": str(int(some[0]["stalls"]) + 1)}
    monkeypatch.setattr(views, "scalesim_memory_rows", lambda: [wrong, *some[1:]])
    assert views.scalesim_memories() == {"rows": 4, "stalled": 3, "equal": 3}


def test_views_agree_on_a_few_gemms() -> None:
    found = views.stepper(6)
    assert (found["gemms"], found["runs"], found["other cycles"], found["other bits"]) == (6, 36, 0, 0)
    assert found["of_bound"] <= 1


def test_mutations_are_counted_all() -> None:
    found = views.mutations(20)
    assert found["errors"] + found["equal"] == found["mutations"] == 20 and found["different"] == 0


def test_int8_covers_each_kind_per_tensor_and_per_channel() -> None:
    kinds = {"MatMulInteger", "QLinearMatMul", "QDQ MatMul", "QDQ dense, bias, relu", "QLinearConv"}
    kinds.add("QDQ Conv, bias, relu")
    found = {(case.kind, case.scales, case.exact) for case in CASES}
    assert found == {(k, s, e) for k in kinds for s in ("per tensor", "per channel") for e in (True, False)}


@pytest.mark.parametrize("kind", ["MatMulInteger", "QLinearConv"])
def test_int8_saturates_here_and_there_and_fills_its_range(kind: str) -> None:
    case = next(case for case in CASES if case.kind == kind and case.exact)
    row = int8.measure(case)
    assert row["offloaded"] and row["off"]["mismatches"] == 0
    assert len(np.unique(int8.onnxruntime_output(case, optimized=False))) > 5


def test_chart_of_a_sweep() -> None:
    rows = [sweep_row(0.002, "ws", array=1000, dram=3000), sweep_row(0.001, "os", dram=2000)]
    tree = ElementTree.fromstring(sweep_chart("A < B", "about", rows))
    widths = [float(e.get("width", "")) for e in tree.iter(SVG + "rect") if e.get("class") == "time"]
    assert widths == [SPAN, SPAN / 2]
    dram = [float(e.get("width", "")) for e in tree.iter(SVG + "rect") if e.get("class") == "dram"][:2]
    assert dram == [SPAN * 3 / 4, SPAN / 2]
    texts = [e.text for e in tree.iter(SVG + "text")]
    assert {"A < B", "8x4 ws", "2.00 (50%)", "4.0"} <= set(texts)


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
