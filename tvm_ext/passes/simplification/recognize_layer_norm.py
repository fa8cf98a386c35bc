"""Layer normalization that exporters write out, made one operator again."""

import math
from typing import Any, NamedTuple

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import attrs_of, dtype_of, op_name, scalar_of, shape_of
from ...core.passes import CompileContext, Pass, PassResult
from ..steps.constants import constant, view_of
from .rules import Site, rewrite_by_rules

_NORM = "relax.nn.layer_norm"
#: What TVM's operator takes.
_TYPES = ("float16", "float32")


class RecognizeLayerNorm(Pass):
    """Find the normalization, then take its weight and bias in.

    Before -> after::

        d = x - mean(x, axes=[-1], keepdims=True)
        d / sqrt(mean(d * d) + epsilon)            -> layer_norm(x, 1, 0)    # also d * rsqrt(...), d * (1 / sqrt(...))
        layer_norm(x, g, b) * c                    -> layer_norm(x, g * c, b * c)
        layer_norm(x, g, b) + c                    -> layer_norm(x, g, b + c)

    Axes are the last ones, c is a constant of their shape. Ba, Kiros and Hinton, "Layer Normalization" (2016).
    """

    name = "recognize-layer-norm"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return rewrite_by_rules(mod, ctx, _RULES)


class _Variance(NamedTuple):
    """mean(d * d, axes) + epsilon."""

    deviation: Any
    axes: tuple[int, ...]
    epsilon: float


def _divided(call: Call, site: Site) -> Any:
    """d / sqrt(variance)"""
    root = site.rw.definition(call.args[1])
    return _normalized(call.args[0], root.args[0], site) if op_name(root) == "relax.sqrt" else None


def _multiplied(call: Call, site: Site) -> Any:
    """d * rsqrt(variance), d * (1 / sqrt(variance)), factors in any order"""
    for deviation, inverse in (call.args, reversed(call.args)):
        value = site.rw.definition(inverse)
        if op_name(value) == "relax.divide" and scalar_of(value.args[0]) == 1:
            root = site.rw.definition(value.args[1])
            value = root if op_name(root) == "relax.sqrt" else None
        elif op_name(value) != "relax.rsqrt":
            continue
        if value is not None and (new := _normalized(deviation, value.args[0], site)) is not None:
            return new
    return None


def _normalized(deviation: Any, variance: Any, site: Site) -> Any:
    parts = _variance(variance, site)
    if parts is None or not parts.deviation.same_as(deviation):
        return None
    x = _centred(deviation, parts.axes, site)
    shape = shape_of(x) if x is not None else None
    if shape is None or not site.same_type(x):
        return None
    if (why := _refusal(parts, shape, dtype_of(x))) is not None:
        return site.rw.skip(why)
    one, zero = (constant(np.full([shape[a] for a in parts.axes], v, dtype_of(x))) for v in (1, 0))
    site.take_over(deviation, x)
    site.take_over(variance, x)
    site.rw.fire(f"made one layer_norm over dimensions {list(parts.axes)}")
    return relax.op.nn.layer_norm(x, one, zero, list(parts.axes), parts.epsilon)


def _variance(expr: Any, site: Site) -> _Variance | None:
    add = site.rw.definition(expr)
    epsilon = scalar_of(add.args[1]) if op_name(add) == "relax.add" else None
    mean = site.inner(add.args[0], "relax.mean") if epsilon is not None else None
    if mean is None or epsilon is None or (axes := _axes(mean)) is None:
        return None
    deviation = _squared(mean.args[0], site)
    return None if deviation is None else _Variance(deviation, axes, float(epsilon))


def _axes(mean: Call) -> tuple[int, ...] | None:
    """Dimensions of a mean that keeps them as 1, sorted; None if it drops them."""
    attrs, rank = attrs_of(mean, ["axis", "keepdims"]), int(mean.args[0].ty.ndim)
    if attrs["axis"] is None or not attrs["keepdims"]:
        return None
    return tuple(sorted(int(a) % rank for a in attrs["axis"]))


