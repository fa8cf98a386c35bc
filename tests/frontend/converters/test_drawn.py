"""What graphs drawn from ONNX's schemas got wrong: dtypes, ranks and attributes that models seldom have."""

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tvm_ext.core.errors import UnsupportedError

from ..graphs import check_numbers, imported, model, node, value
from .typed import compiled

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
INTS = np.array([[-7, 0, 3], [12, -1, 5]])
WIDE = RNG.standard_normal(9)


def one_node(op_type: str, x: np.ndarray, dtype: Any, opset: int, weights: Any = (), **attributes: Any) -> np.ndarray:
    """What a compiled node makes of x and of initializers."""
    names = [f"w{i}" for i in range(len(weights))]
    one = node(op_type, ["x", *names], ["y"], **attributes)
    return compiled([one], {"x": x}, {"y": np.dtype(dtype).name}, opset, dict(zip(names, weights, strict=True)))["y"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(
    ("op_type", "exact"),
    [
        ("ReduceL1", np.abs),
        ("ReduceL2", lambda x: np.sqrt(np.square(x))),
        ("ReduceSumSquare", np.square),
        ("ReduceLogSum", np.log),
    ],
)
def test_a_sum_over_no_axes_is_still_a_function(op_type: str, exact: Callable[[Any], Any], dtype: str) -> None:
    x = (np.abs(INTS) + 1 if op_type == "ReduceLogSum" else INTS).astype(dtype)
    y = one_node(op_type, x, dtype, 18, noop_with_empty_axes=1)
    np.testing.assert_allclose(y, exact(x.astype(np.float64)).astype(dtype), rtol=1e-6)


def test_norms_and_logarithms_of_integers_are_cut_off() -> None:
    x = np.abs(INTS)
    assert one_node("ReduceL2", x, "int64", 13, axes=[1]).ravel().tolist() == [7, 13]
    assert one_node("ReduceLogSumExp", x, "int64", 13, axes=[1]).ravel().tolist() == [7, 12]


@pytest.mark.parametrize(
    ("op_type", "x", "opset", "wanted", "attributes"),
    [
        ("ArgMax", np.float32(3), 13, np.int64(0), {}),
        ("Sign", np.array([0, 7], np.uint8), 13, np.array([0, 1], np.uint8), {}),
        ("Shrink", np.array([0, 1, 9], np.uint16), 9, np.array([0, 0, 8], np.uint16), {"bias": 0.5}),
        ("IsNaN", np.array([math.nan, 1], ml_dtypes.float8_e4m3fnuz), 20, np.array([True, False]), {}),
        ("LeakyRelu", np.array([-3.0]), 16, np.array([-3.0 * np.float64(np.float32(0.01))]), {}),
        ("HannWindow", np.int64(4), 17, np.array([0, 0.5, 1, 0.5]), {"output_datatype": TensorProto.DOUBLE}),
    ],
)
def test_values(op_type: str, x: Any, opset: int, wanted: Any, attributes: Any) -> None:
    if op_type == "HannWindow":
        nodes = [node(op_type, ["n"], ["w"], **attributes), node("Identity", ["w"], ["y"])]
        y = compiled(nodes, {"x": np.zeros(1)}, {"y": "float64"}, opset, {"n": x})["y"]
    else:
        y = one_node(op_type, np.asarray(x), np.asarray(wanted).dtype, opset, **attributes)
    np.testing.assert_allclose(y, wanted, rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_prelu_of_integers_and_of_any_slope(dtype: str) -> None:
    slope = np.array([[2, 3, 4]], dtype)
    y = one_node("PRelu", INTS.astype(dtype), dtype, 16, [slope])
    np.testing.assert_array_equal(y, np.where(INTS < 0, INTS * slope, INTS))


def test_an_rms_norm_whose_scale_broadcasts() -> None:
    y = one_node("RMSNormalization", X, "float32", 23, [np.float32([1, 2, 3, 4])], axis=1)
    inverse = 1 / np.sqrt(np.square(X.astype(np.float64)).mean((1, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, X * inverse * [1, 2, 3, 4], rtol=1e-6)


def test_pads_of_max_unpool_are_those_before_then_those_behind() -> None:
    x, places = X[:1, :, :, None], np.arange(12).reshape(1, 3, 4, 1)
    proto = model(
        [node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[3, 2], strides=[2, 3], pads=[2, 0, 0, 1])],
        [value("x", x.shape)], [value("y", None)], {"i": places}, 17,
    )  # fmt: skip
    check_numbers(proto, {"x": x})


@pytest.mark.parametrize("op_type", ["RNN", "GRU"])
def test_activations_with_parameters_take_them_in_their_order(op_type: str) -> None:
    """Of both directions, in onnxruntime's way: those without parameters take none."""
    names = ["HardSigmoid", "Elu", "ScaledTanh", "LeakyRelu"] if op_type == "GRU" else ["Affine", "ThresholdedRelu"]
    gates = 3 if op_type == "GRU" else 1
    weights = {"w": RNG.standard_normal((2, 5 * gates, 4)) / 2, "r": RNG.standard_normal((2, 5 * gates, 5)) / 2}
    proto = model(
        [node(op_type, ["x", "w", "r"], ["y"], hidden_size=5, direction="bidirectional", activations=names,
              activation_alpha=[0.3, 0.7, 0.9], activation_beta=[0.6, 0.8])],
        [value("x", X.shape)], [value("y", None)], {n: w.astype(np.float32) for n, w in weights.items()}, 14,
    )  # fmt: skip
    check_numbers(proto, {"x": X})


def test_an_empty_list_is_as_good_as_none() -> None:
    one = helper.make_node("ReduceMax", ["x"], ["y"], "probe")
    one.attribute.append(helper.make_attribute("axes", [], attr_type=helper.AttributeProto.INTS))
    assert compiled([one], {"x": X}, {"y": "float32"}, 13)["y"] == X.max()


FLOAT8 = np.ones((2, 2), ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize(
    ("checked", "inputs", "opset", "part"),
    [
        (node("Gather", ["x", "n"], ["y"], axis=1), [X[:, :0], [0]], 17, "size 0"),
        (node("ReverseSequence", ["x", "n"], ["y"], time_axis=1), [X, np.array([1, 2, 3])], 17, "time_axis"),
        (node("AffineGrid", ["x", "n"], ["y"], align_corners=1), [X[:, :2, :3], [2, 1, 1, 4]], 20, "corners"),
        (node("Col2Im", ["x", "n", "n"], ["y"]), [np.ones((1, 4, 1), bool), np.array([2, 2])], 18, "bool"),
        (node("QLinearMatMul", ["x", "s", "n", "x", "s", "n", "s", "n"], ["y"]), [FLOAT8, FLOAT8[0, 0]], 21, "float8"),
    ],
)
def test_what_has_no_one_meaning_is_refused(checked: Any, inputs: Any, opset: int, part: str) -> None:
    x, n = inputs
    weights = {"n": np.asarray(n), "s": np.float32(0.5)}
    stated = [value("y", None, helper.np_dtype_to_tensor_dtype(x.dtype))]
    proto = model([checked], [value("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))], stated, weights, opset)
    with pytest.raises(UnsupportedError, match=part):
        imported(proto)


def test_a_value_that_is_cut_off_may_be_read_twice() -> None:
    """The magnitude of an integer reads it twice; what cuts a float off defines a variable, which may be there once."""
    nodes = [node("Shrink", ["x"], ["s"], bias=1.0), node("Abs", ["s"], ["y"])]
    y = compiled(nodes, {"x": np.array([9, 4, -3])}, {"y": "int64"}, 13)["y"]
    assert y.tolist() == [8, 3, 2]
