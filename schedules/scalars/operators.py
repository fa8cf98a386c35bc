"""Elementwise operators as scalar TIR: what may be fused behind an anchor, and how it is computed.

One table serves grouping (which operators are elementwise) and every recipe (what they compute).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Call

from tvm_ext.core.numbers.storage import STORED

from . import strict_floats, vector_math
from .expressions import dtype_of, let, like
from .strict_floats import times

Scalar = Callable[..., Any]
_SQRT_HALF, _SQRT_2_OVER_PI = math.sqrt(0.5), math.sqrt(2.0 / math.pi)


def _by_type(polynomial: Scalar, otherwise: Scalar) -> Scalar:
    """Our own vector function for float32; for float64 one of its accuracy."""
    return lambda x: polynomial(x) if dtype_of(x) == "float32" else otherwise(x)


def _libm(name: str) -> Scalar:
    """A function of C's library: TVM has a formula for it that cancels, or none."""
    return lambda x: tirx.call_pure_extern(dtype_of(x), name + ("f" if dtype_of(x) == "float32" else ""), x)


def _sigmoid64(x: Any) -> Any:
    """e^-x overflows where the result is still above 0, so e^-|x|."""
    one = like(1.0, x)
    return let(x, lambda x: let(tirx.exp(-tirx.abs(x)), lambda e: tirx.Select(x < like(0, x), e, one) / (one + e)))


def _softplus64(x: Any) -> Any:
    return let(x, lambda x: _relu(x) + _libm("log1p")(tirx.exp(-tirx.abs(x))))


def _softplus(x: Any, beta: float = 1.0, threshold: float = math.inf) -> Any:
    """log(1 + e^(beta x)) / beta; x where beta x is beyond the threshold."""
    smooth = _by_type(vector_math.softplus, _softplus64)
    if beta == 1.0 and math.isinf(threshold):
        return smooth(x)
    b = like(beta, x)
    return let(x, lambda x: tirx.Select(x * b > like(threshold, x), x, smooth(x * b) / b))


def _sign(x: Any) -> Any:
    def of(x: Any) -> Any:
        rest = tirx.Select(strict_floats.equal(x, like(0, x)), like(0, x), x)  # NaN
        return tirx.Select(x > like(0, x), like(1, x), tirx.Select(x < like(0, x), like(-1, x), rest))

    return let(x, of)


_exp = _by_type(vector_math.exp, tirx.exp)
_tanh = _by_type(vector_math.tanh, _libm("tanh"))
_erf = _by_type(vector_math.erf, tirx.erf)
_sigmoid = _by_type(vector_math.sigmoid, _sigmoid64)


def _silu(x: Any) -> Any:
    return let(x, lambda x: x * _sigmoid(x))


def _gelu(x: Any) -> Any:
    if dtype_of(x) == "float64":
        return let(x, lambda x: like(0.5, x) * x * _libm("erfc")(x * like(-_SQRT_HALF, x)))
    return let(x, lambda x: like(0.5, x) * x * (like(1.0, x) + _erf(x * like(_SQRT_HALF, x))))


def _gelu_tanh(x: Any) -> Any:
    """x / 2 (1 + tanh(y)) is x sigmoid(2 y), in which nothing cancels."""

    def twice(x: Any) -> Any:
        return like(2 * _SQRT_2_OVER_PI, x) * (x + like(0.044715, x) * x * x * x)

    return let(x, lambda x: x * _sigmoid(twice(x)))


# The order of operands matters: TVM's extremes give the second one where either is NaN, so these let NaN through, as
# onnxruntime does; LLVM makes one instruction of each.
def _relu(x: Any) -> Any:
    return tirx.Max(like(0, x), x)


def _clip(x: Any, low: Any, high: Any) -> Any:
    return tirx.Min(high, tirx.Max(low, x))


def _leakyrelu(x: Any, alpha: float) -> Any:
    return let(x, lambda x: tirx.Select(x > like(0, x), x, times(x, like(alpha, x))))


def _exclusive_or(a: Any, b: Any) -> Any:
    return let(b, lambda b: tirx.Select(a, strict_floats.logical_not(b), b))


