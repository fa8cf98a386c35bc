"""Normalizations with what stands before them: skip connections, embeddings, gates.

SkipLayerNormalization(x, skip, g, b, bias)   ->   layer_norm(x + skip + bias) * g + b
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, as_dtype, constant, converts, emit, outputs_of, scalar, static_shape, text
from ..quantize import dequantize_linear
from ..selection.indexing import gather
from .standard import channels_first, channels_last, standard

#: What onnxruntime adds to a variance where a model does not say it.
_EPSILON = 1e-12


@converts("SkipLayerNormalization", MICROSOFT)
def skip_layer_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SkipLayerNormalization(x, skip, weight, shift, bias) -> the norm, mean, inverse deviation and the sum."""
    x, weight, shift = _sum(inputs[0], inputs[1], inputs[4]), inputs[2], inputs[3]
    epsilon = float(attributes.get("epsilon", _EPSILON))
    shift = constant(np.zeros(static_shape(weight, "the weight")), dtype_of(weight)) if shift is None else shift
    y = relax.op.nn.layer_norm(x, weight, shift, -1, epsilon)
    if (count := outputs_of(attributes)) == 1:
        return y
    inverse = relax.op.rsqrt(relax.op.variance(x, [-1], keepdims=True) + scalar(epsilon, x))
    return relax.Tuple([emit(y), emit(relax.op.mean(x, [-1], keepdims=True)), emit(inverse), x][:count])


@converts("SkipSimplifiedLayerNormalization", MICROSOFT)
def skip_rms_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SkipSimplifiedLayerNormalization(x, skip, weight, bias) -> the norm, nothing, inverse deviation and the sum."""
    x, epsilon = _sum(inputs[0], inputs[1], inputs[3]), float(attributes.get("epsilon", _EPSILON))
    y, inverse = _rms_norm(x, inputs[2], -1, epsilon)
    return relax.Tuple([y, inverse, inverse, x][: outputs_of(attributes)])


@converts("SimplifiedLayerNormalization")
def rms_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SimplifiedLayerNormalization(x, weight) -> x / sqrt(mean of x x + epsilon) * weight; and what x is times."""
    epsilon = float(attributes.get("epsilon", 1e-5))
    results = _rms_norm(inputs[0], inputs[1], int(attributes.get("axis", -1)), epsilon)
    return relax.Tuple(list(results)[: outputs_of(attributes)])


def _rms_norm(x: Any, weight: Any, axis: int, epsilon: float) -> tuple[Any, Any]:
    rank = len(static_shape(x, "what is normalized"))
    axes = list(range(axis % rank, rank))
    y = emit(standard("RMSNormalization", [x, weight], {"axis": axis, "epsilon": epsilon}, 23))
    squares = relax.op.mean(x * x, axes, keepdims=True)
    return y, emit(relax.op.rsqrt(squares + scalar(epsilon, x)))


def _sum(x: Any, *others: Any) -> Any:
    """The sum, in the dtype of the first."""
    if not static_shape(x, "what is normalized")[-1]:
        raise Refusal("rows of no elements")
    for other in others:
        x = x if other is None else emit(x + as_dtype(other, dtype_of(x)))
    return x


