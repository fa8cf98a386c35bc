"""Scalar expressions that rows of operators name: functions, activations, conversions."""

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from . import strict_floats, vector_math
from .expressions import dtype_of, let, like
from .strict_floats import negative, times

Scalar = Callable[..., Any]
LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
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
    return let(x, lambda x: relu(x) + _libm("log1p")(tirx.exp(-tirx.abs(x))))


def softplus(x: Any, beta: float = 1.0, threshold: float = math.inf) -> Any:
    """log(1 + e^(beta x)) / beta; x where beta x is beyond the threshold."""
    smooth = _by_type(vector_math.softplus, _softplus64)
    if beta == 1.0 and math.isinf(threshold):
        return smooth(x)
    b = like(beta, x)
    return let(x, lambda x: tirx.Select(x * b > like(threshold, x), x, smooth(x * b) / b))


def sign(x: Any) -> Any:
    """The sign, 0 and NaN as they are."""

    def of(x: Any) -> Any:
        rest = tirx.Select(strict_floats.equal(x, like(0, x)), like(0, x), x)  # NaN
        return tirx.Select(x > like(0, x), like(1, x), tirx.Select(x < like(0, x), like(-1, x), rest))

    return let(x, of)


exp = _by_type(vector_math.exp, tirx.exp)
tanh = _by_type(vector_math.tanh, _libm("tanh"))
erf = _by_type(vector_math.erf, tirx.erf)
log = _by_type(vector_math.log, tirx.log)
sigmoid = _by_type(vector_math.sigmoid, _sigmoid64)
atanh = _libm("atanh")


def absolute(x: Any) -> Any:
    """|x|; of the smallest integer it is that integer, which LLVM and TVM must not take for a positive one."""
    if "float" in dtype_of(x):
        return tirx.abs(x)
    return x if dtype_of(x).startswith("uint") else let(x, lambda x: tirx.Select(x < like(0, x), negative(x), x))


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return like(1.0, x) / tirx.sqrt(x)


def silu(x: Any) -> Any:
    """x sigmoid(x)."""
    return let(x, lambda x: x * sigmoid(x))


def gelu(x: Any) -> Any:
    """x / 2 (1 + erf(x / sqrt 2))."""
    if dtype_of(x) == "float64":
        return let(x, lambda x: like(0.5, x) * x * _libm("erfc")(x * like(-_SQRT_HALF, x)))
    return let(x, lambda x: like(0.5, x) * x * (like(1.0, x) + erf(x * like(_SQRT_HALF, x))))


def gelu_tanh(x: Any) -> Any:
    """x / 2 (1 + tanh(y)) is x sigmoid(2 y), in which nothing cancels."""

    def twice(x: Any) -> Any:
        return like(2 * _SQRT_2_OVER_PI, x) * (x + like(0.044715, x) * x * x * x)

    return let(x, lambda x: x * sigmoid(twice(x)))


# The order of operands matters: TVM's extremes give the second one where either is NaN, so these let NaN through, as
# onnxruntime does; LLVM makes one instruction of each.
def relu(x: Any) -> Any:
    """max(0, x)."""
    return tirx.Max(like(0, x), x)


def clip(x: Any, low: Any, high: Any) -> Any:
    """A value within two bounds."""
    return tirx.Min(high, tirx.Max(low, x))


def leakyrelu(x: Any, alpha: float) -> Any:
    """x, or alpha x below 0."""
    return let(x, lambda x: tirx.Select(x > like(0, x), x, times(x, like(alpha, x))))


def exclusive_or(a: Any, b: Any) -> Any:
    """Whether one of two is true."""
    return let(b, lambda b: tirx.Select(a, strict_floats.logical_not(b), b))


def cast(x: Any, dtype: str) -> Any:
    """A value converted; what is not zero is true. Of NaN, and of what does not fit: see :func:`_whole`."""
    if dtype_of(x) == dtype:
        return x
    if dtype_of(x) == "bool":  # a vector of truth values cannot be converted where a definition holds it: see `let`
        if dtype == "bfloat16":  # by their bits: see `_narrowed`
            return tirx.reinterpret(dtype, tirx.Select(x, tirx.const(0x3F80, "uint16"), tirx.const(0, "uint16")))
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


def quantize(x: Any, scale: Any, zero: Any, out_dtype: str) -> Any:
    """saturate(round(x / scale) + zero), halves to even; of NaN the smallest number, as onnxruntime has it on x86-64.

    Saturated before it is rounded, so that the conversion to a whole number is defined for every x; by a constant
    scale before it is divided, so that the quotient is a small number. The zero point is added as a float, which holds
    all these numbers: at operands of integers' sums TVM's analyzer looks twice.
    """
    low, high = (tirx.const(v, "int32") for v in LIMITS[out_dtype])
    offset = zero.astype("int32")
    least, most = (low - offset).astype("float32"), (high - offset).astype("float32")

    def limited(x: Any, least: Any, most: Any, then: Scalar) -> Any:
        return then(tirx.min(tirx.max(x, least), most))  # least of NaN; x is read once: `expression_size`

    def whole(q: Any) -> Any:
        return (tirx.round(q) + offset.astype("float32")).astype("int32").astype(out_dtype)

    if isinstance(scale, tirx.FloatImm) and scale.value > 0 and isinstance(least, tirx.FloatImm):
        first, last = (tirx.const(end.value * scale.value, "float32") for end in (least, most))
        return limited(x, first, last, lambda x: whole(x / scale))
    return limited(strict_floats.quotient(x, scale), least, most, whole)


def dequantize(x: Any, scale: Any, zero: Any) -> Any:
    """(x - zero) * scale; the difference as a float where that holds it: see :func:`quantize`."""
    if dtype_of(x) == "int32":
        return times((x - zero.astype("int32")).astype("float32"), scale)
    return times(x.astype("float32") - zero.astype("float32"), scale)
