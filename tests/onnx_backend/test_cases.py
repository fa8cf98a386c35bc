"""ONNX's node cases give what the committed table says, or better."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from .cases import Case, all_cases, slice_of
from .pool import outcomes
from .table import is_worse, kind_of, read_table

#: One part in so many of the cases is about 200.
PARTS = 9


def steps_back(cases: Iterable[Case]) -> list[str]:
    """What became worse than the table says."""
    rows = read_table()
    found = {case.name: outcome for (_, case), outcome in outcomes(("ours", case) for case in cases)}
    return [
        f"{name}: {rows[name]['ours']} -> {outcome}"
        for name, outcome in sorted(found.items())
        if is_worse(outcome, rows[name]["ours"])
    ]


def test_the_table_has_every_case():
    assert set(read_table()) == set(all_cases())


def test_nothing_answers_wrongly_and_nothing_crashes():
    bad = [name for name, row in read_table().items() if kind_of(row["ours"]) in ("wrong", "hang", "crash")]
    assert bad == []


def test_a_slice_is_no_worse_than_the_table():
    chosen = slice_of(all_cases(), PARTS, 0)
    assert 150 < len(chosen) < 250
    assert steps_back(all_cases()[name] for name in chosen) == []


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, PARTS))
def test_every_slice_is_no_worse_than_the_table(number):
    assert steps_back(all_cases()[name] for name in slice_of(all_cases(), PARTS, number)) == []
