"""Constant factors and shifts around a convolution or matmul go into its weight and its bias."""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, IRModule

from ...core.graph.relax_graph import dtype_of, op_name
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.table import operators
from ..steps.constants import channel_constant, channel_vector, same_type
from ..steps.linear import Linear, linear_of
from .rules import Rule, Site, rewrite_by_rules


class FoldAffine(Pass):
    """Scale weights instead of activations; sum shifts at compile time.

    Before -> after (s, t, b: constants, one number or one a channel; W: constant weight of a convolution or matmul)::

        (W x) * s              -> (W s) x
        (W x + b) * s          -> (W s) x + b s
        (W x + b) + t          -> W x + (b + t)
        W (x * s)              -> (W s) x
        W (x + t)              -> W x + W t           # not if padded; changes what cancels: not with accuracy="exact"
        W (x * s + t)          -> (W s) (x + t / s)   # if padded: s leaves the zeros of the border zeros, t does not

    Grouped, depthwise and, but for shifts before them, transposed convolutions too. Products are made in float64 and
    rounded once, as in `fold-batch-norm`. What stands between must have no other reader.
    """

    name = "fold-affine"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return rewrite_by_rules(mod, ctx, _RULES)


# ------------------------------------------------------------ after
def _scale_after(call: Call, site: Site) -> Any:
    """(W x [+ b]) * s -> (W s) x [+ b s]"""
    u, s = call.args
    if (biased := _biased(u, site)) is None:
        return None
    linear, bias, between = biased
    scale = channel_vector(s, linear.rank, *linear.outputs)
    if scale is None or not site.same_type(u):
        return None
    weight = linear.scaled_outputs(scale)
    shift = None if bias is None else channel_constant(bias * scale, linear.rank, linear.outputs[0], dtype_of(u))
    if (why := weight if isinstance(weight, str) else _refusal(between, site)) is not None:
        return site.rw.skip(why)
    site.rw.absorb(*between)
    site.rw.fire(f"a factor taken into the weight of the {linear.name} before it")
    scaled = linear.with_weight(weight)
    return scaled if shift is None else relax.op.add(site.rw.emit(scaled), shift)


def _shift_after(call: Call, site: Site) -> Any:
    """(W x + b) + t -> W x + (b + t)"""
    u, t = call.args
    biased = _biased(u, site)
    if biased is None or biased[1] is None or not site.same_type(u):
        return None
    linear, bias, between = biased
    shift = channel_vector(t, linear.rank, *linear.outputs)
    if shift is None:
        return None
    if (why := _refusal(between[:1], site)) is not None:
        return site.rw.skip(why)
    site.rw.absorb(between[0])
    site.rw.fire(f"two biases of one {linear.name} summed")
    axis, dtype = linear.outputs[0], dtype_of(u)
    return relax.op.add(between[1], channel_constant(bias + shift, linear.rank, axis, dtype))


def _biased(u: Any, site: Site) -> tuple[Linear, np.ndarray | None, list[relax.Var]] | None:
    """(W, b or None, variables from `u` to W x) if u is W x or W x + b."""
    call = site.rw.definition(u)
    if not isinstance(u, relax.Var):
        return None
    if (linear := linear_of(call)) is not None:
        return linear, None, [u]
    if op_name(call) != "relax.add" or not isinstance(call.args[0], relax.Var) or not same_type(call.args[0], u):
        return None
    linear = linear_of(site.rw.definition(call.args[0]))
    bias = None if linear is None else channel_vector(call.args[1], linear.rank, *linear.outputs)
    return None if linear is None or bias is None else (linear, bias, [u, call.args[0]])


# ------------------------------------------------------------ before
def _scale_before(call: Call, site: Site) -> Any:
    """W (x * s) -> (W s) x"""
    linear = linear_of(call)
    if linear is None or (product := _product(linear, call.args[0], site)) is None:
        return None
    x, scale = product
    return _with_scaled_inputs(linear, scale, x, [call.args[0]], site)


def _shift_before(call: Call, site: Site) -> Any:
    """W (x [* s] + t) -> (W [s]) x + W t; if padded, W (x * s + t) -> (W s) (x + t / s)"""
    linear, add = linear_of(call), site.inner(call.args[0], "relax.add")
    if linear is None or add is None or not same_type(add.args[0], call.args[0]):
        return None
    shift = channel_vector(add.args[1], linear.rank, *linear.inputs)
    if shift is None:
        return None
    answer, product = linear.response(shift), _product(linear, add.args[0], site)
    if isinstance(answer, str):
        return _scale_before_shift(linear, add, product, shift, answer, site)
    why = _refusal([call.args[0]], site)
    if why is None and site.rw.ctx.options.accuracy == "exact":
        why = 'accuracy="exact": a shift folded through a sum of products would change what cancels'
    if why is not None:
        return site.rw.skip(why)
    site.take_over(call.args[0])
    moved = None if product is None else _with_scaled_inputs(linear, product[1], product[0], [add.args[0]], site)
    site.rw.fire(f"a shift taken through the {linear.name} into its bias")
    plain = Call(call.op, [add.args[0], call.args[1]], call.attrs, call.ty_args)
    bias = channel_constant(answer, linear.rank, linear.outputs[0], dtype_of(site.var))
    return relax.op.add(site.rw.emit(plain if moved is None else moved), bias)


_Product = tuple[Any, np.ndarray]


def _product(linear: Linear, operand: Any, site: Site) -> _Product | None:
    """(x, s) if an operand in the place of the data is x * s with a factor s for each input channel."""
    call = site.inner(operand, "relax.multiply")
    scale = None if call is None else channel_vector(call.args[1], linear.rank, *linear.inputs)
    return None if call is None or scale is None or not same_type(call.args[0], operand) else (call.args[0], scale)


def _scale_before_shift(
    linear: Linear, add: Call, product: _Product | None, shift: np.ndarray, reason: str, site: Site
) -> Any:
    if product is None:
        return site.rw.skip(reason)
    data, (x, scale) = linear.call.args[0], product
    with np.errstate(all="ignore"):
        moved = channel_constant(shift / scale, linear.rank, linear.inputs[0], dtype_of(data))
    if not np.isfinite(moved.value.numpy()).all():
        return site.rw.skip(f"{reason}, and divided by the factor before it, it is not finite")
    return _with_scaled_inputs(linear, scale, relax.op.add(x, moved), [data, add.args[0]], site)


def _with_scaled_inputs(linear: Linear, scale: np.ndarray, data: Any, between: list[Any], site: Site) -> Any:
    weight = linear.scaled_inputs(scale)
    if (why := weight if isinstance(weight, str) else _refusal(between, site)) is not None:
        return site.rw.skip(why)
    for var in between:
        site.take_over(var)
    site.rw.fire(f"a factor before the {linear.name} taken into its weight")
    return linear.with_weight(weight, site.rw.emit(data) if isinstance(data, Call) else data)


def _refusal(between: list[Any], site: Site) -> str | None:
    for var in between:
        if not site.sole(var):
            return f"{var.name} ({op_name(site.rw.definition(var)).removeprefix('relax.')}) is also read elsewhere"
    return None


_BEFORE: tuple[Rule, ...] = (_scale_before, _shift_before)
_RULES: dict[str, tuple[Rule, ...]] = {
    "relax.multiply": (_scale_after,),
    "relax.add": (_shift_after,),
    **{name: _BEFORE for row in operators() if row.is_linear for name in row.relax},
}