def _squared(expr: Any, site: Site) -> Any:
    """d of d * d, power(d, 2) or square(d); else None."""
    call = site.rw.definition(expr)
    name = op_name(call)
    same = name == "relax.multiply" and call.args[0].same_as(call.args[1])
    if same or name == "relax.square" or (name == "relax.power" and scalar_of(call.args[1]) == 2):
        return call.args[0]
    return None


def _centred(deviation: Any, axes: tuple[int, ...], site: Site) -> Any:
    """x of x - mean(x) over the same dimensions; else None."""
    call = site.rw.definition(deviation)
    mean = site.inner(call.args[1], "relax.mean") if op_name(call) == "relax.subtract" else None
    if mean is None or not mean.args[0].same_as(call.args[0]) or _axes(mean) != axes:
        return None
    return call.args[0]


def _refusal(parts: _Variance, shape: tuple[int, ...], dtype: str) -> str | None:
    rank = len(shape)
    if dtype not in _TYPES:
        return f"a normalization of {dtype}: layer_norm takes {' and '.join(_TYPES)}"
    if list(parts.axes) != list(range(rank - len(parts.axes), rank)):
        return f"a normalization over dimensions {list(parts.axes)} of {rank}: layer_norm takes the last ones"
    if not (parts.epsilon >= 0 and math.isfinite(parts.epsilon)):
        return f"a normalization with an epsilon of {parts.epsilon:g}"
    return None


# ------------------------------------------------------------ weight and bias
def _weighted(call: Call, site: Site) -> Any:
    """layer_norm(x, g, b) * c"""
    if (parts := _norm_and_constant(call, site)) is None:
        return None
    norm, gamma, beta, c = parts
    return _with(norm, gamma * c, beta * c, "weight", call, site)


def _shifted(call: Call, site: Site) -> Any:
    """layer_norm(x, g, b) + c"""
    if (parts := _norm_and_constant(call, site)) is None:
        return None
    norm, gamma, beta, c = parts
    return _with(norm, gamma, beta + c, "bias", call, site)


def _norm_and_constant(call: Call, site: Site) -> tuple[Call, np.ndarray, np.ndarray, np.ndarray] | None:
    """The layer norm, its weight and bias, and the constant operand of a call, in float64."""
    for operand, other in (call.args, reversed(call.args)):
        norm, c = site.inner(operand, _NORM), view_of(other)
        if norm is None or c is None or not site.same_type(operand):
            continue
        gamma, beta = (view_of(a) for a in norm.args[1:3])
        wide = None if gamma is None or beta is None else _broadcast(c, gamma.shape)
        if wide is None or gamma is None or beta is None or not (norm.attrs.center and norm.attrs.scale):
            return None
        if not site.sole(operand):
            site.rw.skip("the layer_norm is read elsewhere too")
            return None
        return norm, gamma.astype(np.float64), beta.astype(np.float64), wide
    return None


def _broadcast(c: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant operand as one of the normalized shape; None if it differs along other dimensions."""
    lead = c.ndim - len(shape)
    if any(d != 1 for d in c.shape[: max(lead, 0)]):
        return None
    return np.broadcast_to(c.reshape(c.shape[max(lead, 0) :]).astype(np.float64), shape)


def _with(norm: Call, gamma: np.ndarray, beta: np.ndarray, what: str, call: Call, site: Site) -> Any:
    dtype = dtype_of(site.var)
    with np.errstate(over="ignore"):
        weights = [constant(v, dtype) for v in (gamma, beta)]
    if not all(np.isfinite(w.value.numpy()).all() for w in weights):
        return site.rw.skip(f"the {what} of the layer_norm would not be finite")
    site.take_over(next(a for a in call.args if not isinstance(a, GenericConst)))
    site.rw.fire(f"{what} taken into the layer_norm")
    return Call(norm.op, [norm.args[0], *weights], norm.attrs, norm.ty_args)


_RULES = {"relax.divide": (_divided,), "relax.multiply": (_multiplied, _weighted), "relax.add": (_shifted,)}
