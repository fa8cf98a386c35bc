"""Two profiles of one model: which kernels became slower or faster, and which differences are noise.

Two compiles may fuse differently, so kernels are matched by their ONNX nodes: launches that share a node, on either
side, are one comparison. A difference counts if the intervals of both medians (95 %, by order statistics) do not meet,
also after the machine's own change is allowed for: its multiply-adds and its memory were measured with each profile,
and what the roofline says of the same work then and now is what a kernel may have gained or lost by itself. And it
must be longer than what looking costs, which is known no better.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionError
from ...core.pages.page import Note, Part, Shown
from ...runtime.table import Cell, Column, Plain, Table, Value
from ...tuning.in_model import quantile_interval
from .launch import Launch
from .roofs import Roofs
from .text import NAME, NODES, wrapped_notes

if TYPE_CHECKING:
    from .profile import Profile

#: Of the run: smaller differences of a kernel are no regressions.
_LEAST_PART = 0.002
SAME, SLOWER, FASTER, GONE, NEW = "same", "slower", "faster", "gone", "new"


@dataclass(frozen=True)
class Interval:
    """Median seconds, and the interval that holds the true median with a probability of 95 % or more."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Interval:
        ordered = sorted(seconds)
        low, high = quantile_interval(len(ordered))
        return cls(statistics.median(ordered), ordered[low], ordered[high])

    def __str__(self) -> str:
        return f"{self.median * 1e3:.4f} ({self.low * 1e3:.4f} to {self.high * 1e3:.4f})"


@dataclass(frozen=True)
class Change(Plain):
    """What became of the launches that compute some ONNX nodes.

    Attributes:
        label: the kernels before, and after if they are others.
        nodes: ONNX nodes.
        before, after: seconds; None if there is nothing on that side.
        machine: what the same work should take now, over before, by the machine's measured rates.
        verdict: "same" (within the noise), "slower", "faster", "gone" or "new".
    """

    label: str
    nodes: tuple[str, ...]
    before: Interval | None
    after: Interval | None
    machine: float
    verdict: str

    derived = ("ratio",)

    @property
    def ratio(self) -> float | None:
        """After over before, of the medians; None if one is missing or took no time."""
        return self.after.median / self.before.median if self.before and self.after and self.before.median else None

    def regressed(self, percent: float) -> bool:
        """Whether it is slower beyond the noise, and by more than so many percent."""
        return self.verdict == SLOWER and self.ratio is not None and self.ratio > 1 + percent / 100


@dataclass(frozen=True)
class Comparison(Shown):
    """All changes.

    Attributes:
        model: its name.
        whole: the undisturbed run.
        changes: by what they add to a run, most first.
        notes: what differs besides, such as the number of threads.
    """

    model: str
    whole: Change
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    def regressions(self, percent: float = 0.0) -> tuple[Change, ...]:
        """Kernels, and the whole run, that are slower beyond the noise and by more than so many percent.

        A kernel whose difference is below a 500th of the run is none: where memory happens to lie makes that much.
        """
        floor = _LEAST_PART * _seconds(self.whole.before)
        return tuple(
            change
            for change in (self.whole, *self.changes)
            if change.regressed(percent) and _seconds(change.after) - _seconds(change.before) >= floor
        )

    def parts(self) -> list[Part]:
        """All changes, the whole run last."""
        columns = (
            Column("kernel", most=NAME), Column("ONNX nodes", most=NODES), Column("before", "ms", right=True),
            Column("after", "ms", right=True), Column("ratio", form=".3f"), "verdict",
        )  # fmt: skip
        table = Table(columns, map(_cells, (*self.changes, self.whole)))
        return [Note(f"{self.model}: before and after"), *wrapped_notes(*self.notes), table]


def _cells(change: Change) -> tuple[Value, ...]:
    tone = {SLOWER: "bad", FASTER: "good"}.get(change.verdict, "dim")
    sides = [None if side is None else Cell(str(side), side.median) for side in (change.before, change.after)]
    return change.label, ", ".join(change.nodes), *sides, change.ratio, Cell(change.verdict, tone=tone)


def compare(before: Profile, after: Profile) -> Comparison:
    """Compare two profiles of one model.

    Raises:
        OptionError: they are of different models, or of different batches.
    """
    _check_same(before, after)
    roofs = before.roofs, after.roofs
    look = max(before.overhead.within(4), after.overhead.within(4))
    changes = [_change(earlier, other, roofs, look) for earlier, other in _matched(before.launches, after.launches)]
    whole = _judged("whole run", (), before.whole, after.whole, _machine(before.launches, roofs), 0.0)
    ordered = sorted(changes, key=lambda change: -abs(_seconds(change.after) - _seconds(change.before)))
    return Comparison(before.model, whole, tuple(ordered), tuple(_notes(before, after)))


