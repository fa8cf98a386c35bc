"""Activations that exporters write out, made one operator again: gelu, its tanh form, silu."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, IRModule

from ...core.graph.relax_graph import dtype_of, op_name
from ...core.passes import CompileContext, Pass, PassResult
from ..steps.constants import constant
from ..steps.expressions import factors, is_polynomial
from .rules import Site, rewrite_by_rules

_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_FLOATS = ("float16", "float32", "float64")


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
    scale, parts = factors(call, site)
    if scale == 1.0 and len(parts) == 1 and op_name(site.rw.definition(parts[0])) in _DOUBLED:
        site.take_over(call.args[0])
        return parts[0]
    for gate in parts:
        others = [p for p in parts if not p.same_as(gate)]
        x = others[0] if len(others) == 1 else None
        if len(parts) != 2 or not isinstance(x, relax.Var) or not site.same_type(x):
            continue
        if (found := _gated(gate, x, site)) is not None:
            return _scaled(found, scale, gate, x, site)
    return None


def _gated(gate: Any, x: relax.Var, site: Site) -> tuple[str, Any, float] | None:
    """(name, f(x), c) with x * gate = c * f(x)."""
    inner = site.rw.definition(gate)
    if op_name(inner) == "relax.sigmoid" and inner.args[0].same_as(x):
        return "silu", relax.op.nn.silu(x), 1.0
    if op_name(inner) != "relax.add":
        return None
    for name, nonlinear, argument, make in _GELUS:
        for one, function in (inner.args, reversed(inner.args)):
            curve = site.rw.definition(function)
            if op_name(curve) != nonlinear or not is_polynomial(one, x, (1.0,), site):
                continue
            if is_polynomial(curve.args[0], x, argument, site):
                return name, make(x), 2.0
    return None


#: name, function in the gate, its argument as a polynomial of x, the operator
_GELUS: tuple[tuple[str, str, tuple[float, ...], Callable[[Any], Any]], ...] = (
    ("gelu", "relax.erf", (0.0, math.sqrt(0.5)), relax.op.nn.gelu),
    ("gelu_tanh", "relax.tanh", (0.0, _SQRT_2_OVER_PI, 0.0, 0.044715 * _SQRT_2_OVER_PI), relax.op.nn.gelu_tanh),
)


#: x * (1 + erf(...)) is seen first and is 2 * gelu(x); the factor of 0.5 that follows takes the 2 away.
_DOUBLED = ("relax.nn.gelu", "relax.nn.gelu_tanh")


def _scaled(found: tuple[str, Any, float], scale: float, gate: Any, x: relax.Var, site: Site) -> Any:
    name, result, factor = found
    if not site.sole(gate):
        return site.rw.skip(f"looks like {name}, but {gate.name} is read elsewhere too")
    site.take_over(gate, x)
    site.rw.fire(f"made one {name}")
    if scale * factor == 1.0:
        return result
    return relax.op.multiply(site.rw.emit(result), constant(np.array(scale * factor, dtype_of(site.var))))
