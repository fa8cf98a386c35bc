"""TopK of every dtype that sorts, against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.frontend.converters.typed import compiled
from tests.frontend.graphs import model, node, value

OTHERS = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["uint64", "bfloat16", *(pytest.param(d, marks=pytest.mark.long) for d in OTHERS)])
def test_top_k(dtype: str, largest: int) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(9)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (3, 13), kind, endpoint=True)
        x[0, :4] = [info.min, info.max, info.max, info.min]
    else:
        x = rng.normal(0, 3, (3, 13)).astype(kind)
    code = helper.np_dtype_to_tensor_dtype(kind)
    nodes = [node("TopK", ["x", "k"], ["y", "i"], largest=largest, sorted=0)]
    outputs = [value("y", [3, 5], code), value("i", [3, 5], TensorProto.INT64)]
    proto = model(nodes, [value("x", [3, 13], code)], outputs, {"k": np.array([5])}, 24)
    found = tvm_ext.compile(proto, cache=False).run({"x": x})
    numbers = [[int(v) if kind.kind in "iu" else float(v) for v in row] for row in x]
    keys = [[-v if largest else v for v in row] for row in numbers]
    order = np.array([sorted(range(13), key=lambda c, row=row: (row[c], c))[:5] for row in keys])
    np.testing.assert_array_equal(found["i"], order)
    np.testing.assert_array_equal(found["y"], np.take_along_axis(x, order, 1))
    assert found["y"].dtype == kind


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nan_is_the_largest_number(dtype: str, largest: int) -> None:
    """As in onnxruntime and numpy; the numbers beside it keep their order, zeros of both signs are one."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.random.default_rng(4).normal(0, 2, (5, 11)).astype(kind)
    x[:, ::3] = np.nan
    x[1], x[2, :4] = np.nan, -np.inf
    x[3, 1], x[3, 2], x[4, 4], x[4, 5] = 0.0, -0.0, np.inf, np.nan
    code = helper.np_dtype_to_tensor_dtype(kind)
    outputs = [value("y", x.shape, code), value("i", x.shape, TensorProto.INT64)]
    nodes = [node("TopK", ["x", "k"], ["y", "i"], largest=largest)]
    proto = model(nodes, [value("x", x.shape, code)], outputs, {"k": np.array([11])}, 24)
    found = tvm_ext.compile(proto, cache=False).run({"x": x})
    keys = [[(np.isnan(v), 0.0 if np.isnan(v) else float(v)) for v in row] for row in x]
    sign = -1 if largest else 1
    order = [sorted(range(11), key=lambda c, row=row: (sign * row[c][0], sign * row[c][1], c)) for row in keys]
    np.testing.assert_array_equal(found["i"], order)
    np.testing.assert_array_equal(
        found["y"].astype("float64"), np.take_along_axis(x, np.array(order), 1).astype("float64")
    )


@pytest.mark.parametrize("opset", [9, 10, 11])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_how_many_as_an_attribute_or_an_input(opset: int, axis: int, dtype: str) -> None:
    x = np.random.default_rng(3).permutation(18).reshape(3, 6).astype(dtype)
    known, inputs = ({"k": 2}, ["x"]) if opset < 10 else ({}, ["x", "k"])
    nodes = [node("TopK", inputs, ["y", "i"], axis=axis, **known)]
    weights = {} if known else {"k": np.array([2])}
    found = compiled(nodes, {"x": x}, {"y": dtype, "i": "int64"}, opset, weights)
    order = np.take(np.argsort(-x, axis), range(2), axis)
    np.testing.assert_array_equal(found["i"], order)
    np.testing.assert_array_equal(found["y"], np.take_along_axis(x, order, axis))