def cast(x: Any, dtype: str) -> Any:
    """A value converted; what is not zero is true. Of NaN, and of what does not fit: see :func:`_whole`."""
    if dtype_of(x) == dtype:
        return x
    if dtype_of(x) == "bool":  # a vector of truth values cannot be converted where a definition holds it: see `let`
        return tirx.Select(x, tirx.const(1, dtype), tirx.const(0, dtype))
    if dtype_of(x) == "bfloat16":
        return cast(_widened(x), dtype)
    if dtype == "bfloat16":
        return _narrowed(cast(x, "float32"))
    if dtype == "bool":
        return strict_floats.not_equal(x, like(0, x))
    if dtype == "float16" and dtype_of(x) != "float32":  # as onnxruntime does; LLVM has no function for float64
        return cast(x, "float32").astype(dtype)
    return _whole(x, dtype) if "int" in dtype and strict_floats.is_float(x) else x.astype(dtype)


def _whole(x: Any, dtype: str) -> Any:
    """A float cut off to a whole number, as x86-64 does, and so onnxruntime and numpy: what does not fit is the least
    number of int32, of int64 if uint32 or 64 bits are asked for, and of that the low bits are left."""
    if dtype_of(x) == "float16":
        x = x.astype("float32")
    wide = "int64" if dtype in ("uint32", "int64", "uint64") else "int32"
    end = like(2.0 ** (63 if wide == "int64" else 31), x)
    least = tirx.min_value(wide)

    def cut(x: Any) -> Any:
        return tirx.Select(tirx.abs(x) < end, x.astype(wide), least)

    def unsigned(x: Any) -> Any:  # from 2^63 on, the rest and the upper bit
        return tirx.Select(x >= end, tirx.bitwise_xor(cut(x - end), least), cut(x))

    whole = let(x, unsigned if dtype == "uint64" else cut)
    return whole if dtype == wide else whole.astype(dtype)


# bfloat16 is the upper half of a float32. What TVM makes of these conversions reads a number twice, which a `let` in it
# does not survive, and misses those within a `let`.
def _widened(x: Any) -> Any:
    """A bfloat16 as float32."""
    return tirx.reinterpret("float32", tirx.reinterpret("uint16", x).astype("uint32") << 16)


def _narrowed(x: Any) -> Any:
    """A float32 rounded to the nearest bfloat16, halves to even; NaN stays NaN."""

    def upper(bits: Any) -> Any:
        rounded = (bits + (tirx.const(0x7FFF, "uint32") + ((bits >> 16) & 1))) >> 16
        nan = (bits & tirx.const(0x7FFFFFFF, "uint32")) > tirx.const(0x7F800000, "uint32")
        return tirx.Select(nan, tirx.const(0x7FC0, "uint32"), rounded).astype("uint16")

    return tirx.reinterpret("bfloat16", let(tirx.reinterpret("uint32", x), upper))


def _quantize(x: Any, scale: Any, zero: Any, out_dtype: str) -> Any:
    """saturate(round(x / scale) + zero), halves to even; of NaN the smallest number, as onnxruntime has it on x86-64.

    Saturated before it is rounded, so that the conversion to a whole number is defined for every x; by a constant
    scale before it is divided, so that the quotient is a small number.
    """
    low, high = (tirx.const(v, "int32") for v in _LIMITS[out_dtype])
    offset = zero.astype("int32")
    least, most = (low - offset).astype("float32"), (high - offset).astype("float32")

    def limited(x: Any, least: Any, most: Any, then: Scalar) -> Any:
        return then(tirx.min(tirx.max(x, least), most))  # least of NaN; x is read once: `expression_size`

    def whole(q: Any) -> Any:
        return (tirx.round(q).astype("int32") + offset).astype(out_dtype)

    if isinstance(scale, tirx.FloatImm) and scale.value > 0 and isinstance(least, tirx.FloatImm):
        first, last = (tirx.const(end.value * scale.value, "float32") for end in (least, most))
        return limited(x, first, last, lambda x: whole(x / scale))
    return limited(strict_floats.quotient(x, scale), least, most, whole)


def _dequantize(x: Any, scale: Any, zero: Any) -> Any:
    """(x - zero) * scale."""
    return times((x.astype("int32") - zero.astype("int32")).astype("float32"), scale)


