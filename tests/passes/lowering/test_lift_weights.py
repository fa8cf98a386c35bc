"""lift-weights: constants become parameters, each once; what no kernel reads stays."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import agrees, stage
from tvm_ext.core.graph.relax_graph import main_bindings
from tvm_ext.passes.lowering.lift_weights import LiftWeights


def shared() -> onnx.ModelProto:
    nodes = [
        node("Softmax", "x", "a"), node("Add", "a w", "b"), node("Softmax", "b", "c"), node("Mul", "c w", "d"),
        node("Add", "d k", "y"),
    ]  # fmt: skip
    return model(nodes, [value("x", (4, 6))], [value("y", (4, 6))], {"w": random(4, 6), "k": np.float32(0.25)})


def test_a_constant_that_two_kernels_read_is_one_weight() -> None:
    staged = stage(shared(), LiftWeights)
    assert [w.shape for w in staged.ctx.weights] == [(4, 6)], "and the scalar is part of its kernel"
    assert [p.name for p in staged.mod["main"].params] == ["x", "w0"]
    assert np.array_equal(staged.ctx.weights[0], random(4, 6))
    agrees(shared())


def test_no_constant_is_left_in_main() -> None:
    staged = stage(shared(), LiftWeights)
    assert all("GenericConst" not in str(b.value) and "metadata" not in str(b.value) for b in main_bindings(staged.mod))
    nodes = [set(e.value.split(", ")) for e in staged.report.fired]
    assert nodes == [{"softmax_a", "add_b"}, {"softmax_c", "mul_d", "add_y"}]


def test_a_model_without_weights_is_left_alone() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", (4, 6))], [value("y", (4, 6))])
    staged = stage(proto, LiftWeights)
    assert not staged.report.fired and not staged.ctx.weights


@pytest.mark.parametrize("alone", [False, True])
def test_an_output_that_is_a_constant(alone: bool) -> None:
    nodes = [node("Add", "w w", "c"), *([] if alone else [node("Relu", "x", "y")])]
    inputs, outputs = ([], []) if alone else ([value("x", (4, 6))], [value("y", (4, 6))])
    proto = model(nodes, inputs, [value("c", (3,)), *outputs], {"w": random(3)})
    compiled = agrees(proto)
    feeds = {} if alone else {"x": random(4, 6)}
    for _ in range(4):  # the program owns the constant: who changes an output must not change it
        c = compiled.run(feeds)["c"]
        assert np.array_equal(c, 2 * random(3))
        c[...] = 0.0


def test_an_output_that_is_an_input() -> None:
    proto = model([node("Identity", "x", "y")], [value("x", (4, 6))], [value("y", (4, 6))])
    x = random(4, 6)
    y = agrees(proto).run(x)["y"]
    assert np.array_equal(x, y) and not np.shares_memory(x, y)


def test_a_bfloat16_weight() -> None:
    nodes = [node("Gather", "w x", "b"), node("Cast", "b", "y", to=1)]
    proto = model(nodes, [value("x", (4,), TensorProto.INT64)], [value("y", (4, 5))])
    weight = numpy_helper.to_array(helper.make_tensor("w", TensorProto.FLOAT, (3, 5), np.arange(15.0)))
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.BFLOAT16, (3, 5), weight.ravel()))
    compiled = tvm_ext.compile(proto, cache=False)
    assert [w.dtype for w in compiled.metadata.weights] == ["bfloat16"]
    x = np.array([2, 0, 1, 2])  # small whole numbers are exact in bfloat16
    assert np.array_equal(compiled.run(x)["y"], weight[x])
