"""Fused operators of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.frontend.graphs import model, value
from tests.passes.lowering import agrees

RNG = np.random.default_rng(13)


def check(
    operator: str, feeds: dict[str, np.ndarray], names: list[str], weights: Any = None, **attributes: Any
) -> None:
    node = helper.make_node(operator, names, ["y"], operator, domain="com.microsoft", **attributes)
    inputs = [value(name, x.shape) for name, x in feeds.items()]
    agrees(model([node], inputs, [value("y", None)], weights, domains=["com.microsoft"]), feeds)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("HardSigmoid", [0.2, 0.5]),
     *(pytest.param(*p, marks=pytest.mark.long)
       for p in (("LeakyRelu", [0.2]), ("Clip", [0.0, 6.0]), ("Sigmoid", []), ("Tanh", [])))],
)  # fmt: skip
def test_a_convolution_with_an_activation(activation: str, parameters: list[float]) -> None:
    weights = {"w": floats(7, 3, 3, 3), "b": floats(7)}
    more: Any = {"activation_params": parameters} if parameters else {}
    feeds = {"x": floats(1, 3, 9, 11)}
    check("FusedConv", feeds, ["x", "w", "b"], weights, activation=activation, pads=[1, 1, 1, 1], **more)


def test_a_convolution_with_a_sum() -> None:
    weights = {"w": floats(7, 3, 3, 3), "b": floats(7)}
    feeds = {"x": floats(1, 3, 9, 11), "z": floats(1, 7, 7, 9)}
    check("FusedConv", feeds, ["x", "w", "b", "z"], weights, activation="Relu")


@pytest.mark.parametrize("alpha", [1.0, 0.125])
@pytest.mark.parametrize("turn_a", [pytest.param(0, marks=pytest.mark.long), 1])
@pytest.mark.parametrize("turn_b", [0, 1])
def test_matmuls_of_transposed_operands(turn_a: int, turn_b: int, alpha: float) -> None:
    feeds = {"a": floats(2, 3, *((7, 5) if turn_a else (5, 7))), "b": floats(2, 3, *((11, 7) if turn_b else (7, 11)))}
    check("FusedMatMul", feeds, ["a", "b"], transA=turn_a, transB=turn_b, alpha=alpha)


@pytest.mark.parametrize("operator", ["Gelu", "QuickGelu"])
def test_activations(operator: str) -> None:
    check(operator, {"x": floats(3, 7) * 3}, ["x"])
