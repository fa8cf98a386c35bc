"""The trace keeps the rules of the Trace Event Format, and tells of each kernel what is known."""

import json
import math
from collections import defaultdict

import pytest

from tests.inspection.profile.fakes import OVERHEAD, sample
from tvm_ext.core.errors import OptionError
from tvm_ext.inspection.profile.trace import trace_of

METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}


def check_format(document):
    """The rules of the format's specification for the events that are used here: complete ones and metadata."""
    assert isinstance(document["traceEvents"], list) and document["displayTimeUnit"] in ("ms", "ns")
    tracks = defaultdict(list)
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["args"], dict)
        assert event["ph"] in ("X", "M")
        if event["ph"] == "M":
            assert event["name"] in METADATA and METADATA[event["name"]] in event["args"]
            continue
        assert isinstance(event["cat"], str)
        assert all(math.isfinite(event[key]) and event[key] >= 0 for key in ("ts", "dur"))
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    named = {(e["pid"], e["tid"]) for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert tracks.keys() <= named  # each track has a name
    for spans in tracks.values():  # events of a track lie in each other or behind each other
        stack = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= start + 1e-9:
                stack.pop()
            assert not stack or end <= stack[-1] + 1e-9
            stack.append(end)


def test_one_run(tmp_path):
    sample().trace(tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    check_format(document)
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [e["name"] for e in events if e["cat"] == "kernel"] == ["dense", "copy", "dense", "odd"]
    assert [e["name"] for e in events if e["cat"] == "offload"] == ["region_0"]
    assert {e["name"] for e in events if e["cat"] == "vm"} == {"vm.builtin.alloc_tensor"}
    host = [e for e in events if e["cat"] == "host"]
    assert len(host) == 1 and host[0]["ts"] == 0
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert names == {"host", "kernels", "npu"}


def test_a_kernel_tells_its_nodes_and_figures():
    events = trace_of(sample())["traceEvents"]
    kernel = next(event for event in events if event.get("cat") == "kernel")
    least = min(sample().launches[0].seconds)
    assert kernel["args"]["nodes"] == "relu, fc1" and kernel["args"]["recipe"] == "dense"
    assert kernel["args"]["us without looking"] == pytest.approx(least * 1e6, abs=2e-3)
    assert kernel["dur"] == pytest.approx((least + OVERHEAD.within(4)) * 1e6, abs=2e-3)
    assert kernel["args"]["GFLOP/s"] == pytest.approx(1e8 / least / 1e9, rel=1e-3)
    assert kernel["args"]["config"] == "tile=4" and kernel["args"]["record"] == "session-1"
    assert "512-bit, 40 FMA" in kernel["args"]["code"]
    region = next(event for event in events if event.get("cat") == "offload")
    assert region["args"]["region"] == "region_0" and "code" not in region["args"]


def test_several_runs_stand_below_each_other():
    document = trace_of(sample(), runs=3)
    check_format(document)
    assert {event["pid"] for event in document["traceEvents"]} == {1, 2, 3}
    runs = [event["dur"] for event in document["traceEvents"] if event["name"] == "run"]
    assert runs == sorted(runs)  # the least first


@pytest.mark.parametrize("runs", [0, 8, True, 1.5])
def test_a_profile_has_a_run_a_round(runs):
    with pytest.raises(OptionError, match=r"runs=.* from 1 to 7 "):
        trace_of(sample(), runs=runs)
