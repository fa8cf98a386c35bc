"""GroupQueryAttention and PagedAttention: several heads of queries share one of keys and values.

softmax(softcap(q k^T * scale) + mask + bias) v,   k, v: each head repeated for its queries

A first prompt without a past becomes these operators; with a past, which has room for all that comes, the node becomes
those of :mod:`tvm_ext.ops.kv_cache`.

PagedAttention: tokens of several sequences in a row, over keys and values in pages that sequences may share.

of token t:    sequence b, for which starts[b] <= t < starts[b + 1]      position past[b] + t - starts[b]

onnxruntime has no kernel of it for CPUs.
"""

from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of, numpy_of
from ....ops.kv_cache import ROLES, Append, Attention
from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, constant, converts, emit, graph_of, outputs_of, scalar, static_shape, text
from ..recurrent import columns
from .heads import LEAST, count_of, joined_heads, scale_of, scores_of, split_heads
from .rotary import rows_at, turn

#: Number of an input -> what it is, of those that belong to a cache that grows, or that onnxruntime's CPU lacks.
_REFUSED = {12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight", 16: "query_seqlens"}
#: Names of the inputs of PagedAttention.
_INPUTS = ("query", "key", "value", "key_cache", "value_cache", "cumulative_sequence_length", "past_seqlens",
           "block_table", "cos_cache", "sin_cache")  # fmt: skip


@converts("GroupQueryAttention", MICROSOFT)
def group_query_attention(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GroupQueryAttention(q, k, v, past key, past value, lengths - 1, total, cos, sin, positions, bias, sink).

    A past of no steps is none; any other one has room for what follows, and the present is as large.
    """
    _check(inputs, attributes)
    heads, groups = (count_of(attributes, name) for name in ("num_heads", "kv_num_heads"))
    if heads % groups:
        raise Refusal(f"{heads} heads of queries for {groups} of keys")
    if inputs[3] is not None and 0 not in static_shape(inputs[3], "past_key"):
        return _cached(inputs, attributes, heads, groups)
    query, key, value = _operands(inputs, heads, groups)
    batch, _, sequence, _ = static_shape(query, "the query")
    if attributes.get("do_rotary", 0):
        first = inputs[9] if inputs[9] is None else _first(inputs[9])
        tables = rows_at(first, batch, sequence, inputs[7], inputs[8])
        query, key = (turn(x, tables, bool(attributes.get("rotary_interleaved", 0))) for x in (query, key))
    scores = scores_of(query, _repeated(key, heads), attributes)
    if limit := float(attributes.get("softcap", 0.0)):
        inner = emit(relax.op.tanh(scores / scalar(limit, scores)))
        scores = emit(inner * scalar(limit, scores))
    if inputs[10] is not None:
        scores = emit(scores + inputs[10])
    mask = _mask(inputs[5], batch, sequence, attributes, dtype_of(query))
    scores = scores if mask is None else emit(scores + mask)
    weights = _weights(scores, inputs[11], bool(attributes.get("smooth_softmax", 0)))
    context = joined_heads(emit(relax.op.matmul(weights, _repeated(value, heads))))
    return relax.Tuple([context, key, value][: outputs_of(attributes)])


def _cached(inputs: Any, attributes: Attributes, heads: int, groups: int) -> Any:
    """The outputs of a node with a past: the present is the past with new rows in it."""
    operands = rows_of(inputs, heads, groups, rank=3)
    batch = static_shape(operands["query"], "the query")[0]
    for role, number in (("key", 3), ("value", 4)):
        had, size = static_shape(inputs[number], f"past_{role}"), static_shape(operands[role], "an operand")[3]
        if (*had[:2], had[3]) != (batch, groups, size):
            raise Refusal(f"past_{role} has shape {had}; ({batch}, {groups}, rows, {size}) fits")
    if static_shape(inputs[3], "past_key")[2] != static_shape(inputs[4], "past_value")[2]:
        raise Refusal("past_key and past_value have room for unequal numbers of rows")
    if inputs[10] is not None:
        raise Refusal("attention_bias of an attention with a past, whose keys are counted at run time")
    operands["lengths"] = emit(relax.op.reshape(inputs[5], (batch,)))
    operands["total"] = emit(relax.op.reshape(inputs[6], (1,)))
    if attributes.get("do_rotary", 0):
        operands |= dict(zip(("cos", "sin", "positions"), inputs[7:10], strict=True))
    if inputs[11] is not None:
        operands["sink"] = emit(relax.op.reshape(inputs[11], (heads,)))
    return over_cache(operands, inputs, attributes, sources=(5, 9))


def rows_of(inputs: Any, heads: int, groups: int, rank: int) -> dict[str, Any]:
    """ "query", and new rows of "key" and "value", (batch, steps, heads, size); all are one where they come as one.

    Args:
        rank: of the operands: 3, or 2 of tokens, which are a batch of one step each.

    Raises:
        Refusal: their shapes are others.
    """
    counts = (heads, groups, groups) if inputs[1] is not None else (heads + 2 * groups,)
    rows = []
    for x, count in zip(inputs, counts, strict=False):
        shape = static_shape(x, "an operand of attention")
        if len(shape) != rank or shape[-1] % count:
            raise Refusal(f"an operand of shape {shape}; {rank} dimensions, the last one of {count} heads, fit")
        lead = shape[:-1] if rank == 3 else (*shape[:-1], 1)
        rows.append(emit(relax.op.reshape(x, (*lead, count, shape[-1] // count))))
    return dict(zip(("query", "key", "value"), rows if len(rows) == 3 else rows * 3, strict=True))


def over_cache(operands: dict[str, Any], inputs: Any, attributes: Attributes, sources: tuple[int, int]) -> Any:
    """The outputs of a node over a cache: the attention, and keys and values with new rows in them.

    Args:
        operands: of :func:`rows_of`, and what else attention reads, by its role; None for what is left out.
        inputs: of the node: the fourth and fifth are the past.
        sources: numbers of the inputs that an error about a length, and a position, names.

    Raises:
        Refusal: a head has no room for all that is turned.
    """
    heads, groups = (count_of(attributes, name) for name in ("num_heads", "kv_num_heads"))
    roles = tuple(role for role in ROLES if operands.get(role) is not None)
    appended = tuple(role for role in roles if role != "sink")
    size = static_shape(operands["query"], "the query")[3]
    turned, pairs = static_shape(operands["cos"], "the cosines") if "cos" in roles else (0, 0)
    if 2 * pairs > size:
        raise Refusal("more cosines than pairs in a head")
    joint, interleaved = inputs[1] is None, bool(attributes.get("rotary_interleaved", 0))
    names = [*graph_of(attributes).node.input, *[""] * 5]
    checked = {"source": names[sources[0]], "position_source": names[sources[1]], "turned": turned}
    key = Append(appended, heads if joint else 0, interleaved, **checked)
    rest = tuple(role for role in appended if role not in ("cos", "sin"))
    value = Append(rest, heads + groups if joint else 0, **checked)
    keys = emit(key.call({**operands, "past": inputs[3], "new": operands["key"]}))
    values = emit(value.call({**operands, "past": inputs[4], "new": operands["value"]}))
    says = Attention(
        roles, 0, interleaved, heads, scale_of(attributes, size), float(attributes.get("softcap", 0.0)),
        max(int(attributes.get("local_window_size", -1)), 0), bool(attributes.get("causal", 1)),
        bool(attributes.get("smooth_softmax", 0)),
    )  # fmt: skip
    context = emit(says.call({**operands, "keys": keys, "values": values}))
    joined = emit(relax.op.reshape(context, (*static_shape(inputs[0], "the query")[:-1], -1)))
    return relax.Tuple([joined, keys, values][: outputs_of(attributes)])


def _repeated(x: Any, heads: int) -> Any:
    """Heads of keys or values, each as often as there are heads of queries for it."""
    groups = static_shape(x, "keys and values")[1]
    if groups == heads:
        return x
    return emit(relax.op.take(x, constant(np.arange(heads) // (heads // groups)), 1, mode="wrap"))


def _check(inputs: Any, attributes: Attributes) -> None:
    """Raises Refusal for what onnxruntime's CPU lacks or refuses, or is not of floats."""
    for number, name in _REFUSED.items():
        if inputs[number] is not None:
            raise Refusal(f"{name}: a quantized or normalized cache")
    if attributes.get("do_rotary", 0) and (inputs[7] is None or inputs[8] is None):
        raise Refusal("do_rotary without cos_cache and sin_cache")
    if attributes.get("sliding_window_cache", 0) or attributes.get("qk_output", 0):
        raise Refusal("sliding_window_cache or qk_output")
    if not attributes.get("causal", 1) and int(attributes.get("local_window_size", -1)) > 0:
        raise Refusal("local_window_size of an attention that is not causal")
    if any(text(attributes, name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type")):
        raise Refusal("a quantized cache")


def _operands(inputs: Any, heads: int, groups: int) -> list[Any]:
    """Query, key and value as heads, (batch, heads, sequence, size); they may come as one."""
    if inputs[1] is not None:
        return [split_heads(inputs[0], heads), split_heads(inputs[1], groups), split_heads(inputs[2], groups)]
    size = static_shape(inputs[0], "the packed operands")[2] // (heads + 2 * groups)
    stops = [heads, heads + groups, heads + 2 * groups]
    parts = zip([0, *stops], stops, (heads, groups, groups), strict=False)
    return [split_heads(columns(inputs[0], start * size, stop * size), own) for start, stop, own in parts]


def _first(positions: Any) -> Any:
    """The position of the first token of a prompt, of which the others follow."""
    flat = emit(relax.op.reshape(positions, (-1,)))
    return emit(relax.op.strided_slice(flat, [0], [0], [1]))


def _mask(lengths: Any, batch: int, sequence: int, attributes: Attributes, dtype: str) -> Any:
    """The least float32 for keys that a query must not see, later, padded or before its window; None if it sees all."""
    rows, keys = np.arange(sequence)[:, None], np.arange(sequence)
    window, hidden = int(attributes.get("local_window_size", -1)), np.zeros((sequence, sequence), bool)
    if attributes.get("causal", 1):
        hidden |= keys > rows
    if window > 0:
        hidden |= keys <= rows - window
    known = numpy_of(lengths)
    fixed = constant(np.where(hidden, LEAST, 0), dtype) if hidden.any() else None
    if attributes.get("causal", 1) or (known is not None and (known + 1 >= sequence).all()):
        return fixed  # what is padded comes after every query that counts
    ends = emit(relax.op.reshape(lengths, (batch, 1, 1, 1)))
    padded = emit(relax.op.greater(constant(keys, dtype_of(lengths)), ends))
    return emit(relax.op.where(padded, relax.const(LEAST, dtype), relax.const(0.0, dtype)))


def _weights(scores: Any, sink: Any, smooth: bool) -> Any:
    """Softmax over keys; with a sink, one more key of that score (0 if it is `smooth`) that has no value."""
    if sink is None and not smooth:
        return emit(relax.op.nn.softmax(scores, -1))
    batch, heads, queries, keys = static_shape(scores, "the scores")
    score = relax.const(0.0, dtype_of(scores)) if sink is None else emit(relax.op.reshape(sink, (1, heads, 1, 1)))
    column = emit(relax.op.broadcast_to(score, (batch, heads, queries, 1)))
    return columns(emit(relax.op.nn.softmax(relax.op.concat([scores, column], -1), -1)), 0, keys)


# ------------------------------------------------------------ pages
@converts("PagedAttention", MICROSOFT)
def paged_attention(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """PagedAttention(q, k, v, key pages, value pages, starts, lengths before, table, cos, sin).

    q is (tokens, heads * size), or of all three where k and v are left out; pages are (pages, rows, kv_heads, size).
    """
    heads, groups = (count_of(attributes, name) for name in ("num_heads", "kv_num_heads"))
    operands = rows_of(inputs, heads, groups, rank=2)
    tokens, _, _, size = static_shape(operands["query"], "the query")
    pages = static_shape(inputs[3], "key_cache")
    if heads % groups or len(pages) != 4 or pages[2:] != (groups, size):
        raise Refusal(f"key_cache of shape {pages}; (pages, rows, {groups}, {size}) fits")
    if static_shape(inputs[4], "value_cache") != pages:
        raise Refusal("key_cache and value_cache of unequal shapes")
    operands |= _places(inputs, tokens)
    if attributes.get("do_rotary", 0):
        if inputs[8] is None or inputs[9] is None:
            raise Refusal("do_rotary without cos_cache and sin_cache")
        operands |= {"cos": inputs[8], "sin": inputs[9]}
    return over_cache(operands, inputs, attributes, sources=(6, 7))


def _places(inputs: Any, tokens: int) -> dict[str, Any]:
    """The sequence of each token, its position, which is how many there are then, less one, and the table.

    Raises:
        Refusal: shapes that fit no number of sequences.
    """
    starts, before, table = (static_shape(inputs[number], _INPUTS[number]) for number in (5, 6, 7))
    if len(table) != 2 or before != table[:1] or starts != (table[0] + 1,):
        raise Refusal(f"{starts} starts, {before} lengths and a table of shape {table}; (b + 1), (b) and (b, n) fit")
    place = constant(np.arange(tokens), "int32")
    column = emit(relax.op.reshape(place, (tokens, 1)))
    begun = relax.op.greater_equal(column, emit(relax.op.strided_slice(inputs[5], [0], [1], [table[0]])))
    sequences = emit(relax.op.sum(emit(relax.op.astype(emit(begun), "int32")), 1))
    first = emit(relax.op.take(inputs[5], sequences, 0, mode="clip"))
    rows = emit(relax.op.take(inputs[6], sequences, 0, mode="clip"))
    return {"lengths": emit(rows + emit(place - first)), "sequences": sequences, "table": inputs[7]}
