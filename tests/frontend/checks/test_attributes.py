"""Attributes out of their range are refused with the node, wherever it stands."""

import pytest
from onnx import helper

from tvm_ext.core.errors import ModelError

from ..graphs import imported, message, model, node, value


def pooled(**attributes):
    given = {"kernel_shape": [2, 2], **attributes}
    return model([node("AveragePool", ["x"], ["y"], "pool", **given)], [value("x", [1, 2, 6, 6])], [value("y", None)])


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
    made = node(op_type, list(inputs), list(outputs), "it", **attributes)
    given = [value("x", [1, 8, 4, 0]), value("i", [1, 8, 4, 0], 7)][: len(inputs)]
    with pytest.raises(ModelError, match="'it'") as error:
        imported(model([made], given, [value("y", None)], opset=18))
    assert part in message(error.value)
