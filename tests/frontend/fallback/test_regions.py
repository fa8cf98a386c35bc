"""Regions: what cannot cross stays inside, nothing waits for itself, neighbours join, and no more nodes than needed."""

import graphlib

import numpy as np
import pytest

from tvm_ext.frontend.fallback.regions import Regions


def members(reads: list[str], makes: list[str], closed: str, apart: list[int]) -> list[list[int]]:
    """Regions of nodes that read and make values of one letter; `closed` ones cannot cross."""
    makers = {name: at for at, names in enumerate(makes) for name in names}
    known = [[name for name in names if name in makers] for names in reads]
    return Regions(known, makers, lambda name: name not in closed, apart).members()


@pytest.mark.parametrize(
    ("reads", "makes", "closed", "apart", "wanted"),
    [
        (["x", "a", "b"], ["a", "b", "c"], "", [1], [[1]]),
        (["x", "a", "b"], ["a", "b", "c"], "a", [0], [[0, 1]]),  # a reader of what cannot cross
        (["x", "a", "b"], ["a", "b", "c"], "a", [1], [[0, 1]]),  # its maker
        (["x", "a", "b"], ["a", "b", "c"], "", [0, 2], [[0], [2]]),
        (["x", "a", "b"], ["a", "b", "c"], "", [0, 1], [[0, 1]]),  # neighbours
        (["x", "a", "ab"], ["a", "b", "c"], "", [0, 2], [[0], [2]]),  # neighbours, but node 1 would have to wait
        (["x", "s", "sb"], ["sa", "b", "c"], "s", [0], [[0, 1, 2]]),
        (["x", "a", "sb"], ["sa", "b", "c"], "s", [0], [[0, 1, 2]]),  # a path out and back
        (["x", "s", "b", "ct"], ["sa", "tb", "c", "y"], "st", [0], [[0, 1, 2, 3]]),
        (["x", "x", "a", "b", "cs", "dt"], ["sa", "tb", "d", "c", "y", "z"], "st", [0, 1], [[0, 1, 2, 3, 4, 5]]),
        (["x", "x", "a", "b", "s", "t"], ["sa", "tb", "d", "c", "y", "z"], "st", [0, 1], [[0, 4], [1, 5]]),
    ],
)
def test_members(reads: list[str], makes: list[str], closed: str, apart: list[int], wanted: list[list[int]]) -> None:
    assert members(reads, makes, closed, apart) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_can_run_and_keep_what_cannot_cross(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 30))
    reads = [[f"v{i}" for i in range(at) if rng.random() < 2.5 / count] for at in range(count)]
    closed = {f"v{i}" for i in range(count) if rng.random() < 0.15}
    apart = [i for i in range(count) if rng.random() < 0.2]
    regions = Regions(reads, {f"v{i}": i for i in range(count)}, lambda name: name not in closed, apart).members()
    unit = {at: f"region {i}" for i, region in enumerate(regions) for at in region}
    before: dict[object, set[object]] = {}
    for at, names in enumerate(reads):
        for name in names:
            maker = int(name[1:])
            first, second = unit.get(maker, maker), unit.get(at, at)
            assert name not in closed or first == second or (maker not in unit and at not in unit)
            if first != second:
                before.setdefault(second, set()).add(first)
    graphlib.TopologicalSorter(before).prepare()  # raises for a cycle
    assert set(apart) <= set(unit) and len(unit) == sum(map(len, regions))
