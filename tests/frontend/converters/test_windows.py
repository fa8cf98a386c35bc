"""Pooling with auto_pad against onnxruntime, and the indices of MaxPool."""

import numpy as np
import pytest
from onnx import TensorProto

import tvm_ext

from ..graphs import check_numbers, model, node, value


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [(2, 3), (3, 4)])
def test_same_padding_of_odd_sizes(op_type, mode, kernel):
    x = np.random.default_rng(1).standard_normal((2, 3, 10, 11)).astype("float32")
    for strides in ([1, 1], [2, 2], [3, 2]):
        shape = (2, 3, *(-(-d // s) for d, s in zip(x.shape[2:], strides, strict=True)))
        nodes = [node(op_type, ["x"], ["y"], kernel_shape=kernel, strides=strides, auto_pad=mode)]
        check_numbers(model(nodes, [value("x", x.shape)], [value("y", shape)]), {"x": x})


@pytest.mark.parametrize("x", [np.zeros((1, 2, 5, 5), "uint8"), np.full((1, 2, 5, 5), -np.inf, "float32")])
def test_the_index_of_the_least_value_there_is(x):
    """Nothing is less than a window of it, not even what a maximum starts from."""
    kind = TensorProto.UINT8 if x.dtype == np.uint8 else TensorProto.FLOAT
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])]
    outputs = [value("y", (1, 2, 4, 4), kind), value("i", (1, 2, 4, 4), TensorProto.INT64)]
    found = tvm_ext.compile(model(nodes, [value("x", x.shape, kind)], outputs), cache=False).run({"x": x})
    first = np.arange(50).reshape(1, 2, 5, 5)[:, :, :4, :4]
    np.testing.assert_array_equal(found["i"], first)
    np.testing.assert_array_equal(found["y"], x[:, :, :4, :4])


@pytest.mark.parametrize("x", [np.zeros((1, 2, 6, 7), "uint8"), np.full((1, 2, 6, 7), -np.inf, "float32")])
def test_padding_is_no_place_of_a_least_value(x):
    """Windows with holes have taps in the padding whose nearest pixel is none of theirs."""
    kind = TensorProto.UINT8 if x.dtype == np.uint8 else TensorProto.FLOAT
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 1, 1, 1])]
    outputs = [value("y", x.shape, kind), value("i", x.shape, TensorProto.INT64)]
    found = tvm_ext.compile(model(nodes, [value("x", x.shape, kind)], outputs), cache=False).run({"x": x})
    rows, columns = (np.where(np.arange(d) > 0, np.arange(d) - 1, 1) for d in x.shape[2:])  # -1 is padding, so +1
    first = rows[:, None] * 7 + columns
    np.testing.assert_array_equal(found["i"], np.stack([first, first + 42])[None])
