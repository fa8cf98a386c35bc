"""Algebraic simplification: operators that change nothing go, chains of alike operators become one."""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import dtype_of, op_name, scalar_of
from ...core.passes import CompileContext, Pass, PassResult
from ..steps.constants import constant, filled_with, view_of
from .data_movement_rules import DATA_MOVEMENT_RULES, broadcast_operand
from .rules import Rule, Site, rewrite_by_rules


class SimplifyAlgebra(Pass):
    """Drop operators that do nothing and join chains.

    Before -> after (c is a constant, shapes and dtypes of both sides must be the same)::

        x + 0, x - 0, x * 1, x / 1           -> x            # x * 0 stays: it is NaN where x is
        c + x, c * x                         -> x + c, x * c # constants stand on the right
        x - c                                -> x + (-c)     # exact
        (x + c1) + c2, (x * c1) * c2         -> x + c, x * c # where rounding cannot grow, and x + c1 has no other use
        -(-x), relu(relu(x)), astype to same -> x, relu(x), x
        maximum(x, 0)                        -> relu(x)
        minimum(maximum(x, a), b)            -> clip(x, a, b)
        clip(clip(x)), relu(clip(x)), ...    -> one clip
        squeeze, expand_dims, flatten        -> reshape      # one operator for later passes to know
        reshape(reshape(x))                  -> reshape(x)
        reshape, broadcast_to to x's shape   -> x
        permute_dims(permute_dims(x))        -> one, or none, or a reshape if only dimensions of 1 move
        permute_dims(scatter_nd(permute_dims(x)))  -> scatter_elements(x), along the axis that went to the front
        concat of one, slice or pad of all   -> x
        x * broadcast_to(y)                  -> x * y
        sum(astype(broadcast_to(x)))         -> broadcast_to(sum(astype(x)))  # where x is whole along the axis

    `x + 0.0` turns -0.0 into +0.0 and x does not; the two compare equal.
    """

    name = "simplify-algebra"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return rewrite_by_rules(mod, ctx, _RULES)


# ------------------------------------------------------------ constants
def _neutral(value: float) -> Rule:
    """x op c -> x, where every element of c is `value`."""

    def rule(call: Call, site: Site) -> Any:
        x, c = call.args
        if not site.same_type(x) or not filled_with(c, value):
            return None
        return site.replaced(x, f"{_short(call)} with {value:g} does nothing")

    return rule


def _constant_right(call: Call, site: Site) -> Any:
    left, right = call.args
    if not isinstance(left, GenericConst) or isinstance(right, GenericConst):
        return None
    return site.replaced(Call(call.op, [right, left]), f"the constant of {_short(call)} put on the right")


def _subtract_constant(call: Call, site: Site) -> Any:
    x, c = call.args
    view = view_of(c)
    if view is None or view.dtype.kind != "f" or isinstance(x, GenericConst):
        return None
    return site.replaced(relax.op.add(x, constant(-view)), "subtraction of a constant made an addition")


def _join_constants(call: Call, site: Site) -> Any:
    """(x op c1) op c2 -> x op (c1 op c2), for add and multiply."""
    inner = site.inner(call.args[0], op_name(call))
    outer_c = view_of(call.args[1])
    inner_c = view_of(inner.args[1]) if inner is not None else None
    if outer_c is None or inner_c is None or outer_c.dtype.kind != "f":
        return None
    joined = _joined(op_name(call), inner_c, outer_c)
    if not isinstance(joined, str) and joined.size > max(inner_c.size, outer_c.size):
        joined = "two constants joined would be larger than either"
    if not isinstance(joined, str) and _tips_a_step(call, site, inner_c, outer_c):
        joined = "a step is made of the result: one rounding instead of two would decide ties otherwise"
    if isinstance(joined, str):
        site.rw.skip(joined)
    elif not site.sole(call.args[0]):
        site.rw.skip(f"the inner {_short(call)} is read elsewhere too")
    elif (new := site.fits(Call(call.op, [inner.args[0], constant(joined)]))) is not None:
        return site.replaced(new, f"two {_short(call)} of constants joined", call.args[0])
    return None


