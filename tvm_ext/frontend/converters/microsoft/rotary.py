"""Rotary position embedding: pairs of elements turned by an angle that grows with the position.

    y1, y2 = x1 cos - x2 sin, x2 cos + x1 sin

Su et al., "RoFormer" (2021). A pair is (i, i + size / 2) of a head, or two neighbours where it is interleaved.
"""

from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, constant, converts, emit, static_shape
from ..recurrent import columns
from ..selection.indexing import gather
from .heads import joined_heads, split_heads


@converts("RotaryEmbedding", MICROSOFT)
def rotary_embedding(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """RotaryEmbedding(x, positions, cos, sin) of (batch, sequence, hidden) or (batch, heads, sequence, size)."""
    x, positions, cos, sin = (inputs[i] for i in range(4))
    if attributes.get("is_packed_batching", 0) or float(attributes.get("scale", 1.0)) != 1.0:
        raise Refusal("is_packed_batching, or a scale other than 1")
    tables = static_shape(cos, "the cosines")
    if positions is None or len(tables) != 2:
        had = "no positions" if positions is None else f"cosines of shape {tables}"
        fix = "give positions and cosines of (positions, size / 2); ONNX's own RotaryEmbedding takes rows of each token"
        raise Refusal(f"{had}, which onnxruntime refuses", fix=fix)
    shape, half = static_shape(x, "what is turned"), tables[1]
    apart, stated = x, int(attributes.get("rotary_embedding_dim", 0))
    if len(shape) == 3:
        heads = int(attributes.get("num_heads", 0)) if stated else 0
        apart = split_heads(x, heads or shape[2] // (2 * half))
    batch, _, sequence, size = static_shape(apart, "what is turned")
    if 2 * half != (stated or size) and 0 not in shape:
        what = f"rotary_embedding_dim is {stated}" if stated else f"heads have {size} elements"
        raise Refusal(f"cosines of {half} pairs, where {what}; half as many pairs work")
    turned = turn(apart, rows_at(positions, batch, sequence, cos, sin), bool(attributes.get("interleaved", 0)))
    return joined_heads(turned) if len(shape) == 3 else turned


def rows_at(positions: Any, batch: int, sequence: int, cos: Any, sin: Any) -> tuple[Any, Any]:
    """Cosines and sines of each token, (batch or 1, 1, sequence, size / 2).

    Args:
        positions: (batch, sequence), or of one element: of the first token of each sequence; None for 0.
        cos, sin: (positions, size / 2).
    """
    own = (1,) if positions is None else static_shape(positions, "the positions")
    if own == (batch, sequence) and own != (1,):
        rows, places = batch, positions
    elif own in ((), (1,)):
        steps = constant(np.arange(sequence).reshape(1, -1), "int64" if positions is None else dtype_of(positions))
        rows, places = 1, steps if positions is None else emit(steps + positions)
    else:
        raise Refusal(f"positions of shape {own}; (1,) and ({batch}, {sequence}) work")
    picked = (emit(gather([table, places], {"axis": 0}, 13)) for table in (cos, sin))
    cosines, sines = (emit(relax.op.reshape(table, (rows, 1, sequence, -1))) for table in picked)
    return cosines, sines


def turn(x: Any, tables: tuple[Any, Any], interleaved: bool) -> Any:
    """(batch, heads, sequence, size) with the first elements of each head turned; what is behind them stays."""
    cos, sin = tables
    *lead, size = static_shape(x, "what is turned")
    if 0 in (*lead, size):
        return x
    half = static_shape(cos, "the cosines")[3]
    if 2 * half > size:
        raise Refusal(f"cosines of {half} pairs for heads of {size} elements")
    part = x if 2 * half == size else columns(x, 0, 2 * half)
    if interleaved:
        pairs = emit(relax.op.reshape(part, (*lead, half, 2)))
        first, second = (emit(relax.op.reshape(columns(pairs, i, i + 1), (*lead, half))) for i in (0, 1))
    else:
        first, second = columns(part, 0, half), columns(part, half, 2 * half)
    turned = [emit(first * cos - second * sin), emit(second * cos + first * sin)]
    if interleaved:
        whole = emit(relax.op.reshape(relax.op.stack(turned, axis=-1), (*lead, 2 * half)))
    else:
        whole = emit(relax.op.concat(turned, -1))
    return whole if 2 * half == size else emit(relax.op.concat([whole, columns(x, 2 * half, size)], -1))
