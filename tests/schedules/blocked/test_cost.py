"""The point of least cost is that of all points, and few of them are evaluated to know it."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tvm_ext.core.machine import Machine
from tvm_ext.schedules.blocked import cost as costs
from tvm_ext.schedules.blocked.problem import Problem, TapRows

IMAGE = Problem(1, 256, 14 * 14, 14, 16, (3, 3), 16, 16, tap_rows=TapRows(1, 1, 1, 15))
PROBLEMS = {
    "image": IMAGE,
    "odd image, cold weights": replace(IMAGE, outputs=100, pixels=169, row=13, prefetched=False, tap_rows=None),
    "free image": replace(IMAGE, batch=4, free=True),
    "numbered": replace(IMAGE, free=True, numbered=True),
    "transform": Problem(36, 64, 49, 49, 4, (1, 1), 16, 16, weight_sets=36, weights_in="l2"),
    "rows": Problem(1, 1000, 128, 128, 48, (1, 1), 16, 16, word=2),
    "dots": Problem(1, 768, 37, 37, 12, (1, 1), 16, 16, instruction="dot_int16"),
    "a row": Problem(1, 1000, 1, 1, 32, (1, 1), 16, 16),
}
MACHINES = ["zen4", "xeon-amx", "cluster64-xeon"]


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The costs that were evaluated."""
    evaluated: list[float] = []
    cost = costs.cost

    def counted(*args: Any) -> float:
        evaluated.append(cost(*args))
        return evaluated[-1]

    monkeypatch.setattr(costs, "cost", counted)
    return evaluated


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", PROBLEMS)
def test_default_is_the_first_point_of_least_cost(case: str, machine: str) -> None:
    problem = PROBLEMS[case]
    for threads, units in ((1, 1), (2, 1), (3, 7)):
        described = Machine.described(machine, threads)
        knobs = {**costs.tile_space(problem, described, threads), "threads": [threads]}
        points = [dict(zip(knobs, values, strict=True)) for values in itertools.product(*knobs.values())]
        best = min(points, key=lambda point: costs.cost(problem, point, described, units))
        assert costs.default.__wrapped__(problem, described, threads, units) == best


@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_that_cannot_be_best_are_not_evaluated(machine: str, evaluated: list[float]) -> None:
    described, points = Machine.described(machine, 2), 0
    for problem in PROBLEMS.values():
        knobs = costs.tile_space(problem, described, 2)
        tiles = [{"tile_o": o, "tile_p": p} for o, p in itertools.product(knobs["tile_o"], knobs["tile_p"])]
        legal = sum(costs.tile_fits(problem, tile, described) for tile in tiles)
        points += legal * len(knobs["parts"]) * len(knobs["chunk"])
        costs.default.__wrapped__(problem, described, 2)
    assert 0 < len(evaluated) <= 0.4 * points, f"{len(evaluated)} of {points}"


def test_layers_of_one_problem_are_evaluated_once(evaluated: list[float]) -> None:
    machine = Machine.described("zen4", 2)
    costs.default.cache_clear()
    first = costs.default(IMAGE, machine, 2)
    count = len(evaluated)
    assert costs.default(replace(IMAGE), machine, 2) == first and len(evaluated) == count > 0
