"""Activations that exporters write out, made one operator again: gelu, its tanh form, silu."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import dtype_of, op_name, scalar_of
from ...core.passes import CompileContext, Pass, PassResult
from ..steps.constants import constant
from .rules import Site, rewrite_by_rules

_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_FLOATS = ("float16", "float32", "float64")
_MAX_DEGREE = 3


class RecognizeActivations(Pass):
    """Find the activation in a product, in whatever order its factors stand.

    Before -> after::

        x * 0.5 * (1 + erf(x / sqrt(2)))                                  -> gelu(x)
        0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))   -> gelu_tanh(x)
        x * sigmoid(x)                                                    -> silu(x)

    Constants are compared up to the rounding of their dtype; another constant factor stays a factor. Gelu is due to
    Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016); silu to the same, and to Ramachandran et al. (2017).
    """

    name = "recognize-activations"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return rewrite_by_rules(mod, ctx, {"relax.multiply": (_activation,)})


def _activation(call: Call, site: Site) -> Any:
    if dtype_of(site.var) not in _FLOATS:
        return None
    scale, parts = _factors(call, site)
    if scale == 1.0 and len(parts) == 1 and op_name(site.rw.definition(parts[0])) in _DOUBLED:
        site.take_over(call.args[0])
        return parts[0]
    for gate in parts:
        others = [p for p in parts if not p.same_as(gate)]
        x = others[0] if len(others) == 1 else None
        if len(parts) != 2 or not isinstance(x, relax.Var) or not site.same_type(x):
            continue
        if (gated := _gated(gate, x, site)) is not None:
            return _scaled(gated, scale, gate, x, site)
    return None


def _gated(gate: Any, x: relax.Var, site: Site) -> tuple[str, Any, float] | None:
    """(name, f(x), c) with x * gate = c * f(x)."""
    inner = site.rw.definition(gate)
    if op_name(inner) == "relax.sigmoid" and inner.args[0].same_as(x):
        return "silu", relax.op.nn.silu(x), 1.0
    if op_name(inner) != "relax.add":
        return None
    for name, nonlinear, argument, make in _GELUS:
        for addend, function in (inner.args, reversed(inner.args)):
            curve = site.rw.definition(function)
            if op_name(curve) != nonlinear or not _is_polynomial(addend, x, (1.0,), site):
                continue
            if _is_polynomial(curve.args[0], x, argument, site):
                return name, make(x), 2.0
    return None


#: name, function in the gate, its argument as a polynomial of x, the operator
_GELUS: tuple[tuple[str, str, tuple[float, ...], Callable[[Any], Any]], ...] = (
    ("gelu", "relax.erf", (0.0, math.sqrt(0.5)), relax.op.nn.gelu),
    ("gelu_tanh", "relax.tanh", (0.0, _SQRT_2_OVER_PI, 0.0, 0.044715 * _SQRT_2_OVER_PI), relax.op.nn.gelu_tanh),
)


#: x * (1 + erf(...)) is seen first and is 2 * gelu(x); the factor of 0.5 that follows takes the 2 away.
_DOUBLED = ("relax.nn.gelu", "relax.nn.gelu_tanh")


def _scaled(gated: tuple[str, Any, float], scale: float, gate: Any, x: relax.Var, site: Site) -> Any:
    name, result, factor = gated
    if not site.sole(gate):
        return site.rw.skip(f"looks like {name}, but {gate.name} is read elsewhere too")
    site.take_over(gate, x)
    site.rw.fire(f"made one {name}")
    if scale * factor == 1.0:
        return result
    return relax.op.multiply(site.rw.emit(result), constant(np.array(scale * factor, dtype_of(site.var))))


# ------------------------------------------------------------ products as factors, polynomials as coefficients
def _factors(expr: Any, site: Site) -> tuple[float, list[Any]]:
    """A product as its constant and its other factors: (x * 0.5) * y -> (0.5, [x, y]).

    Goes through variables with one reader only: what others read is computed anyway.
    """
    call = site.rw.definition(expr) if isinstance(expr, relax.Var) and site.sole(expr) else expr
    value = scalar_of(call)
    if isinstance(value, float):
        return value, []
    if op_name(call) == "relax.multiply":
        (first, left), (other, right) = (_factors(a, site) for a in call.args)
        return first * other, [*left, *right]
    return 1.0, [expr]


def _polynomial(expr: Any, x: relax.Var, site: Site) -> tuple[float, ...] | None:
    """Coefficients of `expr` as a polynomial of x, lowest first: 0.5 * x + x * x * x -> (0, 0.5, 0, 1).

    None if it is none, or one of a degree above 3.
    """
    if isinstance(expr, relax.Var) and expr.same_as(x):
        return (0.0, 1.0)
    call = site.rw.definition(expr)
    if isinstance(call, GenericConst):
        value = scalar_of(call)
        return None if value is None else (float(value),)
    name = op_name(call)
    if name not in ("relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.power"):
        return None
    left, right = (_polynomial(a, x, site) for a in call.args)
    return None if left is None or right is None else _combined(name, left, right)


def _combined(name: str, left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...] | None:
    if name in ("relax.add", "relax.subtract"):
        size, sign = max(len(left), len(right)), 1.0 if name == "relax.add" else -1.0
        first, other = ([*c, *[0.0] * (size - len(c))] for c in (left, right))
        return tuple(a + sign * b for a, b in zip(first, other, strict=True))
    if name == "relax.divide":
        return tuple(a / right[0] for a in left) if len(right) == 1 and right[0] else None
    if name == "relax.power":
        if len(right) != 1 or right[0] not in (1.0, 2.0, 3.0):
            return None
        product: tuple[float, ...] | None = left
        for _ in range(int(right[0]) - 1):
            product = _product(product, left)
        return product
    return _product(left, right)


def _product(left: tuple[float, ...] | None, right: tuple[float, ...]) -> tuple[float, ...] | None:
    if left is None or len(left) + len(right) - 2 > _MAX_DEGREE:
        return None
    return tuple(float(c) for c in np.convolve(left, right))


def _is_polynomial(expr: Any, x: relax.Var, wanted: tuple[float, ...], site: Site) -> bool:
    """Whether `expr` is this polynomial of x, up to the rounding of constants in the dtype of x."""
    coefficients = _polynomial(expr, x, site)
    if coefficients is None or any(coefficients[len(wanted) :]):
        return False
    tolerance = 16 * float(np.finfo(dtype_of(x)).eps)
    padded = [*coefficients, *[0.0] * (len(wanted) - len(coefficients))]
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0) for a, b in zip(padded, wanted, strict=False))
