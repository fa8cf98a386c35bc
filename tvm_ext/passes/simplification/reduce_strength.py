"""Strength reduction: operators replaced by cheaper ones with the same value."""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, IRModule

from ...core.graph.relax_graph import attrs_of, dtype_of, op_name, scalar_of, shape_of
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.table import of
from ..steps.batch_norm import match_batch_norm
from ..steps.constants import channel_constant, constant, view_of
from .rules import Rule, Site, rewrite_by_rules


class ReduceStrength(Pass):
    """Replace operators by cheaper ones.

    Before -> after::

        x / 8                       -> x * 0.125            # exact
        x / 6                       -> x * (1 / 6)          # one rounding more: not with accuracy="exact", and not
                                                            # where a step (floor, x < c) is made of it
        power(x, 1), (x, 2), (x, 3) -> x, x * x, (x * x) * x
        power(x, 0.5)               -> sqrt(x)              # infinity at -inf, if x is not known to be 0 or more
        batch_norm(x, ...)[0]       -> x * scale + shift    # constants of shape (1, C, 1, 1)
        avg_pool2d over the map     -> mean(x, [2, 3])
        adaptive_avg_pool2d to 1x1  -> mean(x, [2, 3])
        dropout(x)[0]               -> x                    # in inference

    A batch norm after a convolution or matmul is better folded first (`fold-batch-norm`).
    """

    name = "reduce-strength"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return rewrite_by_rules(mod, ctx, _RULES)


def _divide_by_constant(call: Call, site: Site) -> Any:
    divisor = view_of(call.args[1])
    if divisor is None or divisor.dtype.kind != "f":
        return None
    tiny, largest = np.finfo(divisor.dtype).tiny, np.finfo(divisor.dtype).max
    wide = np.abs(divisor.astype(np.float64))
    if not ((wide >= 1.0 / float(largest)) & (wide <= 1.0 / float(tiny))).all():
        return None  # zero, NaN, infinity, or a reciprocal that is none of the normal numbers
    exact = bool((np.frexp(wide)[0] == 0.5).all())
    if not exact and site.rw.ctx.options.accuracy == "exact":
        return site.rw.skip('accuracy="exact": a multiplication by a reciprocal would round twice')
    if not exact and site.var in site.readers.tipping:
        return site.rw.skip("a step is made of the quotient: a reciprocal would decide ties otherwise")
    site.rw.fire(f"division by {'a power of two' if exact else 'a constant'} made a multiplication")
    return relax.op.multiply(call.args[0], constant(1.0 / divisor.astype(np.float64), str(divisor.dtype)))


def _power(call: Call, site: Site) -> Any:
    x, exponent = call.args[0], scalar_of(call.args[1])
    if exponent not in (0.5, 1, 2, 3) or not site.same_type(x):
        return None
    if exponent == 0.5 and not dtype_of(x).startswith("float"):
        return None
    site.rw.fire(f"power {exponent:g} made {_POWERS[float(exponent)]}")
    if exponent == 1:
        return x
    if exponent == 0.5:
        if _is_not_negative(x, site):
            return relax.op.sqrt(x)
        lowest, infinity = (constant(np.array(v), dtype_of(x)) for v in (-np.inf, np.inf))
        root, is_lowest = site.rw.emit(relax.op.sqrt(x)), site.rw.emit(relax.op.equal(x, lowest))
        return relax.op.where(is_lowest, infinity, root)
    square = relax.op.multiply(x, x)
    return square if exponent == 2 else relax.op.multiply(site.rw.emit(square), x)


def _is_not_negative(expr: Any, site: Site) -> bool:
    """Whether no element can be below 0, as a variance or a square cannot."""
    if (value := view_of(expr)) is not None:
        return bool((value >= 0).all())
    call = site.rw.definition(expr)
    name = op_name(call)
    if name == "relax.multiply" and call.args[0].same_as(call.args[1]):
        return True
    if name in ("relax.add", "relax.multiply", "relax.mean", "relax.sum"):
        return all(_is_not_negative(a, site) for a in call.args)
    return of(name).not_negative


_POWERS = {0.5: "a square root", 1.0: "nothing", 2.0: "a multiplication", 3.0: "two multiplications"}


def _batch_norm(value: Any, site: Site) -> Any:
    norm = match_batch_norm(site.binding, site.rw, site.readers)
    if norm is None or isinstance(norm, str):
        if norm:
            site.rw.skip(norm)
        return None
    rank, dtype = int(norm.out.ty.ndim), dtype_of(norm.out)
    scale, shift = (channel_constant(v, rank, norm.axis, dtype) for v in (norm.scale, norm.shift))
    site.take_over(norm.call)
    site.rw.fire("batch norm made a multiplication and an addition")
    return relax.op.add(site.rw.emit(relax.op.multiply(norm.data, scale)), shift)


def _spatial(call: Call) -> tuple[list[int], tuple[int, ...]] | None:
    """(dimensions, extents) of the height, width, ... of a pooling operand; None if they are not static."""
    layout, shape = str(call.attrs.layout), shape_of(call.args[0])
    if shape is None or len(layout) != len(shape) or str(call.attrs.out_layout) not in ("", layout):
        return None
    axes = [i for i, name in enumerate(layout) if name not in "NC"]
    return axes, tuple(shape[i] for i in axes)


def _mean_over(call: Call, axes: list[int], site: Site) -> Any:
    new = site.fits(relax.op.mean(call.args[0], axes, keepdims=True))
    if new is not None:
        site.rw.fire("average pooling over the whole map made a mean")
    return new


def _whole_average_pool(call: Call, site: Site) -> Any:
    spatial, attrs = _spatial(call), attrs_of(call, ["pool_size", "padding", "dilation"])
    if spatial is None or attrs["pool_size"] != spatial[1] or any(attrs["padding"]):
        return None
    return _mean_over(call, spatial[0], site) if all(d == 1 for d in attrs["dilation"]) else None


def _adaptive_average_pool(call: Call, site: Site) -> Any:
    spatial, size = _spatial(call), attrs_of(call, ["output_size"])["output_size"]
    if spatial is None or size is None or any(int(d) != 1 for d in size):
        return None
    return _mean_over(call, spatial[0], site)


def _dropout(value: Any, site: Site) -> Any:
    call = site.rw.definition(value.tuple_value)
    return site.replaced(call.args[0], "dropout does nothing in inference")


_RULES: dict[str, tuple[Rule, ...]] = {
    "relax.divide": (_divide_by_constant,),
    "relax.power": (_power,),
    "relax.nn.batch_norm[0]": (_batch_norm,),
    "relax.nn.dropout[0]": (_dropout,),
    **{f"relax.nn.avg_pool{n}d": (_whole_average_pool,) for n in (1, 2, 3)},
    **{f"relax.nn.adaptive_avg_pool{n}d": (_adaptive_average_pool,) for n in (1, 2, 3)},
}
