"""The library's own converters."""

import numpy as np
import pytest
from onnx import TensorProto

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.relax_graph import main_bindings

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
