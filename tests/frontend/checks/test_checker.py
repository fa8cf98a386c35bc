"""What onnx.checker finds, wrapped; and that a checked model is left as it was."""

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import ModelError, UnsupportedError
from tvm_ext.frontend.checks.checker import check_model
from tvm_ext.frontend.reading.reader import read_model

from ..graphs import imported, linear_model, message, model, node, value


def test_a_good_model_gives_nodes_inputs_and_weights():
    proto = linear_model()
    before = proto.SerializeToString()
    checked = check_model(read_model(proto), {})
    assert [n.name for n in checked.nodes] == ["dense", "shift"]
    assert (checked.opset, [spec.name for spec in checked.inputs]) == (17, ["x"])
    assert {name: array.shape for name, array in checked.weights.items()} == {"w": (5, 3), "b": (3,)}
    assert checked.warnings == () and proto.SerializeToString() == before


@pytest.mark.parametrize("name", ["wrong", ""])
@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (lambda name: node("Relu", ["x"], ["y"], name, slope=1.0), "slope"),
        (lambda name: node("Add", ["x"], ["y"], name), "input size 1"),
        (lambda name: node("Softmax", ["x"], ["y"], name, axis=1.5), "axis"),
    ],
)
def test_a_node_that_onnx_refuses_is_named_with_the_reason(bad, word, name):
    proto = model([node("Relu", ["x"], ["h"], "fine"), bad(name)], [value("x", [2])], [value("y", [2])])
    with pytest.raises(ModelError) as error:
        imported(proto)
    text = message(error.value)
    assert repr(name or f"{bad('').op_type}:y") in text and word in text and "fine" not in text


def test_an_output_without_a_type():
    proto = linear_model()
    proto.graph.output[0].ClearField("type")
    with pytest.raises(ModelError, match=r"not valid ONNX.*y"):
        imported(proto)


def test_a_sparse_initializer_is_refused_by_name():
    proto = linear_model()
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "sparse_w")
    indices = onnx.numpy_helper.from_array(np.zeros(1, np.int64), "i")
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [4]))
    with pytest.raises(UnsupportedError, match="sparse_w"):
        imported(proto)


def test_weights_are_not_copied_for_the_checker():
    proto = linear_model()
    checked = check_model(read_model(proto), {})
    assert not checked.weights["w"].flags.owndata
