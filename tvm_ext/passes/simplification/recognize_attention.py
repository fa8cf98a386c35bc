"""Attention: two matmuls with a softmax between them become one operator.

    s = matmul(q, kt) * scale + mask;  y = matmul(softmax(s), v)
    ->
    y = transpose(attention(transpose(q), transpose(kt), transpose(v), mask))

`relax.nn.attention` takes (batch, sequence, heads, size). Exporters split heads by a reshape to that order and a
transpose, and undo both behind, so most of these transposes meet another one; what is left is another reading of the
same memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, IRModule

from ...core.graph.relax_graph import attrs_of, dtype_of, op_name, scalar_of, shape_of
from ...core.passes import CompileContext, Pass, PassResult
from .rules import Rule, Site, rewrite_by_rules

#: Swaps sequence and heads; its own inverse.
_SWAP = (0, 2, 1, 3)


class RecognizeAttention(Pass):
    """Find scaled dot-product attention however it is written.

    Before -> after::

        matmul(softmax(matmul(q, kt) * c + m), v)    -> attention(q, k, v, m, scale=c)
        matmul(softmax(matmul(q, kt) / c), v)        -> attention(q, k, v, scale=1/c)
        matmul(softmax(matmul(q * c, kt * c)), v)    -> attention(q, k, v, scale=c*c)

    q, kt, v are float32 of one batch; the mask broadcasts against the scores and is added after scaling. What looks
    like attention and is none is reported with the reason.
    """

    name = "recognize-attention"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return rewrite_by_rules(mod, ctx, _RULES)


@dataclass(frozen=True)
class _Scores:
    """matmul(query, key) * scale + the sum of masks; the variables on the way."""

    query: Any
    key: Any
    scale: float
    masks: tuple[Any, ...]
    through: tuple[Any, ...]


def _attention(call: Call, site: Site) -> Any:
    weights, value = call.args
    softmax = site.inner(weights, "relax.nn.softmax")
    if softmax is None:
        return None
    scores = _scores(softmax, weights, site)
    reason = scores if isinstance(scores, str) else _why_not(scores, value, site)
    if reason or isinstance(scores, str):
        return site.rw.skip(f"no attention: {reason}")
    for variable in (weights, *scores.through):
        site.take_over(variable)
    return site.replaced(_build(scores, value, site), f"attention of {len(scores.masks)} masks, scale {scores.scale:g}")


def _scores(softmax: Call, weights: Any, site: Site) -> _Scores | str:
    """What the softmax is of; or why that is not the scores of an attention."""
    rank = len(shape_of(weights) or ())
    if int(attrs_of(softmax, ["axis"])["axis"]) % max(rank, 1) != rank - 1:
        return "the softmax is not over the last axis"
    if not site.sole(weights):
        return "the weights are read elsewhere too"
    expr, scale, masks, through = softmax.args[0], 1.0, [], []
    while op_name(value := site.rw.definition(expr)) != "relax.matmul":
        if not site.sole(expr):
            return "the scores are read elsewhere too"
        through.append(expr)
        name = op_name(value)
        if name == "relax.add" and (sides := _mask(value, site)):
            if scale != 1.0:
                return "a mask is added before scaling"
            expr, mask = sides
            masks.append(mask)
        elif name in ("relax.multiply", "relax.divide") and (factor := _factor(value)) is not None:
            expr, scale = value.args[0], scale * factor
        else:
            return f"between matmul and softmax stands {name.removeprefix('relax.') or 'no operator'}"
    if not site.sole(expr):
        return "the scores are read elsewhere too"
    through.append(expr)
    operands = []
    for operand in value.args:
        inner, factor = _unscaled(operand, site)
        through += [operand] if inner is not operand else []
        operands.append(inner)
        scale *= factor
    query, key = operands
    return _Scores(query, key, scale, tuple(masks), tuple(through))


def _mask(add: Call, site: Site) -> tuple[Any, Any] | None:
    """(scores, mask) of a sum: the scores are the side that leads to a matmul and has the shape of the sum."""
    left, right = add.args
    for scores, mask in ((left, right), (right, left)):
        if shape_of(scores) == shape_of(add) and _leads_to_matmul(scores, site):
            return scores, mask
    return None


def _leads_to_matmul(expr: Any, site: Site) -> bool:
    value = site.rw.definition(expr)
    while op_name(value) in ("relax.add", "relax.multiply", "relax.divide"):
        if op_name(value) == "relax.add":
            return any(_leads_to_matmul(a, site) for a in value.args)
        value = site.rw.definition(value.args[0])
    return op_name(value) == "relax.matmul"


def _factor(call: Call) -> float | None:
    """What a multiplication or division by a scalar constant multiplies by."""
    number = scalar_of(call.args[1])
    if number is None or not number:
        return None
    return float(number) if op_name(call) == "relax.multiply" else 1.0 / float(number)


def _unscaled(operand: Any, site: Site) -> tuple[Any, float]:
    """An operand of the first matmul without the number it is multiplied by, and that number."""
    value = site.rw.definition(operand)
    if op_name(value) not in ("relax.multiply", "relax.divide") or not site.sole(operand):
        return operand, 1.0
    factor = _factor(value)
    if factor is None or shape_of(value.args[0]) != shape_of(operand):
        return operand, 1.0
    return value.args[0], factor


def _why_not(scores: _Scores, value: Any, site: Site) -> str:
    """Why shapes or types do not fit; "" if they do."""
    tensors = [scores.query, scores.key, value, *scores.masks]
    shapes = [shape_of(t) for t in tensors]
    if any(s is None for s in shapes):
        return "a shape is only known at run time"
    if any(dtype_of(t) != "float32" for t in tensors):
        return f"dtypes {', '.join(sorted({dtype_of(t) for t in tensors}))}, not float32"
    query, key, values, *masks = (s or () for s in shapes)
    if min(len(query), len(key), len(values)) < 2 or not query[:-2] == key[:-2] == values[:-2]:
        return f"batch dimensions of {query}, {key} and {values} differ"
    if not math.isfinite(scores.scale):
        return f"the scale is {scores.scale}"
    for mask in masks:
        if not mask or mask[-1] != key[-1] or (len(query) > 4 and len(mask) > 2):
            return f"a mask of shape {mask} for {key[-1]} keys"
    return ""


def _build(scores: _Scores, value: Any, site: Site) -> Any:
    emit, rank = site.rw.emit, len(shape_of(value) or ())
    query = _heads(scores.query, (0, 1), site)
    key = _heads(scores.key, (1, 0), site)
    values = _heads(value, (0, 1), site)
    masks = [_mask_of_four(m, rank, site) for m in scores.masks]
    bias = None
    for mask in masks:
        bias = mask if bias is None else emit(relax.op.add(bias, mask))
    scale = tirx.FloatImm("float32", scores.scale)
    result = emit(relax.op.nn.attention(query, key, values, bias, scale))
    if rank == 4:
        return relax.op.permute_dims(result, _SWAP)
    return relax.op.reshape(result, shape_of(site.var))


def _heads(expr: Any, last: tuple[int, int], site: Site) -> Any:
    """(..., S, D), or (..., D, S) if `last` is (1, 0), as (batch, S, heads, D)."""
    shape = shape_of(expr) or ()
    if len(shape) == 4:
        return _transposed(expr, (0, 2 + last[0], 1, 2 + last[1]), site)
    lead = len(shape) - 2
    if last == (1, 0):
        expr = _transposed(expr, (*range(lead), lead + 1, lead), site)
    sequence, size = (shape[lead + i] for i in last)
    return site.rw.emit(relax.op.reshape(expr, (math.prod(shape[:lead]), sequence, 1, size)))


def _transposed(expr: Any, axes: Sequence[int], site: Site) -> Any:
    """`expr` with its axes in this order; a transpose that made it is joined."""
    inner = site.inner(expr, "relax.permute_dims")
    if inner is not None:
        before = attrs_of(inner, ["axes"])["axes"] or tuple(reversed(range(len(axes))))
        axes, expr = [int(before[a]) % len(axes) for a in axes], inner.args[0]
    return expr if list(axes) == sorted(axes) else site.rw.emit(relax.op.permute_dims(expr, list(axes)))


def _mask_of_four(mask: Any, rank: int, site: Site) -> Any:
    """A mask as (batch, heads, queries, keys), where a dimension may be 1."""
    shape = shape_of(mask) or ()
    if rank == 4 or len(shape) <= 2:
        wanted = (*(1,) * (4 - len(shape)), *shape)
    else:
        wanted = (shape[0], 1, *shape[1:])
    return mask if wanted == shape else site.rw.emit(relax.op.reshape(mask, wanted))


_RULES: dict[str, tuple[Rule, ...]] = {"relax.matmul": (_attention,)}
