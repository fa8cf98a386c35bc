"""Mutants are the same each time, of all mutators, and really changed."""

import collections
from random import Random

import numpy as np
import onnx
import pytest

from . import bytes_mutators, external_mutators, graph_mutators, nesting_mutators, tensor_mutators
from .json_mutators import mutated
from .models import all_models
from .mutants import mutant
from .reference import difference
from .seeds import all_seeds

ALL = (bytes_mutators, external_mutators, graph_mutators, nesting_mutators, tensor_mutators)


def test_a_number_is_always_the_same_file() -> None:
    for number in (0, 5, 17, 123):
        first, second = mutant(6, number), mutant(6, number)
        assert (first.model, first.entries, first.how) == (second.model, second.entries, second.how)
        assert mutant(7, number).model != first.model


def test_every_mutator_is_used() -> None:
    used = collections.Counter(name for number in range(3000) for name in mutant(6, number).how)
    assert set(used) == {mutator.__name__ for family in ALL for mutator in family.MUTATORS}


def test_seeds_are_many_kinds_of_models() -> None:
    models, cases = all_seeds()
    assert len(models) > 20 and len(cases) > 250
    operators = {node.op_type for seed in cases for node in onnx.ModelProto.FromString(seed.model).graph.node}
    assert len(operators) > 130
    assert {name for seed in models for name in seed.files} == {"weights.bin", "more/tail.bin"}


@pytest.mark.parametrize("name", sorted(all_models()))
def test_models_are_valid(name: str) -> None:
    onnx.checker.check_model(all_models()[name], full_check=True)


def test_wire_fields_are_found_on_all_levels() -> None:
    data = all_models()["chain"].SerializeToString()
    texts = {data[value:end] for _, kind, _, value, end in bytes_mutators._fields(data) if kind == 2}
    assert {b"Mul", b"x", b"a"} <= texts


def test_json_mutants_are_odd_but_mostly_json() -> None:
    texts = [mutated('{"a": [1, {"b": "c"}], "d": 2.5}', Random(seed)) for seed in range(200)]
    assert len(set(texts)) > 100


F = np.float32([1.0, np.nan, np.inf, 3e38])


@pytest.mark.parametrize(
    ("outputs", "wanted", "part"),
    [
        (F, F, ""),
        (F[:2] * np.float32(1.0005), F[:2], ""),
        (F[:1] * np.float32(1.1), F[:1], "1 of 1"),
        (np.float32([np.inf]), np.float32([3e38]), ""),  # which of two ways overflows first is no matter
        (np.float32([np.nan]), np.float32([2.0]), "nan for 2.0"),
        (np.float32([2.0]), np.float32([np.nan]), "2.0 for nan"),
        (np.int64([4]), np.int64([5]), "1 of 1"),
        (np.int64([4]), np.int32([4]), "int64"),
        (np.zeros(2), np.zeros(3), "(2,)"),
    ],
)
def test_outputs_are_judged(outputs: np.ndarray, wanted: np.ndarray, part: str) -> None:
    reason = difference([outputs], [wanted])
    assert part in reason and bool(part) == bool(reason)
