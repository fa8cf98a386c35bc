"""Host and back ends at once: schedules by hand, and what holds of any."""

import math
from collections import defaultdict

import numpy as np
import pytest

from tvm_ext.runtime.offloading.overlap import Call, Overlap

#: Quantize on the host, a region, and what the host does behind it.
CHAIN = (Call("quantize", "host", 1.0), Call("region", "npu", 4.0, (0,)), Call("softmax", "host", 2.0, (1,)))


def begins(overlap: Overlap) -> list[tuple[str, int, float, float]]:
    return [(overlap.calls[span.call].name, span.run, span.begin, span.end) for span in overlap.spans]


def test_a_chain_of_one_run_does_not_overlap() -> None:
    overlap = Overlap.of(CHAIN)
    assert begins(overlap) == [("quantize", 0, 0, 1), ("region", 0, 1, 5), ("softmax", 0, 5, 7)]
    assert overlap.seconds == overlap.serial_seconds == 7 and overlap.units == ("host", "npu")
    assert [span.token for span in overlap.spans] == [None, 0, 1]


def test_runs_overlap_as_far_as_there_is_memory() -> None:
    """The third run begins when the first one is done; from then on the region always works."""
    overlap = Overlap.of(CHAIN, 3)
    assert begins(overlap) == [
        ("quantize", 0, 0, 1), ("region", 0, 1, 5), ("quantize", 1, 1, 2), ("softmax", 0, 5, 7), ("region", 1, 5, 9),
        ("quantize", 2, 7, 8), ("softmax", 1, 9, 11), ("region", 2, 9, 13), ("softmax", 2, 13, 15),
    ]  # fmt: skip
    assert overlap.busy("npu") == 12 / 15 and overlap.busy("host") == 9 / 15
    assert Overlap.of(CHAIN, 3, buffers=1).seconds == 21


def test_the_host_does_what_else_there_is() -> None:
    """What does not read the region stands behind it in the program, and runs beside it."""
    calls = (Call("region", "npu", 3.0), Call("a", "host", 1.0, (0,)), Call("b", "host", 2.0))
    assert begins(Overlap.of(calls)) == [("region", 0, 0, 3), ("b", 0, 0, 2), ("a", 0, 3, 4)]


@pytest.mark.parametrize("seed", range(6))
def test_what_holds_of_any_schedule(seed: int) -> None:
    """Each call once, behind what it reads and beside nothing else on its unit, as soon as another one ends; never more
    runs under way than there are buffers; no longer than one by one, no shorter than the work of any unit."""
    rng = np.random.default_rng(seed)
    calls = [
        Call(f"c{at}", ("host", "npu", "dsp")[rng.integers(3)], float(rng.integers(0, 9)) / 8,
             tuple(sorted({*map(int, rng.integers(0, at, rng.integers(0, 3)))})) if at else ())
        for at in range(12)
    ]  # fmt: skip
    runs, buffers = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    overlap = Overlap.of(calls, runs, buffers)
    ends = {(span.run, span.call): span.end for span in overlap.spans}
    assert len(ends) == len(overlap.spans) == runs * len(calls)
    order, under_way = defaultdict(list), []
    for span in overlap.spans:
        assert span.end == span.begin + calls[span.call].seconds
        order[calls[span.call].unit].append(span)
        waits = [ends[span.run, read] for read in calls[span.call].reads]
        before = [each.end for each in order[calls[span.call].unit][:-1]]
        assert span.begin >= max([*waits, *before], default=0) and span.begin in {0.0, *ends.values()}
    for run in range(runs):
        own = [span for span in overlap.spans if span.run == run]
        under_way.append((min(span.begin for span in own), max(span.end for span in own)))
    for begin, _ in under_way:
        assert sum(first <= begin < end for first, end in under_way) <= buffers
    work = [runs * sum(call.seconds for call in calls if call.unit == unit) for unit in overlap.units]
    assert max(work) <= overlap.seconds <= overlap.serial_seconds == pytest.approx(sum(work))
    assert [overlap.busy(unit) for unit in overlap.units] == [each / overlap.seconds for each in work]


def test_trace_has_a_track_a_unit_and_an_arrow_a_token() -> None:
    events = Overlap.of(CHAIN, 2).trace()["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["host", "npu"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [(event["name"], event["tid"], event["args"]["run"]) for event in spans[:3]] == [
        ("quantize", 0, 0), ("region", 1, 0), ("quantize", 0, 1)
    ]  # fmt: skip
    starts, arrivals = ({e["id"]: e for e in events if e["ph"] == kind} for kind in "sf")
    assert starts.keys() == arrivals.keys() and len(starts) == 4
    for number, start in starts.items():
        assert start["tid"] != arrivals[number]["tid"] and start["ts"] <= arrivals[number]["ts"]


def test_no_calls() -> None:
    assert Overlap.of([]).seconds == 0 and math.isclose(Overlap.of([]).busy("host"), 0)
