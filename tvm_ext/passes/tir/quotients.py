"""Whole quotients by a constant, without a division.

    rint(x / s)   ->   q = x r;  rint(q + (x - q s) r)        r: 1 / s rounded; both sums in one rounding (fma)

One step of Newton's iteration on an approximate quotient gives x / s, rounded, but where that lies next to the middle
between two numbers (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990). For the
whole number, only the middles beside a half count; whether a product of s comes near to one of those is known at
compile time. A division takes the time of ten multiplications.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.target import codegen

from ...core.graph.nodes import nodes_of

#: Scales by which no step of the iteration leaves the normal numbers.
_LEAST, _MOST = 2.0**-90, 2.0**90
#: The largest quotient that quantization to 8 bits asks for.
_LIMIT = 256
#: Error of a quotient before it is rounded, in units of its last place.
_ERROR = 2.0**-21


def multiply_quotients() -> tvm.transform.Pass:
    """Quantizations' quotients become products, where the CPU multiplies and adds at once.

    What is divided has to be limited, min(max(x, least), most), to what 8 bits hold, as
    :mod:`...ops.scalars.functions` writes it.
    """

    def rounded(call: Call) -> Any:
        if getattr(call.op, "name", "") != "tirx.round" or not isinstance(call.args[0], tirx.Div):
            return call
        value, scale = call.args[0].a, _number(call.args[0].b)
        if scale is None or not is_exact(scale) or not _is_limited(value, _LIMIT * scale):
            return call
        name = tirx.Var("x", value.ty.dtype)
        return tirx.Let(name, value, tirx.round(_quotient(name, scale)))

    def visit(function: tirx.PrimFunc, mod: Any, ctx: Any) -> tirx.PrimFunc:
        has_instruction = codegen.target_has_features("fma", function.attrs["target"])
        if not has_instruction or not nodes_of(function.body, tirx.Div):  # calls are many, and each costs
            return function
        return function.with_body(tvm_ffi.structural_map(function.body, (Call, rounded)))

    return tirx.transform.prim_func_pass(visit, opt_level=0, name="tvm_ext.MultiplyQuotients")


def _quotient(x: Any, scale: float) -> Any:
    dtype = str(x.ty.dtype)

    def constant(value: float) -> Any:
        lanes, number = int(tvm.DataType(dtype).lanes), tirx.const(value, "float32")
        return tirx.Broadcast(number, lanes) if lanes > 1 else number

    def fma(a: Any, b: Any, c: Any) -> Any:
        return tirx.call_llvm_pure_intrin(dtype, "llvm.fma", a, b, c)

    inverse, q = float(np.float32(1) / np.float32(scale)), tirx.Var("q", dtype)
    improved = fma(fma(q, constant(-scale), x), constant(inverse), q)
    return tirx.Let(q, x * constant(inverse), improved)


def _is_limited(value: Any, most: float) -> bool:
    """Whether a value is the least of a number and the largest of another one, both within plus and minus `most`."""
    if not isinstance(value, tirx.Min):
        return False
    upper, inner = (_number(value.b), value.a) if _number(value.a) is None else (_number(value.a), value.b)
    if not isinstance(inner, tirx.Max):
        return False
    lower = _number(inner.b) if _number(inner.a) is None else _number(inner.a)
    return upper is not None and lower is not None and -most <= lower <= upper <= most


def _number(value: Any) -> float | None:
    value = value.value if isinstance(value, tirx.Broadcast) else value
    return float(value.value) if isinstance(value, tirx.FloatImm) else None


@functools.lru_cache(maxsize=4096)
def is_exact(scale: float) -> bool:
    """Whether every float32 up to 256 times the scale has the same whole quotient by both ways."""
    if not _LEAST < scale < _MOST:
        return False
    half = np.arange(_LIMIT) + 0.5
    above, below = (np.spacing(half.astype("float32")), half - np.nextafter(half.astype("float32"), np.float32(0)))
    middles = np.concatenate([half + above.astype("float64") / 2, half - below.astype("float64") / 2])
    products = middles * np.float64(np.float32(scale))  # exact: of 25 and of 24 bits
    distance = np.abs(products.astype("float32").astype("float64") - products) / scale
    return bool(np.all(distance > _ERROR * np.spacing(middles.astype("float32")).astype("float64")))
