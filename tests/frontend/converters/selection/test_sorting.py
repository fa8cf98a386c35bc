"""TopK of every dtype that sorts, against numpy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.frontend.converters.typed import compiled
from tests.frontend.graphs import model, node, value

OTHERS = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]


def both_ends(x: np.ndarray, k: int, **attributes: int) -> tuple[Any, Any]:
    """(numbers, places) of the least k of each row, and of the largest."""
    code, shape = helper.np_dtype_to_tensor_dtype(x.dtype), (len(x), k)
    nodes = [node("TopK", ["x", "k"], [f"y{end}", f"i{end}"], largest=end, **attributes) for end in (0, 1)]
    outputs = [value(f"{name}{end}", shape, kind) for end in (0, 1) for name, kind in (("y", code), ("i", 7))]
    proto = model(nodes, [value("x", x.shape, code)], outputs, {"k": np.array([k])}, 24)
    least, least_at, most, most_at = tvm_ext.compile(proto, cache=False).run({"x": x}).values()
    assert least.dtype == most.dtype == x.dtype
    return (least, least_at), (most, most_at)


@pytest.mark.parametrize("dtype", ["uint64", "bfloat16", *(pytest.param(d, marks=pytest.mark.long) for d in OTHERS)])
def test_top_k(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(9)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (3, 13), kind, endpoint=True)
        x[0, :4] = [info.min, info.max, info.max, info.min]
    else:
        x = rng.normal(0, 3, (3, 13)).astype(kind)
    numbers = [[int(v) if kind.kind in "iu" else float(v) for v in row] for row in x]
    for sign, (outputs, places) in zip((1, -1), both_ends(x, 5, sorted=0), strict=True):
        order = np.array([sorted(range(13), key=lambda c, row=row: (sign * row[c], c))[:5] for row in numbers])
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(outputs, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nan_is_the_largest_number(dtype: str) -> None:
    """As in onnxruntime and numpy; the numbers beside it keep their order, zeros of both signs are one."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.random.default_rng(4).normal(0, 2, (5, 11)).astype(kind)
    x[:, ::3] = np.nan
    x[1], x[2, :4] = np.nan, -np.inf
    x[3, 1], x[3, 2], x[4, 4], x[4, 5] = 0.0, -0.0, np.inf, np.nan
    keys = [[(np.isnan(v), 0.0 if np.isnan(v) else float(v)) for v in row] for row in x]
    for sign, (outputs, places) in zip((1, -1), both_ends(x, 11), strict=True):
        order = [
            sorted(range(11), key=lambda c, row=row, sign=sign: (sign * row[c][0], sign * row[c][1], c)) for row in keys
        ]
        np.testing.assert_array_equal(places, order)
        wanted = np.take_along_axis(x, np.array(order), 1)
        np.testing.assert_array_equal(outputs.astype("float64"), wanted.astype("float64"))


@pytest.mark.parametrize(("opset", "dtype"), [(9, "float32"), (10, "float16"), (11, "float32")])
def test_how_many_as_an_attribute_or_an_input(opset: int, dtype: str) -> None:
    x = np.random.default_rng(3).permutation(18).reshape(3, 6).astype(dtype)
    known, inputs = ({"k": 2}, ["x"]) if opset < 10 else ({}, ["x", "k"])
    axes, weights = (0, 1, -1), {} if known else {"k": np.array([2])}
    nodes = [node("TopK", inputs, [f"y{axis}", f"i{axis}"], axis=axis, **known) for axis in axes]
    kinds = {f"{name}{axis}": kind for axis in axes for name, kind in (("y", dtype), ("i", "int64"))}
    outputs = compiled(nodes, {"x": x}, kinds, opset, weights)
    for axis in axes:
        order = np.take(np.argsort(-x, axis), range(2), axis)
        np.testing.assert_array_equal(outputs[f"i{axis}"], order)
        np.testing.assert_array_equal(outputs[f"y{axis}"], np.take_along_axis(x, order, axis))
