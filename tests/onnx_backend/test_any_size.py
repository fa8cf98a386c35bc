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


def test_one_is_chosen_of_every_operator_and_number_of_symbols():
    tasks = [*tasks_of(all_cases().values())]
    kinds = [{(case.operator, len(axes)) for case, axes in some} for some in (tasks, some_of(tasks, 1))]
    assert kinds[0] == kinds[1] and len(some_of(tasks, 1)) == len(kinds[0])


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_one_of_every_operator_is_right_at_any_size(part: int):
    """`python -m tests.onnx_backend.symbolic` runs all."""
    check(some_of(tasks_of(all_cases().values()), 1)[part::3], 0.9)
