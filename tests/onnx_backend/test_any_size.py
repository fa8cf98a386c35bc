"""ONNX's node cases as programs of any size: none is wrong, and most run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.oracles.pool import outcomes

from .any_size import SERVICE, Task, tasks_of
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
def test_all_are_right_at_any_size():
    check([*tasks_of(all_cases().values())], 0.9)
