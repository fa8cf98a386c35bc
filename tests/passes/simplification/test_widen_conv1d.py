"""widen-conv1d: one-dimensional convolutions take the recipes of two-dimensional ones, epilogue and all."""

from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.onnx_graphs import model, node, value
from tests.onnx_graphs import random as normal
from tests.passes.helpers import apply, build, const, ops, random, same_output
from tests.passes.stages import agrees
from tvm_ext.passes.simplification.eliminate_dead_code import EliminateDeadCode
from tvm_ext.passes.simplification.widen_conv1d import WidenConv1d

W, BIAS = random(8, 6, 3, seed=1), random(1, 8, 1, seed=2)
BODIES: dict[str, tuple[Any, list[str]]] = {
    "alone": (lambda emit, x: emit(R.nn.conv1d(x, const(W))), ["reshape", "conv2d", "reshape"]),
    "stride, padding, dilation": (
        lambda emit, x: emit(R.nn.conv1d(x, const(W), strides=2, padding=(2, 1), dilation=2)),
        ["reshape", "conv2d", "reshape"],
    ),
    "groups": (
        lambda emit, x: emit(R.nn.conv1d(x, const(random(6, 2, 3)), groups=3)),
        ["reshape", "conv2d", "reshape"],
    ),
    "transposed": (
        lambda emit, x: emit(R.nn.conv1d_transpose(x, const(random(6, 4, 3)), strides=2, padding=1, output_padding=1)),
        ["reshape", "conv2d_transpose", "reshape"],
    ),
    "behind an image of height 1": (
        lambda emit, x: emit(
            R.nn.relu(
                emit(R.reshape(emit(R.nn.conv2d(emit(R.reshape(x, (2, 6, 1, 17))), const(W[:, :, None]))), (2, 8, 15)))
            )
        ),
        ["reshape", "conv2d", "relu", "reshape"],
    ),
    "epilogue": (
        lambda emit, x: emit(R.clip(emit(R.add(emit(R.nn.conv1d(x, const(W))), const(BIAS))), 0, 6)),
        ["reshape", "conv2d", "add", "clip", "reshape"],
    ),
}


def residual(emit: Any, x: Any, r: Any) -> Any:
    """Two convolutions in a row, with a sum of an input between."""
    y = emit(R.nn.relu(emit(R.add(emit(R.nn.conv1d(x, const(W), padding=1)), r))))
    return emit(R.nn.conv1d(y, const(random(5, 8, 1))))


@pytest.mark.parametrize("case", BODIES)
def test_becomes_two_dimensional(case: str) -> None:
    body, want = BODIES[case]
    mod = build(body, (2, 6, 17))
    result = apply(WidenConv1d(), mod, EliminateDeadCode())
    assert ops(result.mod) == want and result.fired
    same_output(mod, result.mod, random(2, 6, 17))


def test_a_chain_is_reshaped_at_its_ends_only() -> None:
    mod = build(residual, (2, 6, 17), (2, 8, 17))
    after = apply(WidenConv1d(), mod, EliminateDeadCode()).mod
    assert ops(after) == ["reshape", "conv2d", "reshape", "add", "relu", "conv2d", "reshape"]
    same_output(mod, after, random(2, 6, 17), random(2, 8, 17))


def test_elementwise_operations_elsewhere_stay() -> None:
    mod = build(lambda emit, x: emit(R.nn.relu(x)), (2, 6, 17))
    result = apply(WidenConv1d(), mod)
    assert result.fired == () and result.mod.same_as(mod)


def test_another_layout_is_refused_and_named() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(R.nn.conv1d(x, const(W), data_layout="NWC"))

    result = apply(WidenConv1d(), build(body, (2, 17, 6)))
    assert result.fired == () and ["NWC" in e.detail for e in result.skipped] == [True]


def test_a_model_takes_the_recipes() -> None:
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1]),
        node("Relu", "c", "r"),
        node("ConvTranspose", "r v", "y", strides=[2]),
    ]
    weights = {"w": normal(16, 6, 3), "b": normal(16), "v": normal(16, 4, 2)}
    proto = model(nodes, [value("x", (1, 6, 23))], [value("y", (1, 4, 46))], weights)
    compiled = agrees(proto, {"x": np.asarray(normal(1, 6, 23))})
    recipes = [k["recipe"] for k in compiled.report["kernels"]]
    assert "conv2d_nchwc" in recipes and "conv2d_transpose" in recipes and "generic" not in recipes
