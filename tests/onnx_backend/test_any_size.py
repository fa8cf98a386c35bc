"""ONNX's node cases as programs of any size: none is wrong, and most run."""

from __future__ import annotations

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


def test_a_part_is_right_at_any_size():
    check([*tasks_of(all_cases().values())][::16], 0.85)


@pytest.mark.long
def test_one_of_every_operator_is_right_at_any_size():
    """`python -m tests.onnx_backend.symbolic` runs all."""
    tasks = [*tasks_of(all_cases().values())]
    chosen = some_of(tasks, 1)
    kinds = [{(case.operator, len(axes)) for case, axes in some} for some in (tasks, chosen)]
    assert kinds[0] == kinds[1] and len(chosen) == len(kinds[0])
    check(chosen, 0.9)
