"""Folding: same outputs, names kept; near misses are left alone."""

import numpy as np
import onnx
import pytest

from tests import onnx_graphs as graphs
from tests.quantization.models import norm, norm_weights, residual, run, samples
from tvm_ext.quantization.folding import fold


def folded(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    notes = fold(copy)
    onnx.checker.check_model(copy)
    return copy, notes


def layer_and_norm(layer: onnx.NodeProto, weights: dict[str, np.ndarray], shape: tuple[int, ...], channels: int):
    weights = {**weights, **norm_weights("bn", channels, 3)}
    free = [None] * len(shape)
    return graphs.model([layer, norm("bn", "c", "y")], [graphs.value("x", shape)], [graphs.value("y", free)], weights)


CASES = {
    "conv": (graphs.node("Conv", "x w", "c", "layer"), {"w": graphs.random(7, 5, 3, 3)}, (1, 5, 8, 9), 7),
    "grouped conv with bias": (
        graphs.node("Conv", "x w b", "c", "layer", group=3), {"w": graphs.random(6, 2, 3, 3), "b": graphs.random(6)},
        (2, 6, 8, 9), 6,
    ),
    "conv1d": (graphs.node("Conv", "x w", "c", "layer"), {"w": graphs.random(4, 3, 2)}, (1, 3, 8), 4),
    "conv transpose": (graphs.node("ConvTranspose", "x w", "c", "layer"), {"w": graphs.random(5, 7, 3, 3)},
                       (1, 5, 4, 4), 7),
    "grouped conv transpose": (
        graphs.node("ConvTranspose", "x w b", "c", "layer", group=2),
        {"w": graphs.random(4, 3, 3, 3), "b": graphs.random(6)}, (1, 4, 4, 5), 6,
    ),
    "gemm": (graphs.node("Gemm", "x w b", "c", "layer", alpha=0.5, beta=2.0), {"w": graphs.random(5, 7),
             "b": graphs.random(7)}, (3, 5), 7),
    "gemm, transposed, one bias": (
        graphs.node("Gemm", "x w b", "c", "layer", transB=1, beta=3.0), {"w": graphs.random(7, 5),
        "b": graphs.random(1)}, (3, 5), 7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_batch_norms_go_into_the_layer_before(name: str) -> None:
    model = layer_and_norm(*CASES[name])
    folded_model, notes = folded(model)
    assert [node.name for node in folded_model.graph.node] == ["layer"] and list(folded_model.graph.node[0].output) == [
        "y"
    ]
    assert notes == ["1 batch norms were folded into the layers before them"]
    x = graphs.random(*CASES[name][2], seed=7)
    np.testing.assert_allclose(run(folded_model, x), run(model, x), rtol=1e-4, atol=1e-4)


def test_names_survive_and_unused_weights_go() -> None:
    model = residual()
    folded_model, _ = folded(model)
    names = ["first", "relu1", "second", "sum", "relu2", "pool", "flat", "dense", "soft"]
    assert [node.name for node in folded_model.graph.node] == names
    assert not [tensor.name for tensor in folded_model.graph.initializer if tensor.name.startswith("bn")]
    for x in samples(model):
        np.testing.assert_allclose(run(folded_model, x), run(model, x), rtol=1e-5, atol=1e-6)


def test_a_value_that_is_read_elsewhere_keeps_its_batch_norm() -> None:
    layer, weights, shape, channels = CASES["conv"]
    model = layer_and_norm(layer, weights, shape, channels)
    model.graph.output.append(graphs.value("c", [None] * 4))
    folded_model, notes = folded(model)
    assert [node.op_type for node in folded_model.graph.node] == ["Conv", "BatchNormalization"]
    assert notes == ["batch norms that no layer could take: bn"]


def test_a_weight_of_two_layers_is_copied() -> None:
    nodes = [
        graphs.node("Conv", "x w", "c", "one"), norm("bn", "c", "n"), graphs.node("Conv", "x w", "d", "two"),
        graphs.node("Add", "n d", "y"),
    ]  # fmt: skip
    weights = {"w": graphs.random(3, 3, 1, 1), **norm_weights("bn", 3, 1)}
    shape = (1, 3, 4, 5)
    model = graphs.model(nodes, [graphs.value("x", shape)], [graphs.value("y", shape)], weights)
    folded_model, _ = folded(model)
    assert {"w", "one.weight", "one.bias"} == {tensor.name for tensor in folded_model.graph.initializer}
    x = graphs.random(*shape)
    np.testing.assert_allclose(run(folded_model, x), run(model, x), rtol=1e-5, atol=1e-5)


def test_constants_become_weights() -> None:
    constant = graphs.node("Constant", "", "w", value=onnx.numpy_helper.from_array(graphs.random(7, 5)))
    del constant.input[:]
    nodes = [constant, graphs.node("Transpose", "w", "t", perm=[1, 0]), graphs.node("MatMul", "x t", "y", "dense")]
    model = graphs.model(nodes, [graphs.value("x", (2, 5))], [graphs.value("y", (2, 7))])
    folded_model, notes = folded(model)
    assert [node.name for node in folded_model.graph.node] == ["dense"] and notes == [
        "1 weights were computed from others"
    ]
    assert [tensor.name for tensor in folded_model.graph.initializer] == ["t"]
    x = graphs.random(2, 5)
    np.testing.assert_allclose(run(folded_model, x), run(model, x), rtol=1e-6)


def test_weights_are_computed_in_the_version_of_the_model() -> None:
    """Before opset 13 the axes of Squeeze are an attribute."""
    nodes = [graphs.node("Squeeze", "w", "t", axes=[1]), graphs.node("MatMul", "x t", "y", "dense")]
    model = graphs.model(
        nodes, [graphs.value("x", (2, 5))], [graphs.value("y", (2, 1))], {"w": graphs.random(5, 1, 1)}, opset=11
    )
    folded_model, _ = folded(model)
    assert {tensor.name: tuple(tensor.dims) for tensor in folded_model.graph.initializer} == {"t": (5, 1)}


def test_what_is_larger_than_its_weight_is_left_to_the_program() -> None:
    nodes = [graphs.node("Expand", "w s", "t"), graphs.node("Add", "x t", "y")]
    weights = {"w": graphs.random(1), "s": np.array([64, 64])}
    model = graphs.model(nodes, [graphs.value("x", (64, 64))], [graphs.value("y", (64, 64))], weights)
    folded_model, _ = folded(model)
    assert [node.op_type for node in folded_model.graph.node] == ["Expand", "Add"]
