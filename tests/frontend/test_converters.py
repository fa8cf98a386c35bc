"""The library's own converters."""

import numpy as np
import pytest
from onnx import TensorProto

from tests.passes.stages import agrees
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.relax_graph import main_bindings, op_name

from .graphs import check_numbers, imported, model, node, run_tvm, value

X = np.array([-1, 0, 2], np.float32)


@pytest.mark.parametrize("opset", [7, 11, 17])
def test_dropout_is_nothing(opset):
    nodes = [node("Relu", ["x"], ["a"]), node("Dropout", ["a"], ["b"], "drop"), node("Neg", ["b"], ["y"])]
    translated = check_numbers(model(nodes, [value("x", [3])], [value("y", [3])], opset=opset), {"x": X})
    assert len(main_bindings(translated.mod)) == 2


def test_the_mask_of_dropout_is_all_true():
    nodes = [node("Dropout", ["x"], ["y", "mask"], "drop")]
    check_numbers(model(nodes, [value("x", [3])], [value("y", [3]), value("mask", [3], TensorProto.BOOL)]), {"x": X})


@pytest.mark.parametrize("training", [False, True])
def test_dropout_that_trains_is_refused(training):
    nodes = [node("Dropout", ["x", "", "t"], ["y"], "drop")]
    proto = model(nodes, [value("x", [3])], [value("y", [3])], {"t": np.array(training)})
    if not training:
        check_numbers(proto, {"x": X})
        return
    with pytest.raises(UnsupportedError, match=r"'drop'.*training_mode"):
        imported(proto)


@pytest.mark.parametrize(
    ("bounds", "operators"),
    [
        ({"lo": -0.5, "hi": 1.0}, {"relax.clip"}),
        ({"lo": -0.5}, {"relax.maximum"}),
        ({"hi": 1.0}, {"relax.minimum"}),
        ({"lo": np.nan, "hi": 1.0}, {"relax.minimum"}),
        ({"lo": 2.0, "hi": 1.0}, {"relax.maximum", "relax.minimum"}),
        ({}, set()),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_clip_with_constant_bounds_can_be_fused(bounds, operators, dtype):
    if dtype is np.int64:
        bounds = {k: int(v) for k, v in bounds.items() if v == v}  # integers have no NaN
    names = ["x", "lo" if "lo" in bounds else "", "hi" if "hi" in bounds else ""]
    kind = TensorProto.FLOAT if dtype is np.float32 else TensorProto.INT64
    nodes = [node("Clip", names, ["c"], "clip"), node("Abs", ["c"], ["y"])]
    weights = {name: np.array(bound, dtype) for name, bound in bounds.items()}
    proto = model(nodes, [value("x", [3], kind)], [value("y", [3], kind)], weights)
    translated = check_numbers(proto, {"x": X.astype(dtype)})
    assert {op_name(b.value) for b in main_bindings(translated.mod)} - {"relax.abs"} == operators


def test_clip_with_computed_bounds():
    nodes = [node("Clip", ["x", "lo", "hi"], ["y"], "clip")]
    inputs = [value("x", [3]), value("lo", []), value("hi", [])]
    for low, high in [(-0.5, 1.0), (np.nan, 1.0), (-0.5, np.nan)]:
        feeds = {"x": X, "lo": np.array(low, np.float32), "hi": np.array(high, np.float32)}
        check_numbers(model(nodes, inputs, [value("y", [3])]), feeds)


def test_clip_with_attributes():
    nodes = [node("Clip", ["x"], ["y"], "clip", min=-0.5, max=1.0)]
    check_numbers(model(nodes, [value("x", [3])], [value("y", [3])], opset=9), {"x": X})


# ------------------------------------------------------------ several operands
NAN = np.float32("nan")
OPERANDS = {
    "a": np.array([[1, NAN, -3]], np.float32),
    "b": np.array([[2], [-1]], np.float32),
    "c": np.array([0, 5, NAN], np.float32),
}


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("operator", ["Max", "Min", "Sum", "Mean"])
def test_operators_of_several_operands(operator, count):
    names = list(OPERANDS)[:count]
    inputs = [value(name, OPERANDS[name].shape) for name in names]
    proto = model([node(operator, names, ["y"])], inputs, [value("y", None)])
    translated = imported(proto)
    binary = {"Max": "maximum", "Min": "minimum"}.get(operator, "add")
    operators = [op_name(b.value).removeprefix("relax.") for b in main_bindings(translated.mod)]
    assert [o for o in operators if o not in ("", "divide", "call_tir")] == [binary] * (count - 1)
    agrees(proto, {name: OPERANDS[name] for name in names})  # NaN goes through, as in onnxruntime


# ------------------------------------------------------------ rows
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather_takes_negative_indices(axis, kind):
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    indices = np.array([[0, -1], [-3, 2]], kind)
    inputs = [value("x", [3, 4]), value("i", [2, 2], TensorProto.INT32 if kind is np.int32 else TensorProto.INT64)]
    proto = model([node("Gather", ["x", "i"], ["y"], axis=axis)], inputs, [value("y", None)])
    check_numbers(proto, {"x": table, "i": indices})


def test_gather_with_constant_indices():
    proto = model(
        [node("Gather", ["x", "i"], ["y"], axis=1)], [value("x", [2, 3])], [value("y", None)], {"i": np.array(-1)}
    )
    check_numbers(proto, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})


def test_gather_out_of_bounds_is_refused_or_stays_inside(capfd):
    rows = np.array([3, 2, -5], np.int64)
    known = model([node("Gather", ["x", "i"], ["y"], "g")], [value("x", [2, 3])], [value("y", None)], {"i": rows})
    with pytest.raises(UnsupportedError, match=r"'g'.*index 3 lies outside -2 .. 1"):
        imported(known)
    inputs = [value("x", [2, 3]), value("i", [3], TensorProto.INT64)]
    computed = model([node("Gather", ["x", "i"], ["y"])], inputs, [value("y", None)])
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = run_tvm(imported(computed), {"x": table, "i": rows})
    np.testing.assert_array_equal(got, table[rows % 2])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_normalization(axis, bias):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    shape = x.shape[axis:]
    weights = {
        "s": rng.standard_normal(shape).astype("f4"),
        **({"b": rng.standard_normal(shape).astype("f4")} if bias else {}),
    }
    nodes = [node("LayerNormalization", ["x", *weights], ["y", "mean", "inverse"], axis=axis, epsilon=1e-3)]
    outputs = [value(name, None) for name in ("y", "mean", "inverse")]
    check_numbers(model(nodes, [value("x", [2, 3, 4])], outputs, weights), {"x": x})
    rows = {name: array.reshape(-1)[:4] for name, array in weights.items()}
    single = [node("LayerNormalization", ["x", *weights], ["y"])]
    translated = check_numbers(model(single, [value("x", x.shape)], [value("y", None)], rows), {"x": x})
    assert op_name(main_bindings(translated.mod)[-1].value) == "relax.nn.layer_norm"


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_of_every_opset(operator, axis, opset):
    x = np.random.default_rng(5).standard_normal((2, 3, 4)).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    proto = model([node(operator, ["x"], ["y"], **attributes)], [value("x", x.shape)], [value("y", None)], opset=opset)
    translated = check_numbers(proto, {"x": x})
    one_axis = opset >= 13 or axis in (2, -1)
    assert len(main_bindings(translated.mod)) == (1 if one_axis else 3)
