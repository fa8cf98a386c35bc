"""ONNX's node cases give what the committed table says, or better."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.oracles.outcome import is_worse, kind_of
from tests.oracles.pool import outcomes

from .cases import Case, a_part_of, all_cases
from .contenders import SERVICE
from .table import read_table


def steps_back(cases: Iterable[Case]) -> list[str]:
    """What became worse than the table says."""
    rows = read_table()
    results = {case.name: str(outcome) for (_, case), outcome in outcomes(SERVICE, [("ours", case) for case in cases])}
    return [
        f"{name}: {rows[name]['ours']} -> {outcome}"
        for name, outcome in sorted(results.items())
        if is_worse(outcome, rows[name]["ours"])
    ]


def test_the_table_has_every_case():
    assert set(read_table()) == set(all_cases())


def test_nothing_answers_wrongly_and_nothing_crashes():
    bad = [name for name, row in read_table().items() if kind_of(row["ours"]) in ("wrong", "hang", "crash")]
    assert bad == []


def test_a_part_is_no_worse_than_the_table():
    chosen = a_part_of(all_cases())
    assert 150 < len(chosen) < 250
    assert steps_back(all_cases()[name] for name in sorted(chosen)) == []


@pytest.mark.long
def test_the_others_of_operators_are_no_worse_than_the_table():
    """Of the functions that define them, expanded to the same few operators, the part above is enough."""
    others = {name for name, case in all_cases().items() if case.plain} - a_part_of(all_cases())
    assert steps_back(all_cases()[name] for name in sorted(others)) == []
