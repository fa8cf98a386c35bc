"""The report of an offload: what the CPU keeps, and how much faster a run can be at most."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tvm_ext
from tvm_ext.core.errors import ArtifactError, OptionError
from tvm_ext.runtime.offloading.report import OffloadReport


def report(kept: list[Any], regions: list[tuple[float | None, float | None]]) -> OffloadReport:
    """Of kernels (name, seconds) and regions (seconds there, on the CPU), as an artifact keeps it."""
    rows = [
        {"name": f"r{at}", "backend": "npu", "nodes": [f"n{at}"], "composites": [], "seconds": there,
         "host_seconds": here, "program_bytes": 8, "facts": {}}
        for at, (there, here) in enumerate(regions)
    ]  # fmt: skip
    kernels = [[name, "recipe", [f"of {name}"], seconds] for name, seconds in kept]
    ops = [[f"n{at}", "Conv", f"r{at}", "why"] for at in range(len(regions))]
    return OffloadReport.of({"offload": {"backend": "npu", "regions": rows, "ops": ops, "kept": kernels}}, "model")


def test_amdahl() -> None:
    """8 s on the CPU alone, of which 2 stay: at most 4 times as fast; 3 s there make it 8 / 5."""
    summary = report([("short", 0.5), ("long", 1.5)], [(1.0, 4.0), (2.0, 2.0)])
    assert (summary.kept_seconds, summary.host_seconds, summary.bound, summary.speedup) == (2.0, 8.0, 4.0, 8 / 5)
    rows = [[cell.content for cell in row] for row in summary.amdahl_table().rows]
    assert [(row[0], row[-1]) for row in rows] == [("long", "of long"), ("short", "of short")]
    assert [(row[2], row[3], row[4]) for row in rows] == [(1.5e6, "18.8 %", 16.0), (0.5e6, "6.2 %", 8 / 1.5)]
    assert "at most 4 times" in str(summary) and str(summary.amdahl_table().text()) in str(summary)
    assert summary.as_dict()["bound"] == 4.0


def test_measured_times_take_the_place_of_estimates() -> None:
    summary = report([("a", 1.0), ("b", None)], [(1.0, 6.0)]).measured({"b": 2.0, "r0": 9.0})
    assert [row.seconds for row in summary.kept] == [1.0, 2.0] and summary.bound == 3.0


def test_nothing_kept_has_no_bound() -> None:
    summary = report([], [(1.0, 3.0)])
    assert summary.bound == math.inf and summary.speedup == 3.0 and not summary.amdahl_table().rows
    assert "at most" not in str(summary)
    assert report([("a", 1.0)], [(None, 3.0)]).amdahl_table().rows[0][4].content == math.inf


def test_what_nobody_estimates() -> None:
    """A kernel without an estimate is counted beside; a region that nothing here computes makes the bound unknown."""
    summary = report([("a", 1.0), ("generic", None)], [(1.0, 3.0)])
    assert summary.bound == 4.0 and "1 kernels that nobody estimates" in str(summary)
    assert [row[2].content for row in summary.amdahl_table().rows] == [1e6, None]
    summary = report([("a", 1.0)], [(1.0, 3.0), (None, None)])
    assert (summary.bound, summary.speedup) == (None, None) and not summary.amdahl_table().rows
    assert report([("a", 1.0)], []).bound is None
    assert report([("a", 1.0)], [(None, 3.0)]).speedup is None


def test_damaged_rows() -> None:
    with pytest.raises(ArtifactError):
        report([("a", "long")], [])


def test_kept_kernels_are_those_of_the_program() -> None:
    compiled = tvm_ext.compile(
        tvm_ext.zoo.mlp(), offload="systolic", cache=False,
        offload_options={"when": "always", "skip": ("fc2",), "energy": "hwcomponents:22nm:HBM2", "arrays": 2},
    )  # fmt: skip
    summary, kernels = compiled.offload_report(), compiled.report["kernels"]
    table, layers = summary.layer_table(), [row for region in summary.regions for row in region.facts["layers"]]
    assert table.caption == f"energy by {layers and summary.regions[0].facts['accelerator']['energy']['source']}"
    assert "HBM2" in table.caption and table.caption in str(summary)
    assert [row[0].content for row in table.rows] == [layer["name"] for layer in layers] and len(layers) > 1
    for row, layer in zip(table.rows, layers, strict=True):
        *levels, total = (float(cell.content or 0) for cell in row[3:])
        assert sum(levels) == pytest.approx(total) == pytest.approx(sum(layer["energy"].values()) / 1e3)
    kept = [row for row in kernels if not row["recipe"].startswith("offload:")]
    assert [(row.kernel, row.recipe, list(row.nodes)) for row in summary.kept] == [
        (row["name"], row["recipe"], row["nodes"]) for row in kept
    ]
    assert any("fc2" in row.nodes for row in summary.kept)
    assert sum(row["estimated_us"] for row in kept) == pytest.approx(1e6 * summary.kept_seconds, abs=0.05 * len(kept))
    assert summary.bound is not None and 1 < summary.bound < math.inf


# ------------------------------------------------------------ asynchronous regions
def called(calls: list[Any], *rest: Any) -> OffloadReport:
    """A report whose program makes these calls."""
    summary = report(*rest)
    rows = {**summary.as_dict(), "calls": calls}
    return OffloadReport.of({"offload": rows}, "model")


def test_overlap_has_the_times_of_rows() -> None:
    """Two calls of one kernel share its time; a kernel that nobody estimates takes none."""
    calls = [["a", []], ["r0", [0]], ["a", [0]], ["none", [1, 2]]]
    summary = called(calls, [("a", 4.0), ("none", None)], [(3.0, 9.0)])
    overlap = summary.overlap()
    assert overlap is not None and [call.seconds for call in overlap.calls] == [2.0, 3.0, 2.0, 0.0]
    assert [call.unit for call in overlap.calls] == ["host", "npu", "host", "host"]
    assert (overlap.seconds, overlap.serial_seconds) == (5.0, 7.0)
    rows = [[cell.content for cell in row] for row in summary.overlap_table().rows]
    assert rows[0] == [1, 7e6, 5e6, 1.4, "80.0 %", "60.0 %"]
    assert [row[0] for row in rows] == [1, 2, 4, 16] and "asynchronous" in str(summary)


def test_no_overlap_without_times() -> None:
    """Without regions, calls or a region's time there is no table; damaged calls are an error."""
    kernels = [("a", 1.0)]
    for summary in (
        report(kernels, []), report(kernels, [(1.0, 2.0)]), called([["a", []], ["r0", [0]]], kernels, [(None, 2.0)]),
        called([["a", []], ["", [0]]], kernels, [(1.0, 2.0)]),
    ):  # fmt: skip
        assert summary.overlap() is None and not summary.overlap_table().rows
        with pytest.raises(OptionError, match="no region of 'model' has a time"):
            summary.timeline("nowhere.json")
    for reads in ([0], [-1], [7]):
        with pytest.raises(ArtifactError):
            called([["a", reads]], kernels, [(1.0, 2.0)])
    for runs in (0, True, 1.5):
        with pytest.raises(OptionError, match="runs="):
            called([["a", []]], kernels, [(1.0, 2.0)]).overlap(runs)  # type: ignore[arg-type]


