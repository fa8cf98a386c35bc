"""Every variable knows its ONNX node, every node its variables, and names read like the model."""

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.graph.relax_graph import main_bindings, op_name
from tvm_ext.frontend import zoo

from .graphs import imported, model, node, value


@pytest.fixture(scope="module")
def resnet():
    proto = zoo.resnet18()
    return proto, imported(proto)


def test_every_node_of_resnet18_has_a_variable_and_every_variable_a_node(resnet):
    proto, translated = resnet
    names = {n.name for n in proto.graph.node}
    assert len(names) == len(proto.graph.node) == 69
    by_variable = translated.provenance.as_dict()
    assert {label for labels in by_variable.values() for label in labels} == names
    for binding in main_bindings(translated.mod):
        assert len(by_variable[binding.var.name]) == 1


def test_variables_of_resnet18_are_called_like_their_modules(resnet):
    _, translated = resnet
    defined = {b.var.name: op_name(b.value) for b in main_bindings(translated.mod)}
    assert defined["conv1"] == defined["layer1_0_conv1"] == defined["layer4_0_downsample_0"] == "relax.nn.conv2d"
    assert defined["layer2_1_relu_1"] == "relax.nn.relu"
    assert translated.provenance.of("layer4_0_downsample_0") == ("layer4.0.downsample.0",)
    assert list(defined)[-1] == "output"


def test_operations_come_from_the_node_of_their_kind(resnet):
    proto, translated = resnet
    kinds = {n.name: n.op_type for n in proto.graph.node}
    expected = {"relax.nn.conv2d": "Conv", "relax.nn.batch_norm": "BatchNormalization", "relax.nn.relu": "Relu",
                "relax.add": ("Add", "Gemm"), "relax.matmul": "Gemm", "relax.nn.max_pool2d": "MaxPool"}  # fmt: skip
    seen = set()
    for binding in main_bindings(translated.mod):
        if (name := op_name(binding.value)) in expected:
            seen.add(name)
            assert kinds[translated.provenance.of(binding.var.name)[0]] in expected[name]
    assert seen == set(expected)


def test_all_parts_of_a_batch_norm_belong_to_it(resnet):
    _, translated = resnet
    parts = [v for v, labels in translated.provenance.as_dict().items() if labels == ["layer3.0.bn2"]]
    assert parts == ["layer3_0_bn2_1", "layer3_0_bn2"]  # the call, and the item of its tuple that is read


def test_names_are_unique_and_outputs_are_no_dataflow_variables(resnet):
    _, translated = resnet
    names = [b.var.name for b in main_bindings(translated.mod)] + [p.name for p in translated.mod["main"].params]
    assert len(names) == len(set(names))
    assert not isinstance(translated.mod["main"].body.body, relax.DataflowVar)


def test_bindings_that_the_normalizer_makes_belong_to_the_node():
    x = value("x", [2, 3])
    nodes = [
        node("Relu", ["x"], ["a"], "first"),
        node("Softsign", ["a"], ["b"], "soft"),
        node("Neg", ["b"], ["y"], "n"),
    ]
    translated = imported(model(nodes, [x], [value("y", [2, 3])]))
    operations = [(op_name(b.value), translated.provenance.of(b.var.name)) for b in main_bindings(translated.mod)]
    assert operations[0] == ("relax.nn.relu", ("first",)) and operations[-1] == ("relax.negative", ("n",))
    assert len(operations) > 3 and {labels for _, labels in operations[1:-1]} == {("soft",)}


def test_nodes_that_pass_a_value_on_are_noted_at_its_variable():
    nodes = [
        node("Relu", ["x"], ["a"], "relu"),
        node("Dropout", ["a"], ["b"], "drop"),
        node("Neg", ["b"], ["y"], "neg"),
    ]
    translated = imported(model(nodes, [value("x", [2])], [value("y", [2])]))
    assert translated.provenance.of("relu") == ("relu", "drop")


def test_unnamed_nodes_are_called_by_operator_and_output():
    nodes = [node("Relu", ["x"], ["hidden"]), node("Neg", ["hidden"], ["y"])]
    translated = imported(model(nodes, [value("x", [2])], [value("y", [2])]))
    assert translated.provenance.of("hidden") == ("Relu:hidden",) and translated.provenance.of("y") == ("Neg:y",)


def test_outputs_of_one_node_are_called_by_their_values():
    proto = model(
        [node("Split", ["x", "sizes"], ["left", "right"], "split", axis=0), node("Add", ["left", "right"], ["y"])],
        [value("x", [4])], [value("y", [2])], {"sizes": np.array([2, 2])},
    )  # fmt: skip
    translated = imported(proto)
    assert translated.provenance.of("left") == translated.provenance.of("right") == ("split",)


def test_inputs_have_no_node(resnet):
    assert resnet[1].provenance.of("input") == ()
