"""ReduceLogSumExp at infinities, against float64; ArgMax, ArgMin and Hardmax at the ends of the range."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

from ..graphs import check_numbers, imported, model, node, run_onnxruntime, run_tvm, value

X = np.random.default_rng(2).standard_normal((4, 5, 6)).astype("float32")
X[0] = -np.inf
X[1, 2, 3] = np.inf
X[2, 1, 1] = np.nan
X[3] += 1000


@pytest.mark.parametrize("opset", [13, 18])
def test_log_sum_exp_of_infinities(opset):
    nodes, outputs, wanted, weights = [], [], [], {}
    for number, (axes, keep) in enumerate(itertools.product(([2], [1, 2], None), (0, 1))):
        over = tuple(axes) if axes else (0, 1, 2)
        with np.errstate(all="ignore"):
            wanted.append(np.log(np.exp(X.astype("longdouble")).sum(axis=over, keepdims=bool(keep))))
        arguments, inputs = {"axes": axes} if axes and opset < 18 else {}, ["x"]
        if axes and opset >= 18:
            weights[f"a{number}"] = np.int64(axes)
            inputs.append(f"a{number}")
        nodes.append(node("ReduceLogSumExp", inputs, [f"y{number}"], keepdims=keep, **arguments))
        outputs.append(value(f"y{number}", wanted[-1].shape))
    output = run_tvm(imported(model(nodes, [value("x", X.shape)], outputs, weights, opset=opset)), {"x": X})
    for got, exact in zip(output, wanted, strict=True):
        np.testing.assert_allclose(got, exact.astype("float64"), rtol=1e-6)


# ------------------------------------------------------------ places of extremes
DTYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"]


def ends(dtype: str) -> np.ndarray:
    """Rows of nothing but one end of the range, rows with NaN, and rows with repeats."""
    rng, kind = np.random.default_rng(3), np.dtype(dtype)
    x = rng.integers(0, 3, (6, 5, 7)).astype(dtype)
    if kind.kind == "f":
        x[0], x[1], x[3, :, 0] = -np.inf, np.inf, np.nan
        x[2][rng.random((5, 7)) < 0.3] = np.nan
        x[4, 0], x[4, 1] = np.finfo(dtype).min, np.finfo(dtype).max
    else:
        x[0], x[1], x[2, :, 1:] = np.iinfo(dtype).min, np.iinfo(dtype).max, np.iinfo(dtype).min
    return x


def first_or_last(row: np.ndarray, largest: bool, last: bool) -> int:
    """One after the other, as onnxruntime goes: a comparison with NaN never holds."""
    place = 0
    for k in range(1, len(row)):
        beats = row[k] > row[place] if largest else row[k] < row[place]
        place = k if beats or (last and row[k] == row[place]) else place
    return place


@pytest.mark.parametrize("dtype", DTYPES)
def test_places_of_extremes_at_the_ends_of_the_range(dtype):
    x = ends(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes, wanted = [], []
    for number, (op, last, axis) in enumerate(itertools.product(("ArgMax", "ArgMin"), (0, 1), range(3))):
        attributes = {"axis": axis, "keepdims": axis == 1, "select_last_index": last}
        nodes.append(node(op, ["x"], [f"y{number}"], **attributes))
        places = np.apply_along_axis(first_or_last, axis, x, op == "ArgMax", bool(last)).astype("int64")
        wanted.append(np.expand_dims(places, 1) if axis == 1 else places)
    outputs = [value(f"y{number}", w.shape, TensorProto.INT64) for number, w in enumerate(wanted)]
    proto = model(nodes, [value("x", x.shape, kind)], outputs)
    for got, theirs, expected in zip(
        run_tvm(imported(proto), {"x": x}), run_onnxruntime(proto, {"x": x}), wanted, strict=True
    ):
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(theirs, expected)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("fill", [-np.inf, np.finfo("float32").min, 0.0])
def test_hardmax_of_a_row_of_one_value(fill, opset):
    x = np.full((2, 3, 4), fill, "float32")
    proto = model([node("Hardmax", ["x"], ["y"])], [value("x", x.shape)], [value("y", x.shape)], opset=opset)
    check_numbers(proto, {"x": x})


def test_a_row_is_picked_by_the_place_of_its_extreme():
    x, table = np.full((3, 4), -np.inf, "float32"), np.arange(12, dtype="float32").reshape(4, 3)
    nodes = [node("ArgMax", ["x"], ["i"], axis=1, keepdims=0), node("Gather", ["t", "i"], ["y"])]
    proto = model(nodes, [value("x", x.shape)], [value("y", (3, 3))], {"t": table})
    np.testing.assert_array_equal(run_tvm(imported(proto), {"x": x})[0], np.tile(table[0], (3, 1)))


@pytest.mark.parametrize("opset", [13, 18])
def test_means_of_integers_are_cut_off(opset):
    x = np.random.default_rng(0).integers(-9, 9, (3, 4, 5)).astype("int32")
    over, weights = ({"axes": [0, 2]}, {}) if opset < 18 else ({}, {"a": np.int64([0, 2])})
    one = node("ReduceMean", ["x", *weights], ["y"], keepdims=0, **over)
    proto = model(
        [one], [value("x", x.shape, TensorProto.INT32)], [value("y", (4,), TensorProto.INT32)], weights, opset
    )
    check_numbers(proto, {"x": x})