def _machine(launches: Iterable[Launch], roofs: tuple[Roofs, Roofs]) -> float:
    """Seconds that the roofs of now allow for the work of launches, over those of the roofs of before.

    Launches that were faster than memory had their arguments in caches: the roof of L2 is theirs.
    """
    first = second = 0.0
    for launch in launches:
        if launch.executed is None or not launch.bytes:
            continue
        cached = launch.median < launch.bytes / roofs[0].bandwidth
        first += roofs[0].seconds(launch.executed, launch.bytes, cached, launch.instruction)
        second += roofs[1].seconds(launch.executed, launch.bytes, cached, launch.instruction)
    return second / first if first else roofs[0].flops / roofs[1].flops


def _seconds(side: Interval | None) -> float:
    return side.median if side else 0.0


def _check_same(before: Profile, after: Profile) -> None:
    for profile in (before, after):
        if not hasattr(profile, "launches"):
            raise OptionError(f"{profile!r:.200} is no profile", fix="tvm_ext.profile makes one, Profile.load reads it")
    nodes = [{node for launch in profile.launches for node in launch.nodes} for profile in (before, after)]
    if before.sha256 != after.sha256 and (before.model != after.model or not nodes[0] & nodes[1]):
        common = len(nodes[0] & nodes[1])
        wrong = f"profiles of different models: {before.model!r} and {after.model!r} share {common} ONNX nodes"
        raise OptionError(wrong, fix="compare two profiles of one model")
    if before.batch != after.batch:
        raise OptionError(f"profiles of different batches: {before.batch} and {after.batch}", fix="profile at one")
    if before.sizes != after.sizes:
        raise OptionError(f"profiles of different sizes: {before.name!r} and {after.name!r}", fix="profile at one")


def _notes(before: Profile, after: Profile) -> Iterable[str]:
    if before.sha256 != after.sha256:
        yield f"the model file changed: {before.sha256[:12]} and {after.sha256[:12]}"
    if before.threads != after.threads:
        yield f"{before.threads} threads before, {after.threads} after"
    cpus = [str(profile.machine.get("cpu", "")) for profile in (before, after)]
    if cpus[0] != cpus[1]:
        yield f"different machines: {cpus[0]} and {cpus[1]}"
    changed = _machine(before.launches, (before.roofs, after.roofs))
    if abs(changed - 1) > 0.05:
        rates = [f"{p.roofs.flops / 1e9:.0f} GFLOP/s, {p.roofs.bandwidth / 1e9:.1f} GB/s" for p in (before, after)]
        yield (
            f"the machine itself changed ({rates[0]} before; {rates[1]} after): by its roofline the same work takes "
            f"{changed:.2f} of the time; differences that this explains are not counted"
        )
    if min(len(before.whole), len(after.whole)) < 6:
        yield "fewer than 6 rounds: intervals are wider than what they hold 95 % of; profile with rounds=7 or more"


def _matched(before: Sequence[Launch], after: Sequence[Launch]) -> list[tuple[list[Launch], list[Launch]]]:
    """Launches of both sides that share ONNX nodes, directly or through others; those without nodes by their kernel."""
    leader: dict[Any, Any] = {}

    def root(key: Any) -> Any:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    def keys(launch: Launch) -> list[Any]:
        return [("node", node) for node in launch.nodes] or [("kernel", launch.kernel)]

    for launch in (*before, *after):
        first, *rest = keys(launch)
        for other in rest:
            leader[root(other)] = root(first)
    groups: dict[Any, tuple[list[Launch], list[Launch]]] = {}
    for side, launches in enumerate((before, after)):
        for launch in launches:
            groups.setdefault(root(keys(launch)[0]), ([], []))[side].append(launch)
    return list(groups.values())


def _change(before: Sequence[Launch], after: Sequence[Launch], roofs: tuple[Roofs, Roofs], look: float) -> Change:
    nodes = tuple(dict.fromkeys(node for launch in (*before, *after) for node in launch.nodes))
    sides = [", ".join(dict.fromkeys(launch.kernel for launch in side)) for side in (before, after)]
    label = sides[0] if sides[0] == sides[1] else " -> ".join(sides) if all(sides) else sides[0] or sides[1]
    least = look * max(len(before), len(after))
    return _judged(label, nodes, _sums(before), _sums(after), _machine(before or after, roofs), least)


def _sums(launches: Sequence[Launch]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*(launch.seconds for launch in launches), strict=True)))


def _judged(
    label: str, nodes: tuple[str, ...], before: Sequence[float], after: Sequence[float], machine: float, least: float
) -> Change:
    """The change, and whether it counts: intervals that do not meet, and medians at least so many seconds apart."""
    if not before or not after:
        side = Interval.of(before or after)
        if before:
            return Change(label, nodes, side, None, machine, GONE)
        return Change(label, nodes, None, side, machine, NEW)
    first, other = Interval.of(before), Interval.of(after)
    verdict, apart = SAME, abs(other.median - first.median) >= least
    if apart and other.low > first.high * max(machine, 1.0):
        verdict = SLOWER
    elif apart and other.high < first.low * min(machine, 1.0):
        verdict = FASTER
    return Change(label, nodes, first, other, machine, verdict)
