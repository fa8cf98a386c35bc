"""Choice, layouts, scheduling, the generic way, weights: what each pass leaves, and that the program is right."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tvm_ext.passes.lowering.assign_layouts import AssignLayouts
from tvm_ext.passes.lowering.choose_recipes import ChooseRecipes
from tvm_ext.passes.lowering.lift_weights import LiftWeights
from tvm_ext.passes.lowering.lower_rest import LowerRest
from tvm_ext.passes.lowering.schedule_kernels import ScheduleKernels

from ..onnx_graphs import model, node, random, value
from .stages import agrees, primfuncs, stage


def conv(x: str, out: str, weight: str, **attributes: Any) -> Any:
    return node("Conv", f"{x} {weight}", out, **attributes)


def image_model(nodes: Any, outputs: Any, shape: tuple[int, ...] = (1, 16, 9, 7), **weights: np.ndarray) -> Any:
    return model(nodes, [value("x", shape)], outputs, weights)


W3, W1 = random(16, 16, 3, 3, scale=0.1), random(16, 16, 1, 1, scale=0.2)


def block() -> Any:
    """A residual block with pooling behind it: conv relu conv add relu pool globalpool."""
    nodes = [
        conv("x", "a", "w", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        conv("b", "c", "v", pads=[1, 1, 1, 1]),
        node("Add", "c a", "d"),
        node("Relu", "d", "e"),
        node("MaxPool", "e", "f", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "f", "y"),
    ]
    return image_model(nodes, [value("y", (1, 16, 1, 1))], w=W3, v=W3[::-1].copy())


# ------------------------------------------------------------------------------------------------ choice
def test_the_choice_stands_on_the_group() -> None:
    staged = stage(block(), ChooseRecipes)
    recipes = {p.recipe.name for p in staged.ctx.plans.values()}
    convolutions = {"conv2d_winograd", "conv2d_nchwc"}  # which of them is a matter of the machine
    assert recipes & convolutions and recipes - convolutions == {"pool2d", "reduction", "elementwise"}
    for name, plan in staged.ctx.plans.items():
        assert str(staged.mod[name].attrs["tvm_ext.recipe"]) == plan.recipe.name


def test_exact_leaves_winograd_out() -> None:
    staged = stage(block(), ChooseRecipes, accuracy="exact")
    assert "conv2d_winograd" not in {p.recipe.name for p in staged.ctx.plans.values()}
    agrees(block(), accuracy="exact")


def test_a_refusal_names_recipe_and_reason() -> None:
    computed = [node("Abs", "w", "v"), node("Conv", "x v", "y")]
    inputs = [value("x", (1, 16, 9, 7)), value("w", (16, 16, 3, 3))]
    staged = stage(model(computed, inputs, [value("y", (1, 16, 7, 5))]), ChooseRecipes)
    (reason,) = staged.skipped.values()
    assert "conv2d_nchwc: the weight is not a constant" in reason and "conv2d_winograd" in reason


# ------------------------------------------------------------------------------------------------ layouts
def test_a_residual_block_has_no_transform_inside() -> None:
    staged = stage(block(), AssignLayouts)
    assert staged.recipes.count("layout_transform") == 1  # the graph's input
    agrees(block())


@pytest.mark.parametrize("same", [True, False])
def test_constants_of_the_same_bytes_are_packed_once(same: bool) -> None:
    """Three convolutions, the last two of which read one constant."""
    second = W3.copy()
    second.view(np.uint8).reshape(-1)[-1] ^= 0 if same else 0x80
    nodes = [conv(x, y, w, pads=[1, 1, 1, 1]) for x, y, w in ("xaw", "abv", "byv")]
    proto = image_model(nodes, [value("y", (1, 16, 9, 7))], w=W3, v=second)
    lifted = stage(proto, LiftWeights)
    assert len(lifted.ctx.weights) == (1 if same else 2)
    agrees(proto)


def test_a_graph_output_is_plain_and_transformed_once_for_two_readers() -> None:
    nodes = [conv("x", "a", "w"), node("ArgMax", "a", "b", axis=1, keepdims=0), node("CumSum", "a one", "c")]
    outputs = [value("a", (1, 16, 9, 7)), value("b", (1, 9, 7), TensorProto.INT64), value("c", (1, 16, 9, 7))]
    proto = image_model(nodes, outputs, w=W1, one=np.array(1, np.int64))
    assert stage(proto, AssignLayouts).recipes.count("layout_transform") == 2  # x in, a out
    agrees(proto)


@pytest.mark.parametrize("channels", [5, 13, 17])
def test_channels_that_no_lanes_divide(channels: int) -> None:
    nodes = [conv("x", "a", "w", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), conv("b", "y", "v")]
    weights = {"w": random(channels, 16, 3, 3, scale=0.1), "v": random(3, channels, 1, 1)}
    agrees(image_model(nodes, [value("y", (1, 3, 9, 7))], **weights))


def test_a_shared_weight_is_packed_once() -> None:
    nodes = [conv("x", "a", "w"), conv("a", "y", "w")]
    staged = stage(image_model(nodes, [value("y", (1, 16, 9, 7))], w=W1), LiftWeights)
    assert len(staged.ctx.weights) == 1
    agrees(image_model(nodes, [value("y", (1, 16, 9, 7))], w=W1))


# ------------------------------------------------------------------------------------------------ scheduling
def test_every_kernel_is_scheduled_and_named() -> None:
    staged = stage(block(), ScheduleKernels)
    kernels = primfuncs(staged.mod)
    assert set(kernels) == set(staged.calls) == set(staged.fired)


def test_one_thread_has_no_parallel_loop() -> None:
    serial = agrees(block(), threads=1)
    assert not serial.metadata.parallel


# ------------------------------------------------------------------------------------------------ the generic way
GENERIC = {
    "argmax": [node("ArgMax", "x", "y", axis=1)],
    "cumsum": [node("CumSum", "x axis", "y")],
    "resize": [node("Resize", "x  scales", "y", mode="nearest")],
}
CONSTANTS = {"axis": np.array(2, np.int64), "scales": np.array([1, 1, 2, 2], np.float32)}


@pytest.mark.parametrize("name", GENERIC)
def test_what_no_recipe_takes_is_named_with_the_reason(name: str) -> None:
    nodes = GENERIC[name]
    used = {i for n in nodes for i in n.input}
    kind = {"argmax": TensorProto.INT64}.get(name, TensorProto.FLOAT)
    proto = model(
        nodes, [value("x", (1, 16, 9, 7))], [value("y", None, kind)], {k: CONSTANTS[k] for k in used - {"x", "m", ""}}
    )
    compiled = agrees(proto)
    generic = [k for k in compiled.report["kernels"] if k["recipe"] == "generic"]
    assert generic and all(k["reason"] for k in generic)


def test_a_matmul_of_two_inputs() -> None:
    proto = model([node("MatMul", "x z", "y")], [value("x", (2, 3, 5)), value("z", (2, 5, 4))], [value("y", (2, 3, 4))])
    (kernel,) = agrees(proto).report["kernels"]
    assert kernel["recipe"] == "batch_matmul" and not kernel["reason"]


@pytest.mark.parametrize("reshape", ["Flatten", "Reshape"])
def test_a_reshape_is_no_kernel(reshape: str) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node(reshape, "a" if reshape == "Flatten" else "a shape", "b"),
        node("Gemm", "b w", "y"),
    ]
    weights = {"w": random(48, 7), **({"shape": np.array([2, 48], np.int64)} if reshape == "Reshape" else {})}
    proto = model(nodes, [value("x", (2, 3, 4, 4))], [value("y", (2, 7))], weights)
    assert agrees(proto).report["launches"] == 2


def test_a_generic_kernel_is_lowered_after_the_planned_ones() -> None:
    staged = stage(block(), LowerRest)
    assert not staged.fired  # nothing was left for it