#: Relax operator -> scalar expression of its tensor operands (attributes by keyword where there are any).
SCALAR_OPS: dict[str, Scalar] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": strict_floats.minus,
    "relax.multiply": times,
    "relax.divide": strict_floats.quotient,
    "relax.maximum": strict_floats.maximum,
    "relax.minimum": strict_floats.minimum,
    "relax.power": tirx.power,
    "relax.negative": lambda x: -x,
    "relax.abs": lambda x: let(x, tirx.abs),  # of an integer it reads x twice
    "relax.exp": _exp,
    "relax.log": _by_type(vector_math.log, tirx.log),
    "relax.sqrt": tirx.sqrt,
    "relax.rsqrt": lambda x: like(1.0, x) / tirx.sqrt(x),
    "relax.tanh": _tanh,
    "relax.erf": _erf,
    "relax.atanh": _libm("atanh"),
    "relax.sign": _sign,
    "relax.floor": tirx.floor,
    "relax.ceil": tirx.ceil,
    "relax.sigmoid": _sigmoid,
    "relax.nn.relu": _relu,
    "relax.nn.silu": _silu,
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.softplus": _softplus,
    "relax.clip": _clip,
    "relax.nn.leakyrelu": _leakyrelu,
}

COMPARISONS: dict[str, Scalar] = {
    "relax.equal": strict_floats.equal,
    "relax.not_equal": strict_floats.not_equal,
    "relax.less": tirx.LT,
    "relax.less_equal": tirx.LE,
    "relax.greater": tirx.GT,
    "relax.greater_equal": tirx.GE,
}
#: Operators between types, on :data:`TYPES`: comparisons, logic, selection and conversion.
TYPED_OPS: dict[str, Scalar] = {
    **COMPARISONS,
    "relax.logical_and": tirx.all,
    "relax.logical_or": strict_floats.logical_or,
    "relax.logical_xor": _exclusive_or,
    "relax.logical_not": strict_floats.logical_not,
    "relax.where": strict_floats.where,
    "relax.astype": cast,
    "relax.quantize": _quantize,
    "relax.dequantize": _dequantize,
}
FLOATS = ("float32", "float64")
TYPES = (*FLOATS, "int32", "int64", "bool")
_LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
#: Operators whose operands but the first may be vectors along an axis.
PER_AXIS = frozenset({"relax.quantize", "relax.dequantize"})
#: Operators that change the type a value is stored in (:mod:`tvm_ext.core.numbers.storage`).
CONVERSIONS = frozenset({"relax.astype", *PER_AXIS})
#: Operators of one type that integers have too. Division is left out: by zero it ends the process.
_OF_INTEGERS = frozenset({"relax.add", "relax.subtract", "relax.multiply", "relax.negative", "relax.abs"})

#: Work of an operator on a vector, in units of loading or storing one: measured on AVX-512.
_WORK = {
    "relax.exp": 7, "relax.log": 10, "relax.tanh": 7, "relax.erf": 12, "relax.sigmoid": 8, "relax.nn.silu": 9,
    "relax.nn.gelu": 14, "relax.nn.gelu_tanh": 10, "relax.nn.softplus": 16, "relax.atanh": 72, "relax.power": 72,
    "relax.sqrt": 3, "relax.rsqrt": 4, "relax.divide": 2,
}  # fmt: skip

_ATTRIBUTES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relax.nn.leakyrelu": {"alpha": float},
    "relax.nn.softplus": {"beta": float, "threshold": float},
    "relax.astype": {"dtype": str},
    "relax.quantize": {"out_dtype": str},
}


def scalar_call(call: Call, operands: list[Any]) -> Any:
    """The scalar expression of an elementwise operator call on scalar operands."""
    name = str(call.op.name)
    attributes = {a: read(getattr(call.attrs, a)) for a, read in _ATTRIBUTES.get(name, {}).items()}
    return (SCALAR_OPS.get(name) or TYPED_OPS[name])(*operands, **attributes)


def is_elementwise(name: str) -> bool:
    """Whether an operator can be part of an elementwise kernel."""
    return name in SCALAR_OPS or name in TYPED_OPS


def takes(name: str, operands: Sequence[str], result: str) -> bool:
    """Whether an elementwise operator is computed for these types; what is one floating-point type fits an epilogue."""
    if name in PER_AXIS:
        stored, real = (result, operands[0]) if name == "relax.quantize" else (operands[0], result)
        return real == operands[1] == "float32" and stored == operands[2] and stored in _LIMITS
    if name == "relax.astype":
        return all(t in TYPES or t in STORED for t in (*operands, result))
    if name in TYPED_OPS:
        return all(t in TYPES for t in (*operands, result))
    types = {*operands, result}
    return len(types) == 1 and types <= {*(TYPES[:-1] if name in _OF_INTEGERS else FLOATS)}


def work(name: str) -> int:
    """Work of an operator on one vector, in units of loading or storing one."""
    return _WORK.get(name, 1)
