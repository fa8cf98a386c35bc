"""Offsets of buffers in one arena: two that live at the same time do not overlap.

Greedy by size (Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net Inference", MLSys 2020,
section 5.2): the largest buffer first, each at the lowest offset where nothing that lives at the same time lies.
"""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

#: Buffers begin at multiples of a cache line; those of PAGED bytes or more, at multiples of a page.
LINE, PAGE, PAGED = 64, 4096, 32768
#: Orders that are tried by chance, and how many pairs of buffers that live at the same time are looked at for them.
_TRIES, _PAIRS = 40, 2_000_000
#: Names of variables that hold workspace of a kernel begin so.
WORKSPACE = "workspace"


@dataclass(frozen=True)
class Interval:
    """A buffer and when it lives.

    Attributes:
        name: of the value in it, for people.
        nbytes: its size.
        first, last: steps of the program, both included, in which it is read or written.
        workspace: whether it is of one kernel, and no activation.
    """

    name: str
    nbytes: int
    first: int
    last: int
    workspace: bool = False


@dataclass(frozen=True)
class Arena:
    """Buffers with their offsets.

    Attributes:
        intervals, offsets: one each a buffer; bytes from the start of the arena.
        steps: what runs in each step, for people.
    """

    intervals: tuple[Interval, ...]
    offsets: tuple[int, ...]
    steps: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size of the arena."""
        ends = (offset + buffer.nbytes for buffer, offset in zip(self.intervals, self.offsets, strict=True))
        return max(ends, default=0)

    @property
    def no_reuse(self) -> int:
        """Bytes of all buffers beside each other."""
        return sum(buffer.nbytes for buffer in self.intervals)

    @property
    def lower_bound(self) -> int:
        """Most bytes that live in one step: no plan can do with less, whatever the order of its offsets."""
        return max(self.live(), default=0)

    def live(self) -> list[int]:
        """Bytes that live in each step, from step 0 to the last."""
        changes = [0] * (2 + max((interval.last for interval in self.intervals), default=-2))
        for interval in self.intervals:
            changes[interval.first] += interval.nbytes
            changes[interval.last + 1] -= interval.nbytes
        return list(itertools.accumulate(changes[:-1]))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        pairs = zip(self.intervals, self.offsets, strict=True)
        buffers = [{**asdict(buffer), "offset": offset} for buffer, offset in pairs]
        return {"arena_bytes": self.nbytes, "steps": list(self.steps), "buffers": buffers}


@dataclass(frozen=True)
class Pooled:
    """Bytes that the threads of each kernel take from pools of their own, together."""

    nbytes: Mapping[str, int]


@dataclass(frozen=True)
class Memory:
    """What a program works in, besides its inputs, weights and outputs.

    Attributes:
        arena: activations, and workspace of kernels.
        pooled: bytes that threads take from pools of their own in each step; pools keep what the largest took.
    """

    arena: Arena
    pooled: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the arena and the pools."""
        return self.arena.nbytes + max(self.pooled, default=0)

    @property
    def lower_bound(self) -> int:
        """Most bytes in use in one step: no plan can do with less."""
        return max((live + own for live, own in zip(self.arena.live(), self.pooled, strict=False)), default=0)

    @property
    def no_reuse(self) -> int:
        """Bytes with a place of its own for everything."""
        return self.arena.no_reuse + sum(self.pooled)

    def as_dict(self, tag: str = "") -> dict[str, Any]:
        """Plain values for JSON.

        Args:
            tag: what the names of kernels end with in the module of all programs.
        """
        sizes = {"bytes": self.nbytes, "lower_bound": self.lower_bound, "no_reuse": self.no_reuse}
        steps = [name + tag for name in self.arena.steps]
        return {**sizes, **self.arena.as_dict(), "steps": steps, "pooled": list(self.pooled)}


#: Orders in which buffers are placed: by size, by size times life, by start.
_RULES: tuple[Callable[[Interval], tuple[int, int]], ...] = (
    lambda buffer: (-buffer.nbytes, buffer.first),
    lambda buffer: (-buffer.nbytes * (buffer.last - buffer.first + 1), buffer.first),
    lambda buffer: (buffer.first, -buffer.nbytes),
)


def plan(intervals: Sequence[Interval], steps: Sequence[str] = ()) -> Arena:
    """Find offsets for buffers; `steps` are the names of the program's steps.

    Several orders are tried, the last ones by chance around the best, until one needs no more than lives at a time;
    fewer of a program of thousands of buffers.
    """
    by_rule = [sorted(range(len(intervals)), key=lambda i: rule(intervals[i])) for rule in _RULES]
    order, chance = by_rule[0], random.Random(0)
    together = _together(intervals)
    best = Arena(tuple(intervals), _placed(intervals, order, together), tuple(steps))
    enough = best.lower_bound
    tries = min(_TRIES, _PAIRS // max(1, sum(map(len, together))))
    for attempt in range(1, len(by_rule) + tries):
        if best.nbytes <= enough:
            break
        tried = by_rule[attempt] if attempt < len(by_rule) else _nearby(order, chance)
        candidate = replace(best, offsets=_placed(intervals, tried, together))
        if candidate.nbytes < best.nbytes:
            best, order = candidate, tried
    return best


def _nearby(order: Sequence[int], chance: random.Random) -> list[int]:
    """The order with one buffer moved to an earlier place."""
    moved = list(order)
    if len(moved) > 1:
        at = chance.randrange(1, len(moved))
        moved.insert(chance.randrange(at), moved.pop(at))
    return moved


def _together(intervals: Sequence[Interval]) -> list[list[int]]:
    """For each buffer those that live in a step with it."""
    together: list[list[int]] = [[] for _ in intervals]
    alive: list[int] = []
    for index in sorted(range(len(intervals)), key=lambda i: intervals[i].first):
        alive = [i for i in alive if intervals[i].last >= intervals[index].first]
        for other in alive:
            together[other].append(index)
        together[index] += alive
        alive.append(index)
    return together


def _placed(
    intervals: Sequence[Interval], order: Sequence[int], together: Sequence[Sequence[int]]
) -> tuple[int, ...]:  # fmt: skip
    """Offsets of buffers that are placed in this order."""
    offsets, sizes = [-1] * len(intervals), [buffer.nbytes for buffer in intervals]
    for index in order:
        taken = [(offsets[i], offsets[i] + sizes[i]) for i in together[index] if offsets[i] >= 0]
        taken.sort()
        offsets[index] = _lowest(intervals[index], taken)
    return tuple(offsets)


def _lowest(buffer: Interval, taken: Sequence[tuple[int, int]]) -> int:
    """The lowest aligned offset at which it fits between ranges that are taken, given by where they start."""
    alignment = PAGE if buffer.nbytes >= PAGED else LINE
    offset = 0
    for start, end in taken:
        if offset + buffer.nbytes <= start:
            break
        offset = max(offset, -(-end // alignment) * alignment)
    return offset
