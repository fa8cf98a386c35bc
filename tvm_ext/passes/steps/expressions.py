"""Expressions read back from the bindings: products as their factors, polynomials as their coefficients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of, op_name, scalar_of
from ..simplification.rules import Site

_MAX_DEGREE = 3


def factors(expr: Any, site: Site) -> tuple[float, list[Any]]:
    """A product as its constant and its other factors: (x * 0.5) * y -> (0.5, [x, y]).

    Goes through variables with one reader only: what others read is computed anyway.
    """
    call = site.rw.definition(expr) if isinstance(expr, relax.Var) and site.sole(expr) else expr
    value = scalar_of(call)
    if isinstance(value, float):
        return value, []
    if op_name(call) == "relax.multiply":
        (one, left), (other, right) = (factors(a, site) for a in call.args)
        return one * other, [*left, *right]
    return 1.0, [expr]


def polynomial(expr: Any, x: relax.Var, site: Site) -> tuple[float, ...] | None:
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
    left, right = (polynomial(a, x, site) for a in call.args)
    return None if left is None or right is None else _combined(name, left, right)


def _combined(name: str, left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...] | None:
    if name in ("relax.add", "relax.subtract"):
        size, sign = max(len(left), len(right)), 1.0 if name == "relax.add" else -1.0
        one, other = ([*c, *[0.0] * (size - len(c))] for c in (left, right))
        return tuple(a + sign * b for a, b in zip(one, other, strict=True))
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


def is_polynomial(expr: Any, x: relax.Var, wanted: tuple[float, ...], site: Site) -> bool:
    """Whether `expr` is this polynomial of x, up to the rounding of constants in the dtype of x."""
    found = polynomial(expr, x, site)
    if found is None or any(found[len(wanted) :]):
        return False
    tolerance = 16 * float(np.finfo(dtype_of(x)).eps)
    given = [*found, *[0.0] * (len(wanted) - len(found))]
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0) for a, b in zip(given, wanted, strict=False))
