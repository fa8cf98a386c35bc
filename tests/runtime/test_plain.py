"""Dataclasses as plain values and back: lists or names, and everything that is of another type refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from tvm_ext.core.errors import ArtifactError, OptionError
from tvm_ext.runtime.plain import read, reading, row


@dataclass(frozen=True)
class Matrix:
    lines: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Part:
    name: str
    shape: tuple[int | str, ...]
    at: tuple[int, int] | None = None
    matrix: Matrix = Matrix(())
    facts: Mapping[str, Any] = field(default_factory=dict)


class Pair(NamedTuple):
    first: int
    second: float = 0.5
    third: str = ""


EXAMPLE = Part("x", (1, "N"), (3, 4), Matrix(((1.0, 2.0), (0.5, 1e300))), {"deep": [{"a": None}]})


def test_there_and_back_through_json() -> None:
    plain = json.loads(json.dumps(row(EXAMPLE)))
    assert plain == ["x", [1, "N"], [3, 4], [[1.0, 2.0], [0.5, 1e300]], {"deep": [{"a": None}]}]
    assert read(Part, plain) == EXAMPLE
    assert read(tuple[Part, ...], [plain, ["y", [], None, [[2]], {}]]) == (
        EXAMPLE,
        Part("y", (), None, Matrix(((2.0,),))),
    )


def test_floats_that_json_has_not_are_words() -> None:
    assert read(tuple[float, ...], ["inf", "-inf", 1]) == (float("inf"), -float("inf"), 1.0)
    assert str(read(float, "nan")) == "nan"


def test_fields_may_stand_by_name() -> None:
    assert read(Part, {"name": "x", "shape": [True]} | {"shape": [2]}) == Part("x", (2,))
    assert read(Part, {"name": "x", "shape": [], "later": 1}) == Part("x", ())
    assert read(Pair, {"first": 1}) == Pair(1) and read(tuple[Pair, ...], [[1, 2, "x"]]) == (Pair(1, 2.0, "x"),)
    assert read(Mapping[str, Part], {"a": {"name": "x", "shape": []}}) == {"a": Part("x", ())}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True), (int, 1.0), (int, "1"), (bool, 1), (float, True), (float, "1"), (str, None), (str, b""),
        (tuple[int, ...], "12"), (tuple[int, ...], {}), (tuple[int, int], [1]), (int | str, True), (int | str, None),
        (int | None, "1"), (Mapping[str, int], []), (Mapping[str, int], {"a": "b"}), (Mapping[str, int], {1: 1}),
        (Part, "xy"), (Part, ["x"]), (Part, {"name": "x"}), (Pair, [1]), (Pair, {"second": 1}), (Part, None),
        (Matrix, [1]), (Matrix, None), (float, 10**400),
    ],
)  # fmt: skip
def test_another_type_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        read(kind, value)


@pytest.mark.parametrize(
    "error", [KeyError("ops"), IndexError(), TypeError("x" * 9999), ValueError(), OverflowError(), AttributeError()]
)
def test_values_of_a_damaged_report_are_an_error_of_the_artifact(error: Exception) -> None:
    with pytest.raises(ArtifactError, match=r"report\['offload'\]") as caught, reading("offload"):
        raise error
    assert caught.value.__cause__ is error and len(str(caught.value)) < 1000
    for other in (OptionError("no such batch"), RuntimeError()):
        with pytest.raises(type(other)) as same, reading("offload"):
            raise other
        assert same.value is other
