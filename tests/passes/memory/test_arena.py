"""Offsets in an arena: nothing overlaps, nothing is wasted where it need not be."""

import random

import pytest

from tvm_ext.passes.memory import arena as arena_module
from tvm_ext.passes.memory.arena import LINE, PAGE, PAGED, Arena, Interval, Memory, plan


def overlaps(arena: Arena) -> list[tuple[str, str]]:
    placed = list(zip(arena.intervals, arena.offsets, strict=True))
    return [
        (a.name, b.name)
        for at, (a, x) in enumerate(placed)
        for b, y in placed[at + 1 :]
        if a.first <= b.last and b.first <= a.last and x < y + b.nbytes and y < x + a.nbytes
    ]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_overlaps(seed):
    chance = random.Random(seed)
    intervals = []
    for at in range(chance.randrange(1, 40)):
        first = chance.randrange(20)
        intervals.append(Interval(f"v{at}", chance.randrange(1, 70_000), first, first + chance.randrange(5)))
    arena = plan(intervals)
    assert overlaps(arena) == []
    assert arena.lower_bound <= arena.nbytes
    for interval, offset in zip(arena.intervals, arena.offsets, strict=True):
        assert offset % (PAGE if interval.nbytes >= PAGED else LINE) == 0


def test_a_chain_takes_two_places():
    arena = plan([Interval(f"v{at}", 64, at, at + 1) for at in range(9)])
    assert arena.nbytes == arena.lower_bound == 128
    assert arena.no_reuse == 9 * 64


def test_one_place_holds_two_small_ones_where_a_large_one_was():
    arena = plan([Interval("large", 256, 0, 1), Interval("a", 128, 2, 3), Interval("b", 128, 2, 3)])
    assert arena.nbytes == 256


def test_nothing_needs_nothing():
    assert (plan([]).nbytes, plan([]).lower_bound, plan([]).live()) == (0, 0, [])


def test_pools_count():
    memory = Memory(plan([Interval("a", 64, 0, 0), Interval("b", 128, 1, 1)], ("f", "g")), (1000, 10))
    assert (memory.nbytes, memory.lower_bound, memory.no_reuse) == (1128, 1064, 1202)
    assert memory.as_dict()["pooled"] == [1000, 10]


@pytest.mark.parametrize(("count", "orders"), [(10, 43), (1500, 3)])
def test_fewer_orders_are_tried_of_thousands_of_buffers(count, orders, monkeypatch):
    """None of them is as good as the bound: each of the buffers ends within a cache line."""
    tried = []
    monkeypatch.setattr(arena_module, "_placed", lambda intervals, *_: tried.append(1) or (0,) * len(intervals))
    monkeypatch.setattr(Arena, "nbytes", property(lambda self: self.no_reuse + 1))
    plan([Interval(f"v{at}", LINE + 1, 0, 1) for at in range(count)])
    assert len(tried) == orders
