"""ONNX's node cases as programs of any size: none is wrong, and most run."""

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.oracles.pool import outcomes

from .any_size import SERVICE, Task, some_of, tasks_of
from .cases import all_cases


def check(tasks: Sequence[Task], least: float) -> None:
    counts: Counter[str] = Counter()
    bad = []
    for (case, axes), outcome in outcomes(SERVICE, tasks):
        counts[outcome.kind] += 1
        if outcome.kind not in ("pass", "none", "refused"):
            bad.append(f"{case.name} {axes}: {outcome}")
    assert bad == []
    assert counts["pass"] >= least * (counts["pass"] + counts["refused"]), counts


def test_two_are_chosen_of_every_operator():
    tasks = [*tasks_of(all_cases().values())]
    counts = Counter(case.operator for case, _ in some_of(tasks))
    assert counts.keys() == {case.operator for case, _ in tasks} and {*counts.values()} == {1, 2}


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_those_of_every_operator_are_right_at_any_size(part: int):
    """`python -m tests.onnx_backend.symbolic` runs all."""
    check(some_of(tasks_of(all_cases().values()))[part::3], 0.9)
