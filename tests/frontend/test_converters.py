"""The library's own converters."""

import numpy as np
import pytest
from onnx import TensorProto

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.relax_graph import main_bindings, op_name

from .graphs import check_numbers, imported, model, node, value

X = np.array([-1, 0, 2], np.float32)


@pytest.mark.parametrize("opset", [7, 11, 17])
def test_dropout_is_nothing(opset):
    nodes = [node("Relu", ["x"], ["a"]), node("Dropout", ["a"], ["b"], "drop"), node("Neg", ["b"], ["y"])]
    found = check_numbers(model(nodes, [value("x", [3])], [value("y", [3])], opset=opset), {"x": X})
    assert len(main_bindings(found.mod)) == 2


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
    found = check_numbers(proto, {"x": X.astype(dtype)})
    assert {op_name(b.value) for b in main_bindings(found.mod)} - {"relax.abs"} == operators


def test_clip_with_computed_bounds():
    nodes = [node("Clip", ["x", "lo", "hi"], ["y"], "clip")]
    inputs = [value("x", [3]), value("lo", []), value("hi", [])]
    for low, high in [(-0.5, 1.0), (np.nan, 1.0), (-0.5, np.nan)]:
        feeds = {"x": X, "lo": np.array(low, np.float32), "hi": np.array(high, np.float32)}
        check_numbers(model(nodes, inputs, [value("y", [3])]), feeds)


def test_clip_with_attributes():
    nodes = [node("Clip", ["x"], ["y"], "clip", min=-0.5, max=1.0)]
    check_numbers(model(nodes, [value("x", [3])], [value("y", [3])], opset=9), {"x": X})