@converts("GatedRMSNorm", MICROSOFT)
def gated_rms_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GatedRMSNorm(x, weight, gate) -> the RMS norm of each group of elements, times silu or sigmoid of the gate."""
    x, weight, gate = inputs[0], inputs[1], inputs[2]
    shape, size = static_shape(x, "what is normalized"), static_shape(weight, "the weight")[0]
    if not size:
        raise Refusal("groups of no elements")
    groups = emit(relax.op.reshape(x, (*shape[:-1], shape[-1] // size, size)))
    y, _ = _rms_norm(groups, weight, -1, float(attributes.get("epsilon", 1e-5)))
    kind = text(attributes, "activation", "silu")
    opened = emit(relax.op.sigmoid(gate) if kind == "sigmoid" else relax.op.nn.silu(gate))
    return relax.op.reshape(y, shape) * opened


# ------------------------------------------------------------ embeddings
@converts("EmbedLayerNormalization", MICROSOFT)
def embed_layer_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """EmbedLayerNormalization(words, segments, tables of words, positions, segments, weight, shift, mask, positions).

    Returns:
        The norm of the sum of the rows, the number of ones in the mask of each sequence, and the sum.
    """
    words, segments, table, places, parts, weight, shift, mask, positions = (inputs[i] for i in range(9))
    return _embedded(words, segments, positions, (table, places, parts), weight, shift, mask, attributes)


def _embedded(
    words: Any, segments: Any, positions: Any, tables: Sequence[Any], weight: Any, shift: Any, mask: Any,
    attributes: Attributes,
) -> Any:  # fmt: skip
    batch, sequence = static_shape(words, "the words")
    if positions is None:
        positions = constant(np.arange(sequence).reshape(1, -1))
    total = _sum(_rows(tables[0], words), _rows(tables[1], positions))
    if tables[2] is not None:  # without segments all words are in the first
        total = _sum(total, _rows(tables[2], constant([[0]], "int32") if segments is None else segments))
    y = emit(relax.op.nn.layer_norm(total, weight, shift, -1, float(attributes.get("epsilon", _EPSILON))))
    count = constant(np.zeros(batch), "int32")
    if mask is not None:
        count = emit(relax.op.sum(relax.op.astype(relax.op.equal(mask, scalar(1, mask)), "int32"), [1]))
    return relax.Tuple([y, count, total][: outputs_of(attributes)])


def _rows(table: Any, indices: Any) -> Any:
    return emit(gather([table, indices], {"axis": 0}, 13))


@converts("QEmbedLayerNormalization", MICROSOFT)
def quantized_embedding(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QEmbedLayerNormalization: EmbedLayerNormalization of tables, weight and shift of 8 bits."""
    words, segments, mask = inputs[0], inputs[1], inputs[7]
    stored = [(inputs[2 + i], inputs[8 + i], inputs[13 + i]) for i in range(5)]
    *tables, weight, shift = (None if part[0] is None else emit(dequantize_linear(part, {}, 13)) for part in stored)
    return _embedded(words, segments, None, tables, weight, shift, mask, attributes)


# ------------------------------------------------------------ groups
@converts("GroupNorm", MICROSOFT)
def group_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GroupNorm(x, weight, shift): each group of channels normalized, and silu behind it where `activation` is 1."""
    return _group_norm(inputs[0], inputs[1], inputs[2], attributes)


@converts("SkipGroupNorm", MICROSOFT)
def skip_group_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SkipGroupNorm(x, weight, shift, skip, bias): of the sum, which is the second output."""
    x, skip = inputs[0], inputs[3]
    shape, last = static_shape(x, "what is normalized"), _channels_last(attributes)
    if len(static_shape(skip, "what is skipped")) == 2:
        batch, channels = static_shape(skip, "what is skipped")
        skip = emit(relax.op.reshape(skip, (batch, 1, 1, channels) if last else (batch, channels, 1, 1)))
    bias = inputs[4]
    if bias is not None and not last:
        bias = emit(relax.op.reshape(bias, (1, shape[1], 1, 1)))
    total = _sum(x, skip, bias)
    return relax.Tuple([_group_norm(total, inputs[1], inputs[2], attributes), total][: outputs_of(attributes)])


def _channels_last(attributes: Attributes) -> bool:
    return bool(attributes.get("channels_last", 1))


def _group_norm(x: Any, weight: Any, shift: Any, attributes: Attributes) -> Any:
    last, shape = _channels_last(attributes), static_shape(x, "what is normalized")
    if len(shape) != 4:
        raise Refusal(f"groups of channels of a tensor of shape {shape}")
    stated = {"num_groups": int(attributes["groups"]), "epsilon": float(attributes.get("epsilon", 1e-5))}
    y = emit(standard("GroupNormalization", [channels_first(x) if last else x, weight, shift], stated, 21))
    y = channels_last(y) if last else y
    return emit(relax.op.nn.silu(y)) if attributes.get("activation", 0) else y
