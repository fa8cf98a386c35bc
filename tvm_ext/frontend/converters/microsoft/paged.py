"""PagedAttention: tokens of several sequences in a row, over keys and values in pages that sequences may share.

of token t:    sequence b, for which starts[b] <= t < starts[b + 1]      position past[b] + t - starts[b]

onnxruntime has no kernel of it for CPUs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, constant, converts, emit, static_shape
from .grouped import over_cache, rows_of
from .heads import count_of

_INPUTS = ("query", "key", "value", "key_cache", "value_cache", "cumulative_sequence_length", "past_seqlens",
           "block_table", "cos_cache", "sin_cache")  # fmt: skip


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
    begun = relax.op.greater_equal(
        emit(relax.op.reshape(place, (tokens, 1))), emit(relax.op.strided_slice(inputs[5], [0], [1], [table[0]]))
    )
    sequences = emit(relax.op.sum(emit(relax.op.astype(emit(begun), "int32")), 1))
    first = emit(relax.op.take(inputs[5], sequences, 0, mode="clip"))
    rows = emit(relax.op.take(inputs[6], sequences, 0, mode="clip"))
    return {"lengths": emit(rows + emit(place - first)), "sequences": sequences, "table": inputs[7]}
