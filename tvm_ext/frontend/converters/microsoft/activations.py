"""Activations with the bias before them.

BiasGelu(x, b)   ->   (x + b) * 0.5 * (1 + erf((x + b) / sqrt(2)))
"""

from typing import Any

from tvm import relax

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, as_dtype, constant, converts, emit, known, outputs_of, scalar, static_shape
from ..normalization import joined_softmax
from ..recurrent import columns


@converts("Gelu", MICROSOFT)
def gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Gelu(x) -> x * 0.5 * (1 + erf(x / sqrt(2)))."""
    return relax.op.nn.gelu(inputs[0])


@converts("BiasGelu", MICROSOFT)
def bias_gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BiasGelu(x, b) -> gelu(x + b)."""
    return relax.op.nn.gelu(inputs[0] + inputs[1])


@converts("FastGelu", MICROSOFT)
def fast_gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """FastGelu(x, b) -> 0.5 * y * (1 + tanh(sqrt(2 / pi) * (y + 0.044715 * y * y * y))) of y = x + b."""
    return relax.op.nn.gelu_tanh(inputs[0] if inputs[1] is None else emit(inputs[0] + inputs[1]))


@converts("GemmFastGelu", MICROSOFT)
def gemm_fast_gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GemmFastGelu(x, w, b) -> FastGelu(x w, b)."""
    return fast_gelu([emit(relax.op.matmul(inputs[0], inputs[1])), inputs[2]], attributes, opset)


@converts("QuickGelu", MICROSOFT)
def quick_gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QuickGelu(x) -> x * sigmoid(alpha * x)."""
    x = inputs[0]
    if "float" not in dtype_of(x):
        raise Refusal(f"QuickGelu of {dtype_of(x)}")
    alpha = float(attributes.get("alpha", 1.702))
    return x * relax.op.sigmoid(x * scalar(alpha, x))


@converts("ScaledSiLU", MICROSOFT)
def scaled_silu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ScaledSiLU(x, scale) -> silu(scale * x), by default of the attribute `alpha`."""
    x = inputs[0]
    scale = scalar(float(attributes.get("alpha", 1.0)), x) if inputs[1] is None else inputs[1]
    return relax.op.nn.silu(x * relax.op.reshape(as_dtype(scale, dtype_of(x)), ()))


@converts("BiasSplitGelu", MICROSOFT)
def bias_split_gelu(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BiasSplitGelu(x, b) -> the first half of x + b times the gelu of the second."""
    y = emit(inputs[0] + inputs[1])
    width = static_shape(y, "what is split")[-1]
    gate = emit(relax.op.nn.gelu(columns(y, width // 2, width)))
    return columns(y, 0, width // 2) * gate


@converts("BiasAdd", MICROSOFT)
def bias_add(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BiasAdd(x, b, skip) -> x + b + skip."""
    return inputs[0] + inputs[1] + inputs[2]


@converts("BiasDropout", MICROSOFT)
def bias_dropout(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BiasDropout(x, b, residual) -> x + b + residual: nothing is dropped but in training."""
    x, bias, residual = inputs[0], inputs[1], inputs[2]
    if inputs[4] is not None and known(inputs[4], "training_mode").any():
        raise Refusal("training_mode: what it drops is random")
    y = emit(x + bias)
    y = y if residual is None else emit(y + residual)
    kept = emit(relax.op.broadcast_to(constant(True), static_shape(y, "what nothing is dropped of")))
    return relax.Tuple([y, kept][: outputs_of(attributes)])


@converts("BiasSoftmax", MICROSOFT)
def bias_softmax(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BiasSoftmax(x, b) -> softmax(x + b) over all dimensions from `axis` on, joined.

    b lacks some dimensions: the last ones before `axis`, or the first ones, which `is_inner_broadcast` tells.
    """
    x, bias = inputs[0], inputs[1]
    shape, axis = static_shape(x, "the scores"), int(attributes.get("axis", 1))
    axis %= len(shape)
    own = list(static_shape(bias, "the bias"))
    if attributes.get("is_inner_broadcast", 0) and len(own) < len(shape):
        lead = len(own) - (len(shape) - axis)
        own = [*own[:lead], *[1] * (len(shape) - len(own)), *own[lead:]]
    return joined_softmax(emit(x + relax.op.reshape(bias, own)), axis)
