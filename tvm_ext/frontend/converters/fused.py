"""Fused operators of com.microsoft, which onnxruntime writes when it saves a model that it has optimized.

FusedConv(x, w, b, z; activation)   ->   activation(conv(x, w, b) + z)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from ...core.relax_graph import dtype_of, shape_of
from ..refusal import Refusal
from .base import Attributes, Converter, emit, scalar, stock, text

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "": lambda x: x,
    "Clip": lambda x, low, high: relax.op.clip(x, low, high),
    "HardSigmoid": lambda x, a, b: relax.op.clip(
        relax.op.add(relax.op.multiply(x, scalar(a, x)), scalar(b, x)), 0.0, 1.0
    ),
    "LeakyRelu": lambda x, alpha: relax.op.nn.leakyrelu(x, alpha),
    "Relu": relax.op.nn.relu,
    "Sigmoid": relax.op.sigmoid,
    "Tanh": relax.op.tanh,
}


def fused_conv(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """FusedConv(x, w, b, z): a convolution with a sum and an activation behind it."""
    y = emit(stock("Conv", [inputs[0], inputs[1], inputs[2]], _without(attributes, "activation"), 11))
    if inputs[3] is not None:
        y = emit(relax.op.add(y, inputs[3]))
    name = text(attributes, "activation", "")
    if name not in _ACTIVATIONS:
        raise Refusal(f"activation {name!r}; known are {', '.join(filter(None, _ACTIVATIONS))}")
    return _ACTIVATIONS[name](y, *map(float, attributes.get("activation_params", ())))


def _without(attributes: Attributes, prefix: str) -> Attributes:
    return {name: value for name, value in attributes.items() if not name.startswith(prefix)}


def fused_matmul(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """FusedMatMul(a, b): a matmul of transposed operands, times alpha."""
    if attributes.get("transBatchA", 0) or attributes.get("transBatchB", 0):
        raise Refusal("transposed batch dimensions")
    a, b = (
        _turned(x) if attributes.get(name, 0) else x for x, name in zip(inputs[:2], ("transA", "transB"), strict=True)
    )
    y = emit(relax.op.matmul(a, b))
    alpha = float(attributes.get("alpha", 1.0))
    return y if alpha == 1.0 else relax.op.multiply(y, scalar(alpha, y))


def _turned(x: Any) -> Any:
    """With the last two dimensions swapped; a vector as it is."""
    rank = len(shape_of(x) or ())
    return x if rank < 2 else emit(relax.op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]))


def gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Gelu(x) -> x * 0.5 * (1 + erf(x / sqrt(2)))."""
    return relax.op.nn.gelu(inputs[0])


def quick_gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QuickGelu(x) -> x * sigmoid(alpha * x)."""
    x = inputs[0]
    if "float" not in dtype_of(x):
        raise Refusal(f"QuickGelu of {dtype_of(x)}")
    alpha = float(attributes.get("alpha", 1.702))
    return relax.op.multiply(x, relax.op.sigmoid(relax.op.multiply(x, scalar(alpha, x))))


#: Operator of the domain com.microsoft -> converter.
CONTRIBUTED: dict[str, Converter] = {
    "FusedConv": fused_conv,
    "FusedMatMul": fused_matmul,
    "Gelu": gelu,
    "QuickGelu": quick_gelu,
}
