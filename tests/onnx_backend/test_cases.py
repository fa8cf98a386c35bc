"""ONNX's node cases give what the committed table says, or better."""

from collections.abc import Iterable

import numpy as np
import onnx
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


def test_most_of_what_onnxruntime_passes_passes_and_the_rest_is_of_strings():
    able = {name: row["ours"] for name, row in read_table().items() if row["onnxruntime"] == "pass"}
    left = [outcome for outcome in able.values() if outcome != "pass"]
    assert len(left) <= 0.013 * len(able)
    assert all("STRING" in outcome for outcome in left), left


def test_a_part_is_no_worse_than_the_table():
    chosen = a_part_of(all_cases())
    assert 150 < len(chosen) < 250
    assert steps_back(all_cases()[name] for name in sorted(chosen)) == []


def kind_of_case(case: Case) -> str:
    """What a case shares with those of its kind: nodes, dtypes and ranks, and values that decide or are few."""
    model = onnx.ModelProto.FromString(case.model)
    nodes = [(n.op_type, [bool(name) for name in n.input], [str(a) for a in n.attribute]) for n in model.graph.node]
    inputs = []
    for value, x in zip(model.graph.input, case.inputs, strict=True):
        x = x if isinstance(x, np.ndarray) else np.empty(0, object)
        told = value.name in case.frozen or (x.dtype.kind in "iu" and x.size <= 8)
        inputs.append(str(x) if told else (x.dtype.name, x.ndim))
    return str((nodes, inputs, [(o.domain, o.version) for o in model.opset_import]))


@pytest.mark.long
def test_the_others_of_operators_are_no_worse_than_the_table():
    """One of each kind. Of the functions that define them, expanded to the same few operators, the part is enough."""
    part = a_part_of(all_cases())
    known = {kind_of_case(all_cases()[name]) for name in part}
    others = {kind_of_case(case): case for name, case in all_cases().items() if case.plain}
    chosen = [case for kind, case in others.items() if kind not in known]
    assert len(chosen) > 600
    assert steps_back(chosen) == []
