"""ONNX's node cases give what the committed table says, or better."""

from collections.abc import Iterable

import pytest

from tests.oracles.outcome import is_worse, kind_of
from tests.oracles.pool import outcomes

from .cases import Case, a_part_of, all_cases
from .contenders import SERVICE
from .table import read_table
from .together import SERVICE as TOGETHER
from .together import groups_of


def steps_back(cases: Iterable[Case]) -> list[str]:
    """What became worse than the table says, and models of many cases that fail though each of their cases passes."""
    rows, chosen = read_table(), [*cases]
    groups = groups_of(case for case in chosen if rows[case.name]["ours"] == "pass")
    joint = [(group, str(outcome)) for group, outcome in outcomes(TOGETHER, groups)]
    right = {case.name for group, outcome in joint if outcome == "pass" for case in group}
    alone = [("ours", case) for case in chosen if case.name not in right]
    results = {case.name: str(outcome) for (_, case), outcome in outcomes(SERVICE, alone)}
    worse = {name for name, outcome in results.items() if is_worse(outcome, rows[name]["ours"])}
    return [f"{name}: {rows[name]['ours']} -> {results[name]}" for name in sorted(worse)] + [
        f"{[case.name for case in group]}: {outcome}" for group, outcome in joint if outcome != "pass"
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
