"""What attention operators share: heads apart and joined, masks as they are added to scores, and the product itself.

    (batch, sequence, heads * size)   ->   (batch, heads, sequence, size)

All is written as exporters of plain ONNX write it, so that the same pass finds the attention in it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import Attributes, constant, emit, scalar, static_shape

_SWAP = [0, 2, 1, 3]
#: What onnxruntime adds to the score of a key that comes after its query.
LEAST = float(np.finfo(np.float32).min)


def count_of(attributes: Attributes, name: str) -> int:
    """A number of heads that a node must state.

    Raises:
        Refusal: it does not, or states less than 1.
    """
    count = int(attributes.get(name, 0))
    if count < 1:
        raise Refusal(f"attribute {name!r} is {attributes.get(name, 'missing')}; 1 or more is needed")
    return count


def split_heads(x: Any, heads: int) -> Any:
    """(batch, sequence, heads * size) -> (batch, heads, sequence, size); of four dimensions it is that already."""
    shape = static_shape(x, "an operand of attention")
    if len(shape) == 4:
        return x
    if len(shape) != 3 or shape[2] % heads:
        raise Refusal(f"an operand of shape {shape}, which {heads} heads do not divide")
    return emit(relax.op.permute_dims(relax.op.reshape(x, (*shape[:2], heads, shape[2] // heads)), _SWAP))


def joined_heads(x: Any) -> Any:
    """(batch, heads, sequence, size) -> (batch, sequence, heads * size)."""
    batch, heads, sequence, size = static_shape(x, "the result of attention")
    return emit(relax.op.reshape(emit(relax.op.permute_dims(x, _SWAP)), (batch, sequence, heads * size)))


def scores_of(query: Any, key: Any, attributes: Attributes) -> Any:
    """query key^T times `scale`, by default one over the root of the size of a head: (batch, heads, queries, keys)."""
    scores = emit(relax.op.matmul(query, relax.op.permute_dims(key, [0, 1, 3, 2])))
    return emit(scores * scalar(scale_of(attributes, static_shape(query, "the query")[3]), scores))


def scale_of(attributes: Attributes, size: int) -> float:
    """What scores of heads of a size are multiplied by: `scale`, or one over the root of the size."""
    return float(attributes.get("scale", 0.0)) or 1.0 / math.sqrt(size)


def attend(query: Any, key: Any, value: Any, addends: Sequence[Any], attributes: Attributes) -> tuple[Any, Any]:
    """softmax(query key^T * scale + addends) value, heads joined; and what the softmax is of.

    Args:
        query, key, value: (batch, heads, sequence, size).
        addends: broadcast to (batch, heads, queries, keys); None for one that is left out.
    """
    scores = scores_of(query, key, attributes)
    for addend in addends:
        scores = scores if addend is None else emit(scores + addend)
    weights = emit(relax.op.nn.softmax(scores, -1))
    return joined_heads(emit(relax.op.matmul(weights, value))), scores


def continued(past: Any, new: Any) -> Any:
    """Keys or values of the past, (batch, heads, steps, size), with new ones behind."""
    if past is None or 0 in static_shape(past, "a past state"):
        return new
    return emit(relax.op.concat([past, new], 2))


# ------------------------------------------------------------ masks
def mask_of(mask: Any, query: Any, key: Any, attributes: Attributes, past: int) -> Any:
    """What is added to scores for a mask, and for what comes after a query if the attention is `unidirectional`.

    Args:
        mask: None, or of integers: [batch, keys] or [batch, queries, keys], 0 where a key is left out; [batch], the
            number of keys that count; [2 * batch], the number and behind it the first ones.
        query, key: (batch, heads, sequence, size).
        past: keys before those of the queries' own sequence, of which the first one comes at the first query.

    Returns:
        A tensor that broadcasts to (batch, heads, queries, keys): `mask_filter_value` (-10,000 by default) for a key
        that is left out, the least float32 for a later one; None if no key is.
    """
    batch, _, queries, _ = static_shape(query, "the query")
    keys = static_shape(key, "the key")[2]
    left_out = None if mask is None else _left_out(mask, batch, queries, keys)
    addend = None
    if left_out is not None:
        low = float(attributes.get("mask_filter_value", -10000.0))
        addend = emit(relax.op.where(left_out, scalar(low, query), scalar(0.0, query)))
    if not attributes.get("unidirectional", 0) or queries == 1:
        return addend
    later = np.arange(keys) > np.arange(queries)[:, None] + past
    later[-1] = False  # in onnxruntime the last query sees all keys, however many there are
    least = constant(np.where(later, LEAST, 0), dtype_of(query))
    return least if addend is None else emit(relax.op.where(constant(later), least, addend))


def _left_out(stated: Any, batch: int, queries: int, keys: int) -> Any:
    """(batch, 1, queries or 1, keys), true where a key does not count."""
    shape = static_shape(stated, "the mask")
    if shape in ((batch, keys), (batch, queries, keys)):
        mask = emit(relax.op.reshape(stated, (batch, 1, -1, keys)))
        return emit(relax.op.less_equal(mask, scalar(0, stated)))
    if shape not in ((batch,), (2 * batch,)):
        shapes = f"({batch},), ({2 * batch},), ({batch}, {keys}) or ({batch}, {queries}, {keys})"
        wrong = f"a mask of shape {shape} for {batch} sequences, {queries} queries and {keys} keys"
        raise Refusal(f"{wrong}; it can be {shapes}")
    places = constant(np.arange(keys), dtype_of(stated))
    parts = [relax.op.strided_slice(stated, [0], [at], [at + batch]) for at in range(0, shape[0], batch)]
    ends, *starts = (emit(relax.op.reshape(part, (batch, 1, 1, 1))) for part in parts)
    out = emit(relax.op.greater_equal(places, ends))
    return emit(relax.op.logical_or(out, relax.op.less(places, starts[0]))) if starts else out
