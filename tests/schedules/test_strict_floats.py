"""Floats at their edges: NaN, infinities, rounding of sums, in kernels of recipes and in those of TVM's operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.onnx_graphs import model, node, value

NAN, INF = np.nan, np.inf
X = [NAN, INF, -INF, 0.0, -0.0, 1.5, -2.0, 3.0, NAN, 1.0, INF, -INF, 2.5, -0.5, 7.0, -1.0, 0.25]
Y = [1.0, INF, INF, NAN, 0.0, 1.5, NAN, -3.0, NAN, 1e30, -INF, -INF, 1e-30, 3e38, 0.5, -1.0, 0.0]
FLOATS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16}


def run(nodes: Sequence[Any], dtype: str = "float32", out: str = "", **options: Any) -> np.ndarray:
    """The output "z" of nodes on x and y."""
    x, y = values(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(out or dtype))
    inputs = [value(name, x.shape, FLOATS[dtype]) for name in "xy"]
    proto = model(nodes, inputs, [value("z", x.shape, kind)])
    return tvm_ext.compile(proto, cache=False, **options).run({"x": x, "y": y})["z"]


def values(dtype: str) -> list[np.ndarray]:
    with np.errstate(over="ignore"):
        return [np.array(v, "float64").astype(dtype) for v in (X, Y)]


def wanted(function: Any, dtype: str = "float32") -> np.ndarray:
    with np.errstate(all="ignore"):
        return function(*values(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fusion", ["default", "none"])
def test_a_difference_with_itself_is_nan_where_it_is(dtype: str, fusion: str) -> None:
    found = run([node("Sub", "x x", "z")], dtype, fusion=fusion)
    np.testing.assert_array_equal(found, wanted(lambda x, y: x - x, dtype))


@pytest.mark.parametrize(
    ("nodes", "function"),
    [
        ([node("Add", "x y", "s"), node("Sub", "s y", "z")], lambda x, y: (x + y) - y),
        ([node("Add", "x y", "s"), node("Sub", "s x", "z")], lambda x, y: (x + y) - x),
        ([node("Add", "x y", "s"), node("Sub", "x s", "z")], lambda x, y: x - (x + y)),
        ([node("Mul", "x y", "p"), node("Sub", "p p", "z")], lambda x, y: x * y - x * y),
    ],
)
def test_a_sum_is_rounded_before_it_is_taken_apart(nodes: Any, function: Any) -> None:
    found, exact = run(nodes), wanted(function)
    np.testing.assert_array_equal(found, exact)
    assert exact[9] != wanted(lambda x, y: x)[9]  # 1 + 1e30 - 1e30


@pytest.mark.parametrize("alpha", [0.0, -0.0])
def test_zero_times_nan_and_infinity(alpha: float) -> None:
    leaky = run([node("LeakyRelu", "x", "z", alpha=alpha)])
    np.testing.assert_array_equal(leaky, wanted(lambda x, y: np.where(x > 0, x, x * np.float32(alpha))))
    proto = model([node("Mul", "x w", "a"), node("Add", "a y", "z")], [value("x", (17,)), value("y", (17,))],
                  [value("z", (17,))], {"w": np.float32(alpha)})  # fmt: skip
    x, y = np.float32(X), np.float32(Y)
    found = tvm_ext.compile(proto, cache=False).run({"x": x, "y": y})["z"]
    np.testing.assert_array_equal(found, wanted(lambda x, y: x * np.float32(alpha) + y))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("nodes", "function"),
    [
        ([node("Equal", "x x", "z")], lambda x, y: x == x),
        ([node("Less", "x y", "a"), node("Not", "a", "z")], lambda x, y: ~(x < y)),
        ([node("GreaterOrEqual", "x y", "a"), node("Not", "a", "z")], lambda x, y: ~(x >= y)),
        ([node("Less", "x y", "a"), node("GreaterOrEqual", "x y", "b"), node("Or", "a b", "z")],
         lambda x, y: (x < y) | (x >= y)),
        ([node("Less", "x y", "a"), node("GreaterOrEqual", "x y", "b"), node("Xor", "a b", "z")],
         lambda x, y: (x < y) ^ (x >= y)),
    ],
)  # fmt: skip
def test_comparisons_with_nan(nodes: Any, function: Any, dtype: str) -> None:
    np.testing.assert_array_equal(run(nodes, dtype, "bool"), wanted(function, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "function"), [("Max", np.maximum), ("Min", np.minimum)])
def test_extremes_of_two_with_nan(op: str, function: Any, dtype: str) -> None:
    np.testing.assert_array_equal(run([node(op, "x y", "z")], dtype), wanted(function, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "function"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
@pytest.mark.parametrize("axes", [[0], [1], [2], [1, 2]])
@pytest.mark.parametrize("fusion", ["default", "none"])
def test_extremes_of_nan_and_of_nothing_but_infinity(
    op: str, function: Any, axes: Any, dtype: str, fusion: str
) -> None:
    x = np.random.default_rng(3).standard_normal((3, 5, 19)).astype(dtype)
    x[0] = -INF
    x[1] = INF
    x[2, 1, ::3] = NAN
    x[2, 4, 0] = -INF
    shape = [d for a, d in enumerate(x.shape) if a not in axes]
    proto = model([node(op, "x", "y", axes=axes, keepdims=0)], [value("x", x.shape, FLOATS[dtype])],
                  [value("y", shape, FLOATS[dtype])])  # fmt: skip
    found = tvm_ext.compile(proto, cache=False, fusion=fusion).run({"x": x})["y"]
    np.testing.assert_array_equal(found, function(x, axis=tuple(axes)))


@pytest.mark.parametrize("spatial", [(9,), (9, 8), (5, 6, 4)], ids=str)
@pytest.mark.parametrize("channels", [3, 16])
def test_max_pooling_of_nothing_but_infinity(spatial: tuple[int, ...], channels: int) -> None:
    rank = len(spatial)
    x = np.random.default_rng(4).standard_normal((1, channels, *spatial)).astype("float32")
    x[:, 0] = -INF
    proto = model([node("MaxPool", "x", "y", kernel_shape=[3] * rank, pads=[1] * 2 * rank)],
                  [value("x", x.shape)], [value("y", x.shape)])  # fmt: skip
    found = tvm_ext.compile(proto, cache=False).run({"x": x})["y"]
    padded = np.pad(x, [(0, 0), (0, 0)] + [(1, 1)] * rank, constant_values=-INF)
    windows = np.lib.stride_tricks.sliding_window_view(padded, [3] * rank, tuple(range(2, 2 + rank)))
    np.testing.assert_array_equal(found, windows.max(axis=tuple(range(-rank, 0))))


def test_the_largest_number_itself_stays() -> None:
    """A kernel without a maximum keeps a constant that is the largest finite number."""
    low = np.float32(np.finfo(np.float32).min)
    proto = model([node("Clip", "x w", "z")], [value("x", (17,), TensorProto.FLOAT)], [value("z", (17,))], {"w": low})
    found = tvm_ext.compile(proto, cache=False, fusion="none").run({"x": np.float32(X)})["z"]
    np.testing.assert_array_equal(found, wanted(lambda x, y: np.maximum(x, low)))
