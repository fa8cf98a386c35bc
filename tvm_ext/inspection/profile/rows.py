"""Rows of a profile: launches, or all launches of a kernel, a recipe, or the same ONNX nodes together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import check_choice
from ...runtime.table import Plain, plain_fields
from .code_facts import CodeFacts
from .launch import Launch
from .roofs import Roofs

#: What launches may be grouped by -> the key of a launch.
GROUPINGS: Mapping[str, Callable[[Launch], Any]] = {
    "launch": lambda launch: launch.number,
    "kernel": lambda launch: launch.kernel,
    "recipe": lambda launch: launch.recipe,
    "node": lambda launch: tuple(sorted(launch.nodes)),
}


@dataclass(frozen=True)
class Work:
    """What something has to do.

    Attributes:
        flops: floating-point (or integer) operations; None if they are not known.
        bytes: of operands and results, each once; None if they are not known.
    """

    flops: float | None
    bytes: int | None

    @property
    def intensity(self) -> float | None:
        """Operations a byte; None if either is unknown, or there are no bytes."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None

    def __add__(self, other: Work) -> Work:
        """Both together; what one does not know, the sum does not know."""
        flops = None if self.flops is None or other.flops is None else self.flops + other.flops
        size = None if self.bytes is None or other.bytes is None else self.bytes + other.bytes
        return Work(flops, size)


def total(works: Iterable[Work]) -> Work:
    """The sum of all operations, and of all bytes."""
    return sum(works, Work(0.0, 0))


@dataclass(frozen=True)
class Row(Plain):
    """Launches that are shown together.

    Attributes:
        label: of a launch its kernel, or the region if it is offloaded; else the kernel, the recipe, or the nodes.
        launches: their numbers.
        kernels, nodes, recipes: of them, each once, in order.
        config, record, region, reason: of a row of one kernel; empty if they differ. `reason` is why no recipe took it.
        seconds: of all of them in a run, one a round.
        share: of the whole run, 0 to 1.
        work: operations, as the model states them, and bytes of all of them.
        executed: operations that the kernels do: with Winograd fewer.
        gflops, gbs: rates of the work at the median time; None if it is not known.
        peak: operations a second that the machine does at most of these, by the instructions of their kernels.
        of_peak, of_bandwidth: parts of the machine's measured rates, of operations executed and of bytes. Bytes of
            arguments that lie in caches come faster than memory gives them: above 1.
        of_roof: the least time that the roofs allow, over the median time.
        bound: "compute" or "memory", the roof above it; "" if it is not known.
        code: facts of the machine code of a row of one kernel.
    """

    label: str
    launches: tuple[int, ...]
    kernels: tuple[str, ...]
    nodes: tuple[str, ...]
    recipes: tuple[str, ...]
    config: Mapping[str, Any]
    record: str
    region: str
    reason: str
    seconds: tuple[float, ...]
    share: float
    work: Work
    executed: float | None
    gflops: float | None
    gbs: float | None
    peak: float
    of_peak: float | None
    of_bandwidth: float | None
    of_roof: float | None
    bound: str
    code: CodeFacts | None

    @property
    def median(self) -> float:
        """Seconds, median of the rounds."""
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        """Seconds, least of the rounds."""
        return min(self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        row = plain_fields(self, "median")
        return {**row, **row.pop("work"), "min": self.least}


def rows_of(launches: Sequence[Launch], by: str, whole: float, roofs: Roofs) -> tuple[Row, ...]:
    """The rows, in the order of their first launches.

    Args:
        by: one of :data:`GROUPINGS`.
        whole: seconds of a run, which shares are parts of.

    Raises:
        OptionError: no such grouping.
    """
    check_choice("group_by", by, GROUPINGS)
    groups: dict[Any, list[Launch]] = {}
    for launch in launches:
        groups.setdefault(GROUPINGS[by](launch), []).append(launch)
    return tuple(_row(group, by, whole, roofs) for group in groups.values())


def _row(launches: Sequence[Launch], by: str, whole: float, roofs: Roofs) -> Row:
    seconds = tuple(map(sum, zip(*(launch.seconds for launch in launches), strict=True)))
    work, median = total(Work(launch.flops, launch.bytes) for launch in launches), statistics.median(seconds)
    done = total(Work(launch.executed, launch.bytes) for launch in launches)
    first = launches[0]
    same = all((launch.config, launch.kernel) == (first.config, first.kernel) for launch in launches)
    nodes = tuple(dict.fromkeys(node for launch in launches for node in launch.nodes))
    labels = {"launch": first.region or first.kernel, "recipe": first.recipe, "node": ", ".join(nodes) or first.kernel}
    return Row(
        label=labels.get(by, first.kernel), launches=tuple(launch.number for launch in launches),
        kernels=tuple(dict.fromkeys(launch.kernel for launch in launches)), nodes=nodes,
        recipes=tuple(dict.fromkeys(launch.recipe for launch in launches)),
        config=first.config if same else {}, record=_common([launch.record for launch in launches]),
        region=_common([launch.region for launch in launches]),
        reason=_common([launch.reason for launch in launches]), seconds=seconds,
        share=median / whole if whole else 0.0,
        work=work, executed=done.flops, code=first.code if same else None,
        gflops=_rate(work.flops, median), gbs=_rate(work.bytes, median), 
        **_parts(done, median, roofs, _peak(launches, roofs)),
    )  # fmt: skip


def _common(values: Sequence[str]) -> str:
    return values[0] if len(set(values)) == 1 else ""


def _rate(amount: float | None, seconds: float) -> float | None:
    """In 10^9 a second; None where the amount is not known, or nothing was timed."""
    return amount / seconds / 1e9 if amount is not None and seconds else None


def _peak(launches: Sequence[Launch], roofs: Roofs) -> float:
    """Operations a second of launches at their peaks, one behind the other."""
    known = [(launch.executed, roofs.peak(launch.instruction)) for launch in launches if launch.executed]
    least = sum(executed / peak for executed, peak in known)
    return sum(executed for executed, _ in known) / least if least else roofs.peak(launches[0].instruction)


def _parts(done: Work, seconds: float, roofs: Roofs, peak: float) -> dict[str, Any]:
    """What the rates are of the machine's, and the roof above; None where the work is not known."""
    gflops, gbs = _rate(done.flops, seconds), _rate(done.bytes, seconds)
    parts: dict[str, Any] = {
        "peak": peak,
        "of_peak": gflops * 1e9 / peak if gflops is not None else None,
        "of_bandwidth": gbs * 1e9 / roofs.bandwidth if gbs is not None else None,
    }
    if done.flops is None or not done.bytes:
        return {**parts, "of_roof": None, "bound": ""}
    least, bound = max(done.flops / peak, done.bytes / roofs.bandwidth), roofs.bound(done.flops, done.bytes, peak)
    return {**parts, "of_roof": least / seconds if seconds else None, "bound": bound}
