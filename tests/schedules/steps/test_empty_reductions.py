"""Sums over no elements are what they start from, whatever was in memory before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.onnx_graphs import model, node, value


def run(nodes: list[Any], feeds: dict[str, np.ndarray], shape: tuple[int, ...], weights: Any = None) -> np.ndarray:
    """The output y, of a program that ran before on memory that is full of other numbers."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    inputs = [value(name, array.shape, kinds[name]) for name, array in feeds.items()]
    proto = model(nodes, inputs, [value("y", shape, next(iter(kinds.values())))], weights)
    compiled = tvm_ext.compile(proto, cache=False)
    np.full(1 << 16, np.nan).sum()  # freed at once: what is allocated next is no zeros
    return compiled.run(feeds)["y"]


@pytest.mark.parametrize(("op_type", "expected"), [
    ("ReduceL1", 0), ("ReduceL2", 0), ("ReduceSumSquare", 0), ("ReduceProd", 1), ("ReduceLogSum", -np.inf),
    ("ReduceLogSumExp", -np.inf), ("ReduceMax", -np.inf), ("ReduceMin", np.inf), ("ReduceMean", np.nan),
])  # fmt: skip
@pytest.mark.parametrize(("dtype", "shape", "axes"), [
    ("float32", (5, 0), [1]), ("float32", (0, 3, 7), [0]), ("float64", (2, 0, 3), [0, 1, 2]), ("float16", (5, 0), [1]),
])  # fmt: skip
def test_reductions(dtype: str, op_type: str, expected: float, shape: tuple[int, ...], axes: list[int]) -> None:
    x = np.zeros(shape, dtype)
    wanted = np.full(x.sum(tuple(axes)).shape, expected, dtype)
    got = run([node(op_type, "x", "y", axes=axes, keepdims=0)], {"x": x}, wanted.shape)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "constant"), [("float32", False), ("float32", True), ("float64", True), ("float16", False)]
)
@pytest.mark.parametrize(("op_type", "a", "b", "shape"), [
    ("MatMul", (4, 0), (0, 5), (4, 5)), ("MatMul", (3, 4, 0), (3, 0, 5), (3, 4, 5)), ("MatMul", (0,), (0,), ()),
    ("Gemm", (4, 0), (0, 5), (4, 5)), ("Conv", (1, 0, 4, 5), (2, 0, 3, 3), (1, 2, 2, 3)),
    ("Conv", (1, 0, 7), (2, 0, 3), (1, 2, 5)), ("Conv", (1, 0, 3, 3, 3), (2, 0, 2, 2, 2), (1, 2, 2, 2, 2)),
    ("ConvTranspose", (1, 0, 3, 3), (0, 2, 2, 2), (1, 2, 4, 4)),
])  # fmt: skip
def test_products(dtype: str, constant: bool, op_type: str, a: Any, b: Any, shape: Any) -> None:
    feeds = {"a": np.zeros(a, dtype), "b": np.zeros(b, dtype)}
    weights = {"b": feeds.pop("b")} if constant else None
    got = run([node(op_type, "a b", "z"), node("Sigmoid", "z", "y")], feeds, shape, weights)
    np.testing.assert_array_equal(got, np.full(shape, 0.5, dtype))


def test_a_bias_behind_a_convolution_of_no_channels() -> None:
    feeds = {"a": np.zeros((1, 0, 4, 4), "float32"), "c": np.array([1, 2], "float32")}
    got = run([node("Conv", "a b c", "y")], feeds, (1, 2, 2, 2), {"b": np.zeros((2, 0, 3, 3), "float32")})
    np.testing.assert_array_equal(got, np.broadcast_to(np.reshape([1, 2], (1, 2, 1, 1)), (1, 2, 2, 2)))
