"""Attention, QAttention and MultiHeadAttention: projections, heads, masks, and a past of a fixed length.

    Attention(x, w, b, mask)   ->   softmax(q k^T * scale + mask) v,   q, k, v: the heads of x w + b

A weight of all three projections becomes three, which constant folding cuts: what a model without the fusion has.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, constant, converts, emit, known, outputs_of, static_shape
from ..recurrent import columns
from .heads import attend, continued, count_of, mask_of, split_heads
from .quantized import matmul_to_float

#: (start, stop) -> that part of the columns of a projection.
Projection = Callable[[int, int], Any]


@converts("Attention", MICROSOFT)
def attention(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Attention(x, w, b, mask, past, bias): self-attention with its projections."""
    x, weight, bias = inputs[0], inputs[1], inputs[2]

    def project(start: int, stop: int) -> Any:
        part = emit(relax.op.matmul(x, columns(weight, start, stop)))
        return part if bias is None else emit(part + columns(bias, start, stop))

    return _self_attention(project, weight, inputs[3], inputs[4], inputs[5], attributes)


@converts("QAttention", MICROSOFT)
def quantized_attention(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QAttention(x, w, b, sx, sw, mask, zx, zw, past): Attention with projections of integers and their scales."""
    x, weight, bias, x_scale, scale, mask, x_zero, zero, past = (inputs[i] for i in range(9))

    def part_of(vector: Any, start: int, stop: int) -> Any:
        several = vector is not None and static_shape(vector, "a scale or zero point") not in ((), (1,))
        return columns(vector, start, stop) if several else vector

    def project(start: int, stop: int) -> Any:
        own = [part_of(vector, start, stop) for vector in (scale, zero, bias)]
        operands = [x, columns(weight, start, stop), x_scale, own[0], x_zero, own[1], own[2]]
        return emit(matmul_to_float(operands, attributes, opset))

    return _self_attention(project, weight, mask, past, None, attributes)


def _self_attention(project: Projection, weight: Any, mask: Any, past: Any, bias: Any, attributes: Attributes) -> Any:
    _refuse(attributes, "do_rotary", "past_present_share_buffer")
    width = static_shape(weight, "the weight of attention")[1]
    sizes = [int(size) for size in attributes.get("qkv_hidden_sizes", ())] or [width // 3] * 3
    if len(sizes) != 3 or sum(sizes) != width:
        raise Refusal(f"queries, keys and values of {sizes} columns, of a weight of {width}")
    stops = [sizes[0], sizes[0] + sizes[1], width]
    heads, parts = count_of(attributes, "num_heads"), zip(stops, sizes, strict=True)
    query, key, value = (split_heads(project(stop - size, stop), heads) for stop, size in parts)
    if past is not None:
        before = [emit(relax.op.squeeze(relax.op.strided_slice(past, [0], [i], [i + 1]), [0])) for i in (0, 1)]
        key, value = continued(before[0], key), continued(before[1], value)
    steps = static_shape(key, "the key")[2] - static_shape(query, "the query")[2]
    context, _ = attend(query, key, value, [mask_of(mask, query, key, attributes, steps), bias], attributes)
    if outputs_of(attributes) == 1:
        return context
    if sizes[1] != sizes[2]:
        raise Refusal(f"a present of keys and values of {sizes[1]} and {sizes[2]} columns, which are one tensor")
    return relax.Tuple([context, emit(relax.op.stack([key, value], axis=0))])


@converts("MultiHeadAttention", MICROSOFT)
def multi_head_attention(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MultiHeadAttention(q, k, v, bias, mask, attention bias, past key, past value): without projections."""
    if inputs[8] is not None or inputs[9] is not None:
        raise Refusal("a buffer that past and present share")
    query, key, value = _operands(inputs, attributes)
    past = 0 if inputs[6] is None else static_shape(inputs[6], "the past of keys")[2]
    key, value = continued(inputs[6], key), continued(inputs[7], value)
    addends = [mask_of(inputs[4], query, key, attributes, past), inputs[5]]
    context, scores = attend(query, key, value, addends, attributes)
    results = [context, key, value, scores]
    return relax.Tuple(results[: outputs_of(attributes)])


def _operands(inputs: Any, attributes: Attributes) -> list[Any]:
    """Query, key and value, (batch, heads, sequence, size), with the bias of their projections added."""
    heads, bias = count_of(attributes, "num_heads"), inputs[3]
    parts = [inputs[0], inputs[1], inputs[2]]
    if parts[1] is None:  # (batch, sequence, heads, 3, size)
        parts = _unpacked(parts[0], 3)
    elif parts[2] is None:  # (batch, sequence, heads, 2, size)
        parts = [parts[0], *_unpacked(parts[1], 2)]
    if bias is None:
        return [split_heads(part, heads) for part in parts]
    width, start, shifted = static_shape(parts[0], "the query")[-1], 0, []
    for part in parts:
        shape = static_shape(part, "an operand of attention")
        if len(shape) == 3:
            width = shape[2]
            part = emit(part + columns(bias, start, start + width))
        start += width
        shifted.append(split_heads(part, heads))
    return shifted


def _unpacked(packed: Any, count: int) -> list[Any]:
    """(batch, sequence, heads, count, size) -> `count` operands (batch, sequence, heads * size)."""
    shape = static_shape(packed, "a packed operand of attention")
    if len(shape) != 5 or shape[3] != count:
        raise Refusal(f"a packed operand of shape {shape}; (batch, sequence, heads, {count}, size) is needed")
    batch, sequence, heads, _, size = shape
    parts = (emit(relax.op.strided_slice(packed, [3], [i], [i + 1])) for i in range(count))
    return [emit(relax.op.reshape(part, (batch, sequence, heads * size))) for part in parts]


def _refuse(attributes: Attributes, *names: str) -> None:
    """Raises Refusal where one of these attributes is set."""
    for name in names:
        if attributes.get(name, 0):
            raise Refusal(f"attribute {name} is {attributes[name]}; only 0 works")


@converts("RelativePositionBias", MICROSOFT)
def relative_position_bias(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """RelativePositionBias(table, queries, keys) -> (1, heads, queries, keys): T5's bias by distance.

    Half of the buckets (a quarter where keys may come after queries) hold a distance each, the others ranges that
    grow by a factor up to `max_distance`; Raffel et al., "Exploring the Limits of Transfer Learning" (2020). The table
    states (buckets, heads), and lies in memory as (heads, buckets).
    """
    queries, keys = (int(known(inputs[i], name).reshape(-1)[0]) for i, name in ((1, "query_length"), (2, "key_length")))
    buckets, heads = static_shape(inputs[0], "the table of biases")
    rows = _buckets(queries, keys, buckets, attributes)
    table = emit(relax.op.reshape(inputs[0], (1, heads, buckets)))
    return relax.op.take(table, rows, 2, mode="wrap")


def _buckets(queries: int, keys: int, buckets: int, attributes: Attributes) -> Any:
    behind = np.arange(queries)[:, None] - np.arange(keys)
    first = np.zeros_like(behind)
    if attributes.get("is_bidirectional", 0):
        buckets //= 2
        first, behind = np.where(behind < 0, buckets, 0), np.abs(behind)
    behind = np.maximum(behind, 0)
    exact = buckets // 2
    if int(attributes["max_distance"]) <= exact or not exact:
        raise Refusal(f"max_distance {attributes['max_distance']} with {exact} buckets of a distance each")
    grown = np.log(np.maximum(behind, 1).astype(np.float32) / exact)
    grown = grown / np.log(np.float32(int(attributes["max_distance"])) / exact) * (buckets - exact)
    far = np.minimum(exact + grown.astype(np.int64), buckets - 1)
    return constant((first + np.where(behind < exact, behind, far)).astype(np.int64))


@converts("GatedRelativePositionBias", MICROSOFT)
def gated_position_bias(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GatedRelativePositionBias(q, bias of q, position bias, w, b, a) -> (1 + u (r a - 1) + 1) * position bias.

    u and r are sigmoids of what w makes of each head's query.
    """
    query, bias, positions, weight, shift, eco = (inputs[i] for i in range(6))
    if inputs[6] is not None:
        raise Refusal("token_offset")
    heads = count_of(attributes, "num_heads")
    apart = split_heads(emit(query + bias), heads)
    gates = emit(relax.op.matmul(apart, weight) + shift)
    *lead, width = static_shape(gates, "the gates")
    sums = emit(relax.op.sum(relax.op.reshape(gates, (*lead, 2, width // 2)), [-1]))
    both = emit(relax.op.sigmoid(sums))
    u, r = (columns(both, i, i + 1) for i in (0, 1))
    one, two = relax.const(1.0, "float32"), relax.const(2.0, "float32")
    inner = emit(r * eco - one)
    return (u * inner + two) * positions