def _joined(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray | str:
    """c1 op c2 rounded once; or why x op (c1 op c2) might round worse than (x op c1) op c2."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(all="ignore"):
        if name == "relax.add":
            if not (np.sign(a) * np.sign(b) >= 0).all():
                return "two added constants differ in sign: joining them would change what cancels"
            joined = (a + b).astype(first.dtype)
        else:
            joined = (a * b).astype(first.dtype)
            if (np.abs(joined) < np.finfo(first.dtype).tiny).any():
                return "the product of two constants is too small to be exact"
    return joined if np.isfinite(joined).all() else "two constants joined are not finite"


def _tips_a_step(call: Call, site: Site, *constants: np.ndarray) -> bool:
    """Whether a step is made of the result, and no constant is a power of two, by which a product is exact."""
    exact = op_name(call) == "relax.multiply" and any((np.abs(np.frexp(c)[0]) == 0.5).all() for c in constants)
    return not exact and site.var in site.readers.tipping


# ------------------------------------------------------------ twice the same
def _double_negative(call: Call, site: Site) -> Any:
    inner = site.inner(call.args[0], "relax.negative")
    if inner is None:
        return None
    return site.replaced(inner.args[0], "negated twice", call.args[0])


def _cast_to_same(call: Call, site: Site) -> Any:
    if not site.same_type(call.args[0]):
        return None
    return site.replaced(call.args[0], f"already {dtype_of(site.var)}")


# ------------------------------------------------------------ bounds
def _bounds(call: Any) -> tuple[Any, float, float] | None:
    """(x, low, high) if `call` clips x: relu, clip, maximum or minimum with a scalar constant."""
    name = op_name(call)
    if name == "relax.nn.relu":
        return call.args[0], 0.0, np.inf
    if name == "relax.clip":
        low, high = (getattr(a, "value", None) for a in call.args[1:])
        return None if low is None or high is None else (call.args[0], float(low), float(high))
    value = scalar_of(call.args[1]) if name in ("relax.maximum", "relax.minimum") else None
    if value is None or value != value:
        return None
    return (call.args[0], float(value), np.inf) if name == "relax.maximum" else (call.args[0], -np.inf, float(value))


def _one_clip(call: Call, site: Site) -> Any:
    """Every way to say relu or clip -> relu or clip; one of one -> one."""
    outer = _bounds(call)
    if outer is None or not dtype_of(site.var).startswith("float"):
        return None
    x, low, high = outer
    inner = _bounds(site.rw.definition(x))
    if inner is not None and inner[1] <= inner[2] and low <= high:
        return _emit_clip(inner[0], _limit(inner[1], low, high), _limit(inner[2], low, high), call, site, x)
    if op_name(call) in ("relax.maximum", "relax.clip"):
        return _emit_clip(x, low, high, call, site, None)
    return None


def _limit(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _emit_clip(x: Any, low: float, high: float, call: Call, site: Site, through: Any) -> Any:
    if not site.same_type(x):
        return None
    if (low, high) == (0.0, np.inf):
        new, name = relax.op.nn.relu(x), "relu"
    elif np.isfinite([low, high]).all():
        new, name = relax.op.clip(x, low, high), f"clip to {low:g} .. {high:g}"
    else:
        return None
    if through is None and op_name(new) == op_name(call):
        return None
    if through is not None:
        site.take_over(through)
    site.rw.fire(f"{_short(call)} made one {name}" if through is not None else f"{_short(call)} made {name}")
    return new


def _short(call: Call) -> str:
    return op_name(call).removeprefix("relax.").removeprefix("nn.")


_RULES: dict[str, tuple[Rule, ...]] = {
    **DATA_MOVEMENT_RULES,
    "relax.add": (_constant_right, _neutral(0), _join_constants, broadcast_operand),
    "relax.multiply": (_constant_right, _neutral(1), _join_constants, broadcast_operand),
    "relax.subtract": (_neutral(0), _subtract_constant, broadcast_operand),
    "relax.divide": (_neutral(1), broadcast_operand),
    "relax.maximum": (_one_clip, broadcast_operand),
    "relax.minimum": (_one_clip, broadcast_operand),
    "relax.nn.relu": (_one_clip,),
    "relax.clip": (_one_clip,),
    "relax.negative": (_double_negative,),
    "relax.astype": (_cast_to_same, *DATA_MOVEMENT_RULES["relax.astype"]),
}
