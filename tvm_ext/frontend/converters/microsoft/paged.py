"""PagedAttention: tokens of several sequences in a row, over keys and values in pages that sequences may share.

of token t:    sequence b, for which starts[b] <= t < starts[b + 1]      position past[b] + t - starts[b]

onnxruntime has no kernel of it for CPUs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from ....ops.kv_cache import Append, Attention
from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, constant, converts, emit, graph_of, outputs_of, static_shape
from .heads import count_of

_INPUTS = ("query", "key", "value", "key_cache", "value_cache", "cumulative_sequence_length", "past_seqlens",
           "block_table", "cos_cache", "sin_cache")  # fmt: skip
_TABLES = ("cos", "sin")


@converts("PagedAttention", MICROSOFT)
def paged_attention(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """PagedAttention(q, k, v, key pages, value pages, starts, lengths before, table, cos, sin).

    q is (tokens, heads * size), or of all three where k and v are left out; pages are (pages, rows, kv_heads, size).
    """
    heads, groups = (count_of(attributes, name) for name in ("num_heads", "kv_num_heads"))
    operands = _tokens(inputs, heads, groups)
    tokens, _, _, size = static_shape(operands["query"], "the query")
    pages = static_shape(inputs[3], "key_cache")
    if heads % groups or len(pages) != 4 or pages[2:] != (groups, size):
        raise Refusal(f"key_cache of shape {pages}; (pages, rows, {groups}, {size}) fits")
    if static_shape(inputs[4], "value_cache") != pages:
        raise Refusal("key_cache and value_cache of unequal shapes")
    turned = bool(attributes.get("do_rotary", 0))
    if turned and (inputs[8] is None or inputs[9] is None):
        raise Refusal("do_rotary without cos_cache and sin_cache")
    if turned and 2 * static_shape(inputs[8], "the cosines")[1] > size:
        raise Refusal("more cosines than pairs in a head")
    operands |= _places(inputs, tokens)
    operands |= dict(zip(_TABLES, inputs[8:10], strict=True))
    roles = ("lengths", *(_TABLES if turned else ()), "sequences", "table")
    rest = tuple(role for role in roles if role not in _TABLES)
    joint, interleaved = inputs[1] is None, bool(attributes.get("rotary_interleaved", 0))
    names = graph_of(attributes).node.input
    rows = static_shape(inputs[8], "the cosines")[0] if turned else 0
    checked = {"source": names[6], "position_source": names[7], "turned": rows}
    key = Append(roles, heads if joint else 0, interleaved, **checked)
    value = Append(rest, heads + groups if joint else 0, **checked)
    keys = emit(key.call({**operands, "past": inputs[3], "new": operands["key"]}))
    values = emit(value.call({**operands, "past": inputs[4], "new": operands["value"]}))
    says = Attention(
        roles, 0, interleaved, heads, float(attributes.get("scale", 0.0)) or 1.0 / math.sqrt(size),
        float(attributes.get("softcap", 0.0)), max(int(attributes.get("local_window_size", -1)), 0),
    )  # fmt: skip
    context = emit(says.call({**operands, "keys": keys, "values": values}))
    joined = emit(relax.op.reshape(context, (tokens, heads * size)))
    return relax.Tuple([joined, keys, values][: outputs_of(attributes)])


def _tokens(inputs: Any, heads: int, groups: int) -> dict[str, Any]:
    """Query, and new rows of keys and values, (tokens, 1, heads, size); all three are one where they come as one."""
    counts = (heads, groups, groups) if inputs[1] is not None else (heads + 2 * groups,)
    rows = []
    for x, count in zip(inputs, counts, strict=False):
        shape = static_shape(x, "an operand of attention")
        if len(shape) != 2 or shape[1] % count:
            raise Refusal(f"an operand of shape {shape}; (tokens, width of {count} heads) fits")
        rows.append(emit(relax.op.reshape(x, (shape[0], 1, count, shape[1] // count))))
    return dict(zip(("query", "key", "value"), rows if len(rows) == 3 else rows * 3, strict=True))


def _places(inputs: Any, tokens: int) -> dict[str, Any]:
    """The sequence of each token, its position, which is how many there are then, less one, and the table.

    Raises:
        Refusal: shapes that fit no number of sequences.
    """
    starts, before, table = (static_shape(inputs[number], _INPUTS[number]) for number in (5, 6, 7))
    if len(table) != 2 or before != table[:1] or starts != (table[0] + 1,):
        raise Refusal(f"{starts} starts, {before} lengths and a table of shape {table}; (b + 1), (b) and (b, n) fit")
    place = constant(np.arange(tokens), "int32")
    begun = relax.op.greater_equal(
        emit(relax.op.reshape(place, (tokens, 1))), emit(relax.op.strided_slice(inputs[5], [0], [1], [table[0]]))
    )
    sequences = emit(relax.op.sum(emit(relax.op.astype(emit(begun), "int32")), 1))
    first = emit(relax.op.take(inputs[5], sequences, 0, mode="clip"))
    rows = emit(relax.op.take(inputs[6], sequences, 0, mode="clip"))
    return {"lengths": emit(rows + emit(place - first)), "sequences": sequences, "table": inputs[7]}
