"""Integers divided by what may be 0: nothing ends the process, other quotients are numpy's."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.frontend.graphs import check_numbers, imported, model, node, value
from tests.passes.stages import agrees
from tvm_ext.core.errors import UnsupportedError

DTYPES = ["int64", "uint8", "int8", "int32", "uint32", "uint64"]


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(dtype)
    edges = np.array(sorted({int(info.min), int(info.max), 0, 1, 7, *((-1, -7) if info.min else ())}), dtype)
    return np.repeat(edges, len(edges)), np.tile(edges, len(edges))


def quotient(a: Any, b: Any, info: Any) -> int:
    """Towards 0, modulo the width of the type; 0 by 0."""
    a, b = int(a), int(b)
    exact = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return (exact - int(info.min)) % (1 << info.bits) + int(info.min)


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_and_remainders(dtype: str) -> None:
    a, b = operands(dtype)
    nodes = [node("Div", ["a", "b"], ["q"]), *(node("Mod", ["a", "b"], [f"m{fmod}"], fmod=fmod) for fmod in (0, 1))]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [value(name, a.shape, kind) for name in ("a", "b", "q", "m0", "m1")]
    outputs = tvm_ext.compile(model(nodes, ends[:2], ends[2:]), cache=False).run({"a": a, "b": b})
    np.testing.assert_array_equal(outputs["q"], [quotient(n, d, np.iinfo(dtype)) for n, d in zip(a, b, strict=True)])
    for name, remainder in (("m0", np.mod), ("m1", np.fmod)):
        with np.errstate(all="ignore"):
            wanted = np.where(b == 0, 0, remainder(a, b))
        np.testing.assert_array_equal(outputs[name], wanted.astype(dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_least_integer_over_minus_one_is_below_0(dtype: str) -> None:
    """As it wraps; LLVM must not take it for the positive number that no integer of the type is."""
    kind, least = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), np.array([np.iinfo(dtype).min, 6], dtype)
    nodes = [node("Div", ["a", "b"], ["q"]), node("Less", ["q", "zero"], ["y"])]
    ends = [value("a", [2], kind), value("b", [2], kind)], [value("y", [2], 9)]
    proto = model(nodes, *ends, {"zero": np.zeros((), dtype)})
    outputs = tvm_ext.compile(proto, cache=False).run({"a": least, "b": np.array([-1, -1], dtype)})
    np.testing.assert_array_equal(outputs["y"], [True, True])


def test_integers_are_divided_beside_floats() -> None:
    """Two kernels by one name: the converter's, and that of the group."""
    a, b = np.array([[7, -8, 9]], np.int32), np.array([[2, 3, -4]], np.int32)
    nodes = [node("Div", ["a", "b"], ["q"]), node("Div", ["x", "z"], ["y"])]
    kinds = {"a": 6, "b": 6, "x": 1, "z": 1, "q": 6, "y": 1}
    ends = [value(name, a.shape, kind) for name, kind in kinds.items()]
    feeds = {"a": a, "b": b, "x": a.astype(np.float32), "z": b.astype(np.float32)}
    outputs = tvm_ext.compile(model(nodes, ends[:4], ends[4:]), cache=False).run(feeds)
    np.testing.assert_array_equal(outputs["q"], [[3, -2, -2]])
    np.testing.assert_allclose(outputs["y"], a / b, rtol=1e-6)


def test_a_division_in_a_branch_that_is_not_taken() -> None:
    then = helper.make_graph([node("Div", ["a", "b"], ["q"])], "then", [], [value("q", [3], 7)])
    other = helper.make_graph([node("Add", ["a", "b"], ["q"])], "else", [], [value("q", [3], 7)])
    nodes = [node("ReduceMin", ["b"], ["least"], keepdims=0), node("Greater", ["least", "zero"], ["safe"]),
             node("If", ["safe"], ["y"], then_branch=then, else_branch=other)]  # fmt: skip
    proto = model(nodes, [value("a", [3], 7), value("b", [3], 7)], [value("y", [3], 7)], {"zero": np.array(0)})
    for b in ([0, 1, 2], [5, 1, 2]):
        agrees(proto, {"a": np.array([7, -8, 9]), "b": np.array(b)})


def test_a_constant_divisor_is_divided_by_as_before() -> None:
    proto = model(
        [node("Div", ["a", "b"], ["y"])], [value("a", [3], 7)], [value("y", [3], 7)], {"b": np.array([2, 3, 4])}
    )
    check_numbers(proto, {"a": np.array([-7, 8, -9])})


def test_a_constant_divisor_of_0_is_refused() -> None:
    proto = model([node("Div", ["a", "b"], ["y"])], [value("a", [1], 7)], [value("y", [1], 7)], {"b": np.array([0])})
    with pytest.raises(UnsupportedError, match=r"'Div:y'"):
        imported(proto)
