"""Values as callers have them, and the tensors that they are."""

from typing import Any

import numpy as np
import pytest

from tvm_ext.core.errors import InputError
from tvm_ext.runtime.interface import TensorSpec
from tvm_ext.runtime.values import Value, described, plain_values, spread, tensors_of, values_of

SEQ = Value("seq", "sequence", "seq(tensor(float))", ("seq[0]", "seq[1]"))
NONE = Value("gone", "absent", "optional(tensor(float))", ())
THERE = Value("opt", "tensor", "optional(tensor(float))", ("opt",))
EMPTY = Value("empty", "sequence", "seq(tensor(int64))", ())
X = Value("x", "tensor", "tensor(float)", ("x",))
ALL = (SEQ, NONE, THERE, EMPTY, X)
A, B, C, D = (np.full(n, n, np.float32) for n in range(1, 5))
TENSORS = {"seq[0]": A, "seq[1]": B, "opt": C, "x": D}


@pytest.mark.parametrize("absent", [{}, {"gone": None}, {"empty": []}, {"gone": None, "empty": ()}])
@pytest.mark.parametrize("seq", [{"seq": [A, B]}, {"seq": (A, B)}, {"seq[0]": A, "seq[1]": B}])
def test_values_are_taken_apart(seq: dict[str, Any], absent: dict[str, Any]) -> None:
    tensors = tensors_of({**seq, "opt": C, "x": D, **absent}, ALL)
    assert tensors.keys() == TENSORS.keys() and all(tensors[name] is TENSORS[name] for name in TENSORS)


def test_values_are_put_together() -> None:
    values = values_of(TENSORS, ALL)
    assert list(values) == ["seq", "gone", "opt", "empty", "x"]
    assert values["seq"][0] is A and values["seq"][1] is B and len(values["seq"]) == 2
    assert values["gone"] is None and values["opt"] is C and values["empty"] == [] and values["x"] is D
    assert {name: id(x) for name, x in spread(values).items()} == {name: id(x) for name, x in TENSORS.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seq": [A]}, ("'seq', seq(tensor(float))", "has 1 elements", "takes 2", "shapes={'seq'")),
        ({"seq": A}, ("'seq'", "is ndarray", "a list of 2 arrays")),
        ({"seq": None}, ("'seq'", "is NoneType", "a list of 2 arrays")),
        ({"empty": [A]}, ("'empty'", "has 1 elements", "takes 0")),
        ({"gone": A}, ("'gone', optional(tensor(float))", "is ndarray", "pass None")),
        ({"opt": None}, ("'opt'", "is None", "shapes={'opt': None}")),
        ({"more": A}, ("unknown ['more']",)),
        ({"seq[0]": A}, ("unknown ['seq[0]']",)),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        tensors_of({"seq": [A, B], "opt": C, "x": D, **change}, ALL)
    text = f"{caught.value.message} {caught.value.fix}"
    assert all(word in text for word in words), text


@pytest.mark.parametrize("left", [{"opt": C, "x": D}, {"seq[0]": A, "opt": C, "x": D}, {"seq": [A, B], "opt": C}])
def test_what_is_missing_is_named(left: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="'x'" if "seq" in left else "'seq'"):
        tensors_of(left, ALL)


def test_texts_and_plain_ones() -> None:
    specs = [TensorSpec(name, x.shape, "float32") for name, x in TENSORS.items()]
    assert dict(described(ALL, specs)) == {
        "seq": "[float32[1], float32[2]]", "gone": "None", "opt": "float32[3]", "empty": "[]", "x": "float32[4]"
    }  # fmt: skip
    (half, wide) = plain_values([TensorSpec("a", (1,), "float16"), TensorSpec("b", (1,), "float64")])
    assert half == Value("a", "tensor", "tensor(float16)", ("a",)) and wide.type == "tensor(double)"
