"""widen-conv1d: one-dimensional convolutions take the recipes of two-dimensional ones, epilogue and all."""

from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.onnx_graphs import model, node, value
from tests.onnx_graphs import random as normal
from tests.passes.helpers import build, const, ops, random, rewritten, untouched
from tests.passes.stages import agrees
from tvm_ext.passes.simplification.eliminate_dead_code import EliminateDeadCode
from tvm_ext.passes.simplification.widen_conv1d import WidenConv1d

W, BIAS = random(8, 6, 3, seed=1), random(1, 8, 1, seed=2)


def behind_an_image(emit: Any, x: Any) -> Any:
    """Of height 1."""
    image = emit(R.nn.conv2d(emit(R.reshape(x, (2, 6, 1, 17))), const(W[:, :, None])))
    return emit(R.nn.relu(emit(R.reshape(image, (2, 8, 15)))))


#: What the model has, and the operators between two reshapes that it becomes.
BODIES: dict[str, tuple[Any, str]] = {
    "alone": (lambda emit, x: emit(R.nn.conv1d(x, const(W))), "conv2d"),
    "stride, padding, dilation": (
        lambda emit, x: emit(R.nn.conv1d(x, const(W), strides=2, padding=(2, 1), dilation=2)), "conv2d"),
    "groups": (lambda emit, x: emit(R.nn.conv1d(x, const(random(6, 2, 3)), groups=3)), "conv2d"),
    "transposed": (
        lambda emit, x: emit(R.nn.conv1d_transpose(x, const(random(6, 4, 3)), strides=2, padding=1, output_padding=1)),
        "conv2d_transpose"),
    "behind an image": (behind_an_image, "conv2d relu"),
    "epilogue": (
        lambda emit, x: emit(R.clip(emit(R.add(emit(R.nn.conv1d(x, const(W))), const(BIAS))), 0, 6)),
        "conv2d add clip"),
}  # fmt: skip


def residual(emit: Any, x: Any, r: Any) -> Any:
    """Two convolutions in a row, with a sum of an input between."""
    y = emit(R.nn.relu(emit(R.add(emit(R.nn.conv1d(x, const(W), padding=1)), r))))
    return emit(R.nn.conv1d(y, const(random(5, 8, 1))))


@pytest.mark.parametrize(("body", "want"), BODIES.values(), ids=BODIES)
def test_becomes_two_dimensional(body: Any, want: str) -> None:
    result = rewritten(WidenConv1d(), build(body, (2, 6, 17)), EliminateDeadCode())
    assert ops(result.mod) == ["reshape", *want.split(), "reshape"] and result.fired


def test_a_chain_is_reshaped_at_its_ends_only() -> None:
    after = rewritten(WidenConv1d(), build(residual, (2, 6, 17), (2, 8, 17)), EliminateDeadCode()).mod
    assert ops(after) == ["reshape", "conv2d", "reshape", "add", "relu", "conv2d", "reshape"]


def test_elementwise_operations_elsewhere_stay() -> None:
    untouched(WidenConv1d(), build(lambda emit, x: emit(R.nn.relu(x)), (2, 6, 17)))


def test_another_layout_is_refused_and_named() -> None:
    mod = build(lambda emit, x: emit(R.nn.conv1d(x, const(W), data_layout="NWC")), (2, 17, 6))
    assert ["NWC" in detail for detail in untouched(WidenConv1d(), mod)] == [True]


def test_a_model_takes_the_recipes() -> None:
    convs = [node("Conv", "x w b", "c", pads=[1, 1]), node("ConvTranspose", "r v", "y", strides=[2])]
    nodes = [convs[0], node("Relu", "c", "r"), convs[1]]
    weights = {"w": normal(16, 6, 3), "b": normal(16), "v": normal(16, 4, 2)}
    proto = model(nodes, [value("x", (1, 6, 23))], [value("y", (1, 4, 46))], weights)
    compiled = agrees(proto, {"x": np.asarray(normal(1, 6, 23))})
    recipes = [k["recipe"] for k in compiled.report["kernels"]]
    assert "conv2d_nchwc" in recipes and "conv2d_transpose" in recipes and "generic" not in recipes