def test_a_run_that_reads_what_the_last_one_left() -> None:
    summary = called([["a", []], ["r0", [0]]], [("a", 1.0)], [(1.0, 2.0)])
    assert [summary.overlap(4).seconds, replace(summary, keeps_state=True).overlap(4).seconds] == [5.0, 8.0]  # type: ignore[union-attr]


def test_calls_are_those_of_the_program(tmp_path: Path) -> None:
    """Two regions around a kernel of the CPU, and another beside them."""
    compiled = tvm_ext.compile(
        tvm_ext.zoo.mlp(), offload="systolic", cache=False, offload_options={"when": "always", "skip": ("fc2",)}
    )
    summary = compiled.offload_report()
    regions, kept = [region.name for region in summary.regions], {row.kernel for row in summary.kept}
    assert len(regions) == 2 and {call.name for call in summary.calls} == {*regions, *kept}
    first, second = (next(n for n, call in enumerate(summary.calls) if call.name == name) for name in regions)
    between = [n for n, call in enumerate(summary.calls) if call.name in kept and first in call.reads]
    assert between and {*summary.calls[second].reads} & {*between}
    overlap = summary.overlap(3)
    assert overlap is not None and overlap.serial_seconds == pytest.approx(
        3 * (summary.kept_seconds + sum(region.seconds or 0 for region in summary.regions))
    )
    summary.timeline(path := tmp_path / "timeline.json")
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} == {call.name for call in summary.calls}
