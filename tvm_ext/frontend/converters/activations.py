"""Activations, in forms in which nothing cancels: e^x - 1 near 0, log(1 + e^x) far below it, products with infinity."""

import math
from typing import Any

from tvm import relax

from .base import Attributes, converts, emit, scalar, takes_integers


@converts("Softplus")
def softplus(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Softplus -> log(1 + e^x) without a sum that would round e^x away."""
    return relax.op.nn.softplus(inputs[0], 1.0, math.inf)


@converts("Mish")
def mish(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Mish -> x tanh(softplus(x))."""
    return inputs[0] * relax.op.tanh(softplus(inputs, attributes, opset))


@converts("Elu")
def elu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Elu -> x, or alpha (e^x - 1) below 0."""
    x = inputs[0]
    curved = scalar(float(attributes.get("alpha", 1.0)), x) * _less_one(x)
    return relax.op.where(relax.op.less(x, scalar(0, x)), curved, x)


def _less_one(x: Any) -> Any:
    """e^x - 1 for x <= 0 as 2 t / (1 - t) with t = tanh(x / 2): nothing cancels."""
    t = emit(relax.op.tanh(x * scalar(0.5, x)))
    return (t + t) / (scalar(1, x) - t)


@converts("Selu")
def selu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Selu -> gamma * elu(x, alpha)."""
    alpha = attributes.get("alpha", 1.67326319217681884765625)
    gamma = float(attributes.get("gamma", 1.05070102214813232421875))
    return elu(inputs, {"alpha": alpha}, opset) * scalar(gamma, inputs[0])


@converts("Celu")
def celu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Celu -> max(0, x) + min(0, alpha * (exp(x / alpha) - 1)); ONNX's own definition makes a vector of a number."""
    x, alpha = inputs[0], float(attributes.get("alpha", 1.0))
    ratio = emit(x / scalar(alpha, x))
    if alpha > 0:
        less = _less_one(emit(relax.op.minimum(ratio, scalar(0, x))))
    else:
        less = relax.op.exp(ratio) - scalar(1, x)
    curved = relax.op.minimum(less * scalar(alpha, x), scalar(0, x))
    return relax.op.nn.relu(x) + curved


@converts("ThresholdedRelu")
def thresholded_relu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ThresholdedRelu -> x where it is beyond alpha, else 0; the stock product with 0 is NaN for what is infinite."""
    x = inputs[0]
    return relax.op.where(relax.op.greater(x, scalar(float(attributes.get("alpha", 1.0)), x)), x, scalar(0, x))


@converts("Shrink")
@takes_integers
def shrink(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Shrink -> x + bias below -lambd, else x - bias beyond lambd, else 0; the stock sum has both of a negative one.

    Integers go through float64 and are cut off: bias and lambd are floats.
    """
    x, bias, lambd = inputs[0], float(attributes.get("bias", 0.0)), float(attributes.get("lambd", 0.5))
    right = relax.op.where(relax.op.greater(x, scalar(lambd, x)), x - scalar(bias, x), scalar(0, x))
    return relax.op.where(relax.op.less(x, scalar(-lambd, x)), x + scalar(bias, x), right)


@converts("PRelu")
def prelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """PRelu -> slope * x below 0; TVM's own takes no integers, and a slope a channel only."""
    x, slope = inputs[0], inputs[1]
    return relax.op.where(relax.op.less(x, scalar(0, x)), slope * x, x)
