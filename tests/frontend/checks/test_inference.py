"""What ONNX infers of nodes: contradictions, sizes no program can have, and converters that make something else."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tvm_ext.core.errors import ModelError, UnsupportedError

from ..graphs import imported, message, model, node, value


def small(nodes, shape, weights=None, output=None, kind=TensorProto.FLOAT):
    """A model from x of a shape to y, whose element type is that of x unless stated."""
    return model(nodes, [value("x", shape, kind)], [value("y", None, output or kind)], weights)


def doubled(count):
    names = ["c", *(f"c{step}" for step in range(count - 1)), "y"]
    return [node("Concat", [a, a], [b], f"twice_{b}", axis=0) for a, b in itertools.pairwise(names)]


#: What is wrong -> model, error, what it says.
REFUSED = {
    "types that do not fit": (
        small([node("Add", ["x", "b"], ["y"], "add")], [2], {"b": np.array([1, 2])}),
        ModelError, r"'add' \(Add\): input 1, 'b', is tensor\(int64\); tensor\(float\)"),
    "a type that the operator does not take": (
        small([node("Exp", ["x"], ["y"], "exp")], [2], kind=TensorProto.INT32),
        ModelError, r"'exp' \(Exp\): input 0, 'x', is tensor\(int32\)"),
    "shapes that contradict each other": (
        small([node("MatMul", ["x", "w"], ["y"], "mm")], [2, 3], {"w": np.zeros((4, 2), np.float32)}),
        ModelError, r"'mm' \(MatMul\): not valid ONNX: .*dimension"),
    "an output that states another type": (
        small([node("Relu", ["x"], ["y"])], [2], output=TensorProto.DOUBLE),
        ModelError, "output 'y' states elements of type DOUBLE and has FLOAT"),
    "a value that grows on the way": (
        small([node("Expand", ["x", "to"], ["b"], "grow"), node("ReduceMax", ["b"], ["y"], keepdims=0)], [1],
              {"to": np.array([1 << 20, 1 << 20])}),
        UnsupportedError, r"value 'b' of node 'grow' \(Expand\) has shape"),
    # they take no memory
    "values that double": (
        small(doubled(40), [1], {"c": np.array([1, 2])}, output=TensorProto.INT64), UnsupportedError, "has shape"),
    # sizes below 0, which this Resize gets, would end the process in ONNX's inference of the Slice
    "a resize by infinity": (
        small([node("Resize", ["x", "", "s"], ["r"], "big", mode="nearest"),
               node("Slice", ["r", "zero", "seven", "two"], ["y"], "cut")], [1, 1, 4, 4],
              {"s": np.float32([1, 1, -np.inf, np.nan]), "zero": np.array([0]), "seven": np.array([7]),
               "two": np.array([2])}),
        UnsupportedError, "'big'"),
    # a None among a tuple's fields would end the process in TVM
    "an input that is needed and left out": (
        small([node("Concat", ["x", "x", ""], ["y"], "join", axis=0)], [2]),
        ModelError, r"'join' \(Concat\): input 2, 'inputs', is missing"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_is_refused_names_the_node(wrong):
    proto, kind, text = REFUSED[wrong]
    with pytest.raises(kind, match=text) as error:
        imported(proto)
    assert message(error.value)


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 16, 1 << 15), (1,) * 33])
def test_values_that_no_program_can_have(shape):
    with pytest.raises(UnsupportedError, match="2147483647 elements in up to 32 dimensions") as error:
        imported(model([node("Relu", ["x"], ["y"])], [value("x", shape)], [value("y", None)]))
    assert "value 'x'" in message(error.value)


def test_two_opsets_of_one_domain_are_refused():
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    with pytest.raises(ModelError, match="one of each domain"):
        imported(proto)
    proto.opset_import[1].CopyFrom(helper.make_opsetid("own", 1 << 40))
    with pytest.raises(ModelError, match="'own' 1099511627776"):
        imported(proto)


def test_the_inference_of_mean_variance_normalization_is_not_asked():
    """onnx fails to infer its own definition of it."""
    proto = model([node("MeanVarianceNormalization", ["x"], ["y"])], [value("x", [2, 3, 4, 4])],
                  [value("y", [2, 3, 4, 4])])  # fmt: skip
    assert imported(proto).outputs[0].shape == (2, 3, 4, 4)
    assert onnx.checker.check_model(proto) is None


@pytest.mark.parametrize("inner", [node("Neg", ["s"], ["t"], "inner"), node("Max", ["s", ""], ["t"], "inner")])
def test_nodes_within_loops_are_looked_at_too(inner):
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), inner], "body",
        [value("n", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", [2], TensorProto.BOOL)],
        [value("d", [], TensorProto.BOOL), value("t", [2], TensorProto.BOOL)],
    )  # fmt: skip
    nodes = [node("Loop", ["many", "", "x"], ["y"], "loop", body=body)]
    proto = model(nodes, [value("x", [2], TensorProto.BOOL)], [value("y", [2], TensorProto.BOOL)],
                  {"many": np.array(3)})  # fmt: skip
    with pytest.raises((UnsupportedError, ModelError), match=r"small: node .* \((Neg|Max)\): input"):
        imported(proto)
