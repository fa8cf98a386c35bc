"""Sums over no elements are what they start from, whatever was in memory before."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.onnx_graphs import model, node, value


def check(nodes: list[Any], feeds: dict[str, np.ndarray], wanted: dict[str, np.ndarray], weights: Any = None) -> None:
    """Outputs of a program that runs on memory that is full of other numbers."""
    inputs, outputs = (
        [value(name, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for name, a in arrays.items()]
        for arrays in (feeds, wanted)
    )
    compiled = tvm_ext.compile(model(nodes, inputs, outputs, weights), cache=False)
    np.full(1 << 16, np.nan).sum()  # freed at once: what is allocated next is no zeros
    results = compiled.run(feeds)
    for name, expected in wanted.items():
        np.testing.assert_array_equal(results[name], expected, err_msg=name)
        assert results[name].dtype == expected.dtype


EXPECTED = {
    "ReduceL1": 0, "ReduceL2": 0, "ReduceSumSquare": 0, "ReduceProd": 1, "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceMean": np.nan,
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "shape", "axes"), [
    ("float32", (5, 0), [1]), ("float32", (0, 3, 7), [0]), ("float64", (2, 0, 3), [0, 1, 2]), ("float16", (5, 0), [1]),
])  # fmt: skip
def test_reductions(dtype: str, shape: tuple[int, ...], axes: list[int]) -> None:
    x = np.zeros(shape, dtype)
    left = x.sum(tuple(axes)).shape
    nodes = [node(op_type, "x", op_type, axes=axes, keepdims=0) for op_type in EXPECTED]
    check(nodes, {"x": x}, {op_type: np.full(left, number, dtype) for op_type, number in EXPECTED.items()})


PRODUCTS = [
    ("MatMul", (4, 0), (0, 5), (4, 5)), ("MatMul", (3, 4, 0), (3, 0, 5), (3, 4, 5)), ("MatMul", (0,), (0,), ()),
    ("Gemm", (4, 0), (0, 5), (4, 5)), ("Conv", (1, 0, 4, 5), (2, 0, 3, 3), (1, 2, 2, 3)),
    ("Conv", (1, 0, 7), (2, 0, 3), (1, 2, 5)), ("Conv", (1, 0, 3, 3, 3), (2, 0, 2, 2, 2), (1, 2, 2, 2, 2)),
    ("ConvTranspose", (1, 0, 3, 3), (0, 2, 2, 2), (1, 2, 4, 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "constant"), [("float32", False), ("float32", True), ("float64", True), ("float16", False)]
)
def test_products(dtype: str, constant: bool) -> None:
    nodes, feeds, weights, wanted = [], {}, {}, {}
    for i, (op_type, a, b, shape) in enumerate(PRODUCTS):
        nodes += [node(op_type, f"a{i} b{i}", f"z{i}"), node("Sigmoid", f"z{i}", f"y{i}")]
        feeds[f"a{i}"], wanted[f"y{i}"] = np.zeros(a, dtype), np.full(shape, 0.5, dtype)
        (weights if constant else feeds)[f"b{i}"] = np.zeros(b, dtype)
    check(nodes, feeds, wanted, weights)


def test_a_bias_behind_a_convolution_of_no_channels() -> None:
    feeds = {"a": np.zeros((1, 0, 4, 4), "float32"), "c": np.array([1, 2], "float32")}
    wanted = np.broadcast_to(np.float32([1, 2]).reshape(1, 2, 1, 1), (1, 2, 2, 2))
    check([node("Conv", "a b c", "y")], feeds, {"y": wanted}, {"b": np.zeros((2, 0, 3, 3), "float32")})
