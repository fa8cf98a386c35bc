"""Attributes out of their range are refused with the node, wherever it stands."""

import numpy as np
import pytest
from onnx import helper

from tvm_ext.core.errors import ModelError, UnsupportedError

from ..graphs import imported, message, model, node, value


def pooled(**attributes):
    attrs = {"kernel_shape": [2, 2], **attributes}
    return model([node("AveragePool", ["x"], ["y"], "pool", **attrs)], [value("x", [1, 2, 6, 6])], [value("y", None)])


@pytest.mark.parametrize(
    ("attributes", "part"),
    [
        ({"ceil_mode": 2}, "attribute 'ceil_mode' is 2; 0 or 1"),
        ({"count_include_pad": -1}, "'count_include_pad' is -1; 0 or 1"),
        ({"strides": [1, 0]}, "'strides' is 0; 1 or more"),
        ({"kernel_shape": [-2, 2]}, "'kernel_shape' is -2; 1 or more"),
        ({"auto_pad": "SOME"}, "'auto_pad' is 'SOME'; one of NOTSET, SAME_UPPER"),
    ],
)
def test_ranges(attributes, part):
    with pytest.raises(ModelError, match="'pool'") as error:
        imported(pooled(**attributes))
    assert part in message(error.value)


def test_what_is_in_range_is_taken():
    assert imported(pooled(ceil_mode=1, count_include_pad=0, auto_pad="VALID")).outputs[0].shape == (1, 2, 5, 5)


def test_a_reference_outside_of_a_function_is_refused():
    proto = pooled()
    proto.graph.node[0].attribute[0].ref_attr_name = "size"
    with pytest.raises(ModelError, match=r"not valid|that of a function, 'size'"):
        imported(proto)


def test_nodes_within_branches_are_looked_at():
    then = helper.make_graph([node("ReduceSum", ["x"], ["t"], "sum", keepdims=3)], "t", [], [value("t", [1, 1])])
    other = helper.make_graph([node("ReduceSum", ["x"], ["e"], "sum2")], "e", [], [value("e", [1, 1])])
    nodes = [node("If", ["c"], ["y"], "choose", then_branch=then, else_branch=other)]
    proto = model(nodes, [value("x", [2, 3]), value("c", [], 9)], [value("y", [1, 1])])
    with pytest.raises(ModelError, match=r"'sum' \(ReduceSum\): attribute 'keepdims' is 3"):
        imported(proto)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attributes", "part"),
    [
        ("GatherND", "xi", "y", {"batch_dims": -1}, "'batch_dims' is -1; 0 or more"),
        ("Split", "x", "yzw", {"num_outputs": 1}, "'num_outputs' is 1; 3, the number of its outputs"),
    ],
)
def test_what_would_end_the_process_in_the_inference_of_onnx(op_type, inputs, outputs, attributes, part):
    built_node = node(op_type, list(inputs), list(outputs), "it", **attributes)
    arguments = [value("x", [1, 8, 4, 0]), value("i", [1, 8, 4, 0], 7)][: len(inputs)]
    with pytest.raises(ModelError, match="'it'") as error:
        imported(model([built_node], arguments, [value("y", None)], opset=18))
    assert part in message(error.value)


#: Operator -> shapes of inputs, known inputs, attributes, and what is wrong with them.
UNFIT = {
    "LayerNormalization": ([(2, 3, 4), (4,)], [], {"axis": 7}, "axis 7 of a tensor of 3 dimensions"),
    "ScatterElements": ([(2, 3, 4), (3,)], [np.zeros(3, np.int64)], {}, "for data of shape (2, 3, 4)"),
    "DepthToSpace": ([(1, 4, 2, 2)], [], {"blocksize": 3}, "do not divide 4 channels"),
    "SpaceToDepth": ([(1, 4, 2, 2)], [], {"blocksize": 3}, "does not divide 2 x 2 pixels"),
    "DeformConv": ([(1, 2, 4, 4), (2, 2, 2, 2), (1, 7, 3, 3)], [], {}, "for 4 taps"),
    "LpNormalization": ([(2, 3)], [], {"p": 3}, "p=3"),
    "LSTM": ([(5, 2, 3), (1, 16, 3), (1, 16, 4)], [], {"hidden_size": 4, "activations": ["Tanh"]}, "1 activations; 3"),
    "GRU": ([(5, 2, 3), (1, 12, 3), (1, 12, 4)], [], {"hidden_size": 4, "clip": -1.0}, "clip=-1.0"),
    "RNN": ([(5, 2, 3), (2, 4, 3), (2, 4, 4)], [], {"hidden_size": 4}, "weights of 2 directions"),
    "Range": ([], [*np.float32([0, 1, 0])], {}, "a delta that is not 0"),
}  # fmt: skip


@pytest.mark.parametrize("operator", UNFIT)
def test_attributes_that_do_not_fit_the_operands(operator):
    shapes, known, attributes, part = UNFIT[operator]
    inputs = [value(f"x{i}", shape) for i, shape in enumerate(shapes)]
    weights = {f"w{i}": np.asarray(array) for i, array in enumerate(known)}
    names = [*(x.name for x in inputs), *weights]
    if operator == "ScatterElements":  # data, indices, updates
        names = ["x0", "w0", "x1"]
    proto = model([node(operator, names, ["y"], "it", **attributes)], inputs, [value("y", None)], weights, opset=19)
    with pytest.raises(UnsupportedError, match="'it'") as error:
        imported(proto)
    assert part in message(error.value)


@pytest.mark.parametrize("limit", [np.float32(3e38), np.float32("nan")])
def test_ranges_that_no_tensor_holds(limit):
    known = {"a": np.float32(0), "b": limit, "d": np.float32(1)}
    with pytest.raises(UnsupportedError, match="'far'"):
        imported(model([node("Range", [*known], ["y"], "far")], [], [value("y", None)], known))
