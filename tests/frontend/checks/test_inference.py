"""What ONNX infers of nodes: contradictions, sizes no program can have, and converters that make something else."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tvm_ext.core.errors import ModelError, UnsupportedError

from ..graphs import imported, message, model, node, value


def test_types_that_do_not_fit_name_node_and_input():
    nodes = [node("Add", ["x", "b"], ["y"], "add")]
    proto = model(nodes, [value("x", [2])], [value("y", [2])], {"b": np.array([1, 2])})
    with pytest.raises(ModelError, match=r"'add' \(Add\): input 1, 'b', is tensor\(int64\); tensor\(float\)") as error:
        imported(proto)
    assert message(error.value)


def test_a_type_that_the_operator_does_not_take():
    proto = model([node("Exp", ["x"], ["y"], "exp")], [value("x", [2], TensorProto.INT32)], [value("y", [2])])
    with pytest.raises(ModelError, match=r"'exp' \(Exp\): input 0, 'x', is tensor\(int32\)"):
        imported(proto)


def test_shapes_that_contradict_each_other():
    proto = model([node("MatMul", ["x", "w"], ["y"], "mm")], [value("x", [2, 3])], [value("y", [2, 2])],
                  {"w": np.zeros((4, 2), np.float32)})  # fmt: skip
    with pytest.raises(ModelError, match=r"'mm' \(MatMul\): not valid ONNX: .*dimension") as error:
        imported(proto)
    assert message(error.value)


def test_an_output_that_states_another_type():
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2], TensorProto.DOUBLE)])
    with pytest.raises(ModelError, match="output 'y' states elements of type DOUBLE and has FLOAT"):
        imported(proto)


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 16, 1 << 15), (1,) * 33])
def test_values_that_no_program_can_have(shape):
    with pytest.raises(UnsupportedError, match="2147483647 elements in up to 32 dimensions") as error:
        imported(model([node("Relu", ["x"], ["y"])], [value("x", shape)], [value("y", None)]))
    assert "value 'x'" in message(error.value)


def test_a_value_that_grows_on_the_way_names_its_node():
    nodes = [node("Expand", ["x", "to"], ["b"], "grow"), node("ReduceMax", ["b"], ["y"], keepdims=0)]
    proto = model(nodes, [value("x", [1])], [value("y", [])], {"to": np.array([1 << 20, 1 << 20])})
    with pytest.raises(UnsupportedError, match=r"value 'b' of node 'grow' \(Expand\) has shape"):
        imported(proto)


def test_nonsense_is_not_carried_on():
    """Sizes below 0, which a Resize by infinity gets, would end the process in ONNX's inference of the Slice."""
    nodes = [
        node("Resize", ["x", "", "s"], ["r"], "big", mode="nearest"),
        node("Slice", ["r", "zero", "seven", "two"], ["y"], "cut"),
    ]
    weights = {"s": np.float32([1, 1, -np.inf, np.nan]), "zero": np.array([0]), "seven": np.array([7]),
               "two": np.array([2])}  # fmt: skip
    with pytest.raises(UnsupportedError, match="'big'"):
        imported(model(nodes, [value("x", [1, 1, 4, 4])], [value("y", None)], weights))


def test_values_that_double_take_no_memory():
    nodes, name = [], "c"
    for step in range(40):
        nodes.append(node("Concat", [name, name], [f"c{step}"], f"twice{step}", axis=0))
        name = f"c{step}"
    with pytest.raises(UnsupportedError, match="has shape"):
        imported(model(nodes, [value("x", [1])], [value(name, None, TensorProto.INT64)], {"c": np.array([1, 2])}))


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


def test_an_input_that_is_needed_and_left_out():
    """A None among a tuple's fields would end the process in TVM."""
    proto = model([node("Concat", ["x", "x", ""], ["y"], "join", axis=0)], [value("x", [2])], [value("y", None)])
    with pytest.raises(ModelError, match=r"'join' \(Concat\): input 2, 'inputs', is missing") as error:
        imported(proto)
    assert message(error.value)


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
