"""What quantizations compute, in fewer instructions.

    int32(rint(x / s))            ->   q = x r;  lrint(q + (x - q s) r)     r: 1 / s rounded; sums in one rounding (fma)
    int32(uint8(lrint(x) + z))    ->   lrint(x) + z                         x within 0 - z and 255 - z

One step of Newton's iteration on an approximate quotient gives x / s, rounded, but where that lies next to the middle
between two numbers (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990). For the
whole number, only the middles beside a half count; whether a product of s comes near to one of those is known at
compile time. A division takes the time of ten multiplications. Rounded and converted at once (`vcvtps2dq`) is an
instruction less than one after the other, and a number of 8 bits that is read at once need not be one.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.target import codegen

from ...ops.scalars.functions import LIMITS

#: Scales by which no step of the iteration leaves the normal numbers.
_LEAST, _MOST = 2.0**-90, 2.0**90
#: The largest quotient that quantization to 8 bits asks for.
_LIMIT = 256
#: Lanes for which LLVM has `lrint` as an instruction.
_VECTORS = (1, 4, 8, 16, 32, 64)
#: Error of a quotient before it is rounded, in units of its last place.
_ERROR = 2.0**-21


def multiply_quotients(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Quantizations' quotients become products, where the CPU multiplies and adds at once; they are rounded and
    converted in one, and stay int32 where they are dequantized at once.

    What is divided has to be limited, min(max(x, least), most), to what 8 bits hold, as
    :mod:`...ops.scalars.functions` writes it.
    """
    has_fma = functools.cache(lambda: codegen.target_has_features("fma", function.attrs["target"]))
    body = tvm_ffi.structural_map(function.body, (tirx.Cast, _with_whole_offset))
    body = tvm_ffi.structural_map(body, (tirx.Cast, _kept_wide))
    converted = functools.partial(_converted, has_fma=has_fma)
    return function.with_body(tvm_ffi.structural_map(body, (tirx.Cast, converted)))


def _with_whole_offset(cast: tirx.Cast) -> Any:
    """int32(rint(x) + z) is int32(rint(x)) + z for a whole constant z, as x is limited to what 8 bits hold."""
    total = cast.value
    if _type(cast)[0] != "int32" or not isinstance(total, tirx.Add) or not _is_rounded(total.a):
        return cast
    offset, lanes = _constant(total.b), _type(cast)[1]
    if not isinstance(offset, tirx.FloatImm) or not float(offset.value).is_integer() or _ends(total.a.args[0]) is None:
        return cast
    whole = tirx.const(int(offset.value), "int32")
    return tirx.Cast(cast.ty.dtype, total.a) + (tirx.Broadcast(whole, lanes) if lanes > 1 else whole)


def _kept_wide(cast: tirx.Cast) -> Any:
    """int32(int8(w)) is w, where w is a rounded number, and an offset, that 8 bits hold."""
    narrow = cast.value
    if _type(cast)[0] != "int32" or not isinstance(narrow, tirx.Cast) or _type(narrow)[0] not in LIMITS:
        return cast
    whole, offset = narrow.value, 0
    if isinstance(whole, tirx.Add | tirx.Sub) and isinstance(number := _constant(whole.b), tirx.IntImm):
        whole, offset = whole.a, int(number.value) * (1 if isinstance(whole, tirx.Add) else -1)
    if (argument := _rounded_argument(whole)) is None or (ends := _ends(argument)) is None:
        return cast
    least, most = LIMITS[_type(narrow)[0]]
    return narrow.value if least - offset <= ends[0] and ends[1] <= most - offset else cast


def _converted(cast: tirx.Cast, has_fma: Callable[[], bool]) -> Any:
    """int32(rint(x)) of a limited number, in one instruction, and without a division if the CPU has `fma`."""
    if (argument := _rounded_argument(cast)) is None or _ends(argument) is None:
        return cast
    dtype, lanes = str(cast.ty.dtype), _type(cast)[1]
    if lanes not in _VECTORS:
        return cast

    def converted(q: Any) -> Any:
        return tirx.call_llvm_pure_intrin(dtype, "llvm.lrint", q)

    if not isinstance(argument, tirx.Div):
        return converted(argument)
    value, scale = argument.a, float(_constant(argument.b).value)
    if not has_fma() or not is_exact(scale) or max(map(abs, _limits(value) or ())) > _LIMIT * scale:
        return converted(argument)
    name = tirx.Var("x", value.ty.dtype)
    return tirx.Let(name, value, converted(_quotient(name, scale)))


def _rounded_argument(whole: Any) -> Any:
    """x of int32(rint(x)); None of anything else."""
    call: Any = whole.value if isinstance(whole, tirx.Cast) and _type(whole)[0] == "int32" else None
    return call.args[0] if _is_rounded(call) else None


def _is_rounded(value: Any) -> bool:
    return isinstance(value, Call) and getattr(value.op, "name", "") == "tirx.round"


def _ends(argument: Any) -> tuple[float, float] | None:
    """The least and the largest whole number that a limited number, or its quotient by a constant, is rounded to."""
    scale = np.float32(1)
    if isinstance(argument, tirx.Div):
        number = _constant(argument.b)
        argument, scale = argument.a, np.float32(number.value if isinstance(number, tirx.FloatImm) else 0)
    if not scale > 0 or (limits := _limits(argument)) is None:
        return None
    least, most = (float(np.rint(np.float32(end) / scale)) for end in limits)
    return (least, most) if max(abs(least), abs(most)) < 2.0**31 else None


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


def _limits(value: Any) -> tuple[float, float] | None:
    """Least and most of the least of a number and the largest of another one; None of anything else."""
    if not isinstance(value, tirx.Min):
        return None
    upper, inner = (_constant(value.b), value.a) if _constant(value.a) is None else (_constant(value.a), value.b)
    if not isinstance(inner, tirx.Max):
        return None
    lower = _constant(inner.b) if _constant(inner.a) is None else _constant(inner.a)
    if not isinstance(upper, tirx.FloatImm) or not isinstance(lower, tirx.FloatImm) or lower.value > upper.value:
        return None
    return float(lower.value), float(upper.value)


def _constant(value: Any) -> Any:
    """The constant that an expression is, of each lane of a vector; None if it is none."""
    value = value.value if isinstance(value, tirx.Broadcast) else value
    return value if isinstance(value, tirx.FloatImm | tirx.IntImm) else None


def _type(value: Any) -> tuple[str, int]:
    """Element type and lanes of an expression."""
    dtype = tvm.DataType(str(value.ty.dtype))
    return str(value.ty.dtype).partition("x")[0], int(dtype.lanes)


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
