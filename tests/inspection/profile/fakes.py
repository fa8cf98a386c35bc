"""Profiles made by hand: launches with given times, on a machine of round numbers."""

from collections.abc import Sequence
from typing import Any

from tvm_ext.inspection.profile.clock import Overhead, Span
from tvm_ext.inspection.profile.code_facts import CodeFacts
from tvm_ext.inspection.profile.launch import Launch
from tvm_ext.inspection.profile.measure import Timeline
from tvm_ext.inspection.profile.profile import Profile
from tvm_ext.inspection.profile.roofs import Roofs

#: 100 GFLOP/s, 10 GB/s: the ridge is at 10 operations a byte.
ROOFS = Roofs(100e9, 10e9, 50e9, 2, 1 << 27, 1 << 20)
OVERHEAD = Overhead(1e-6, 1e-7, 2e-6)
CODE = CodeFacts(512, 40, 30, 20, 2, 1, 200)


def launch(number: int, kernel: str, nodes: Sequence[str], seconds: Sequence[float], **changes: Any) -> Launch:
    """A launch of 1e8 operations and 1e6 bytes: bound by compute, 1 ms at the peak."""
    fields = {"recipe": "dense", "config": {"tile": 4}, "flops": 1e8, "executed": 1e8, "bytes": 1_000_000, "code": CODE}
    return Launch(number=number, kernel=kernel, nodes=tuple(nodes), seconds=tuple(seconds), **{**fields, **changes})


def timeline(launches: Sequence[Launch], at: int) -> Timeline:
    """A run with a builtin of the VM before each kernel; looks take 1 us."""
    spans, now = [], 0.0
    for launch in launches:
        spans.append(Span("vm.builtin.alloc_tensor", now + 1e-6, now + 2e-6))
        end = now + 3e-6 + launch.seconds[at] + OVERHEAD.within(launch.arguments)
        spans.append(Span(launch.kernel, now + 3e-6, end))
        now = end
    return Timeline(now + 1e-6, tuple(spans))


def profile(launches: Sequence[Launch], whole: Sequence[float] | None = None, **changes: Any) -> Profile:
    """A profile whose undisturbed run takes a tenth longer than its kernels."""
    rounds = range(len(launches[0].seconds))
    fields: dict[str, Any] = {
        "model": "small", "sha256": "a" * 64, "machine": {"cpu": "test", "isa": "avx512"}, "threads": 2, "batch": 0,
        "launches": tuple(launches), "roofs": ROOFS, "overhead": OVERHEAD, "notes": (),
        "whole": tuple(whole or [1.1 * sum(launch.seconds[at] for launch in launches) for at in rounds]),
        "timelines": tuple(timeline(launches, at) for at in rounds),
    }  # fmt: skip
    return Profile(**{**fields, **changes})


#: Rounds of a time: 7 that differ by 2 %.
def around(seconds: float) -> tuple[float, ...]:
    return tuple(seconds * (1 + 0.01 * step / 3) for step in (-3, -2, -1, 0, 1, 2, 3))


def sample() -> Profile:
    """Three kernels, one of them launched twice: an offloaded one, one bound by memory, one of unknown work."""
    return profile(
        [
            launch(1, "dense", ["relu", "fc1"], around(2e-3), record="session-1"),
            launch(2, "copy", ["concat"], around(1e-3), recipe="concat", flops=0.0, executed=0.0, bytes=4_000_000),
            launch(3, "dense", ["fc2"], around(2.5e-3)),
            launch(4, "region_0", ["fc3"], around(4e-3), recipe="offload:npu", region="region_0", config={}, code=None),
            launch(5, "odd", [], around(1e-3), recipe="generic", flops=None, executed=None, reason="no recipe"),
        ]
    )
