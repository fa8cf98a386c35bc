"""exp, log, tanh, erf, sigmoid and softplus of float32 as branch-free polynomials: LLVM makes vectors at any width.

    tirx.exp(x)   ->   a call of libm for each lane, about 3 ns
    exp(x)        ->   2^n p(x - n ln 2): 18 vector instructions

Each function is right on all of float32: infinities, NaN, signed zeros, and subnormal numbers as arguments and results.
The stated errors are over all of float32, with and without fused multiply-adds;
tests/ops/scalars/test_vector_math.py measures them against float64.

The polynomials are minimax in the relative error of the function (Remez exchange on a grid of 20,000 points);
coefficients are rounded to float32 from the lowest degree up, the others being fitted anew after each rounding.
tests/ops/minimax.py derives them and checks that they are the ones written here. The argument of an exponential
is reduced in two steps (Cody & Waite, Software Manual for the Elementary Functions, 1980). erf takes a polynomial near
zero and 1 - exp(polynomial) beyond: erfc falls like exp(-x^2), so its logarithm is nearly a parabola.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from .expressions import let

#: (expm1(r) - r) / r^2 for |r| <= ln(2) / 2: relative error of expm1 2^-26.
EXPM1 = (0.49999997, 0.16666539, 0.041667745, 0.008367139, 0.0013836918)
#: erf(x) / x - 1 in x^2 for |x| <= 0.875: relative error of erf 2^-26.
ERF_NEAR = (0.12837915, -0.37612504, 0.11281922, -0.026770486, 0.004998928, -0.0006020491)
#: -log(erfc(x)) / x for 0.875 <= x <= 4: relative error of erf 2^-29.
ERF_FAR = (1.1286229, 0.6352569, 0.10605955, -0.023607165, 0.003568256, -0.00030433066, 9.364741e-06)
#: (log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2): relative error of log 2^-27.
LOG1P = (0.33333331, -0.25000826, 0.20001265, -0.16623223, 0.14200696, -0.13160422, 0.12769842, -0.07644747)
#: (log(1 + u) - u) / u^2 for 0 <= u <= 1: relative error of log1p 2^-27.
LOG1P_UNIT = (
    -0.49999931, 0.33330464, -0.24958019, 0.19692102, -0.15344881, 0.10661128, -0.05745723, 0.020086242, -0.0032904686,
)  # fmt: skip
#: Where erf changes from one polynomial to the other, and where it is 1 to the last bit.
ERF_SPLIT, ERF_ONE = 0.875, 4.0

#: ln(2) in two parts: the first has ten bits, so that its product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_LOG2_E = math.log2(math.e)
#: Adding 1.5 * 2^23 to a small float32 rounds it to a whole number, which the low bits of the sum then hold.
_ROUND = 1.5 * 2.0**23
_MANTISSA_BITS, _BIAS = 23, 127
_SIGN, _MAGNITUDE = -(2**31), 2**31 - 1


def exp(x: Any) -> Any:
    """e^x; at most 1.5 ulp."""
    # Beyond these limits the result is 0 or infinity anyway; within them 2^n is a product of two normal numbers.
    x = _at_most(_at_least(x, -104.0), 89.0)
    return let(x, lambda x: _reduced(x, 2 * _BIAS, lambda t, r: _scaled_twice(_one_plus(r), t)))


def exp_flushed(x: Any) -> Any:
    """e^x for x <= 0, and 0 below x = -87.3 (1.2e-38); at most 1.5 ulp. Three instructions less than `exp`."""
    return let(x, lambda x: tirx.Select(x < _f(-87.3), _f(0), let(_at_least(x, -87.3), _exp_normal)))


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x); at most 2.5 ulp. Computed as c / (c + c e^-x): e^-x overflows where the result is still above 0,
    c e^-x does not."""
    shift = 24
    c = _f(2.0**-shift)
    # Beyond these limits the result is 0 or 1 anyway; within them c 2^n is a normal number.
    y = _at_most(_at_least(-x, -70.0), 104.0)
    denominator = lambda t, r: _one_plus(r) * _power_of_two(t) + c  # noqa: E731
    return let(y, lambda y: c / _reduced(y, _BIAS - shift, denominator))


def tanh(x: Any) -> Any:
    """Hyperbolic tangent; at most 2.5 ulp. tanh(x) = e / (e + 2), with e = e^2x - 1 computed without cancellation."""

    def expm1(t: Any, r: Any) -> Any:
        scale = _power_of_two(t)
        return let(scale, lambda s: s * (r * r * _polynomial(r, EXPM1) + r) + (s - _f(1)))

    def positive(y: Any) -> Any:
        return let(_reduced(y, _BIAS, expm1), lambda e: e / (e + _f(2)))

    return let(x, lambda x: _with_sign(let(_at_most(_abs(x), 10.0) * _f(2), positive), x))


def erf(x: Any) -> Any:
    """Error function; at most 1.5 ulp."""

    def near(a: Any) -> Any:
        return let(a * a, lambda z: _polynomial(z, ERF_NEAR) * a + a)

    def far(a: Any) -> Any:
        return let(_at_most(a, ERF_ONE), lambda a: _f(1) - _exp_normal(-a * _polynomial(a, ERF_FAR)))

    def value(x: Any, a: Any) -> Any:
        return _with_sign(tirx.Select(a < _f(ERF_SPLIT), near(a), far(a)), x)

    return let(x, lambda x: let(_abs(x), lambda a: value(x, a)))


def log(x: Any) -> Any:
    """Natural logarithm; at most 1.5 ulp. log(m 2^e) = e ln 2 + log(m), m from sqrt(1/2) to sqrt(2)."""
    smallest, half = _f(2.0**-126), _i(0x3F3504F3)  # the bits of sqrt(1/2)

    def limits(x: Any, value: Any) -> Any:
        # where x is 0, infinite or NaN
        outside = tirx.Select(x < _f(0), _f(math.nan), tirx.Select(x > _f(0), x, _f(-math.inf)))
        return tirx.Select(tirx.all(x > _f(0), x < _f(math.inf)), value, tirx.Select(tirx.isnan(x), x, outside))

    def value(bits: Any, e: Any, bias: Any) -> Any:
        f = tirx.reinterpret("float32", bits - tirx.shift_left(e, _i(_MANTISSA_BITS))) - _f(1)
        return let(f, lambda f: let(e.astype("float32") + bias, lambda n: _log_of_parts(f, n)))

    def finite(x: Any) -> Any:
        subnormal = x < smallest
        bits = tirx.reinterpret("int32", tirx.Select(subnormal, x * _f(2.0**23), x))
        bias = tirx.Select(subnormal, _f(-23), _f(0))
        exponent = lambda b: tirx.shift_right(b - half, _i(_MANTISSA_BITS))  # noqa: E731
        return let(bits, lambda b: let(exponent(b), lambda e: value(b, e, bias)))

    return let(x, lambda x: limits(x, finite(x)))


def softplus(x: Any) -> Any:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), that sum never rounded; at most 2.5 ulp."""

    def log1p(u: Any) -> Any:
        return _polynomial(u, LOG1P_UNIT) * u * u + u

    return let(x, lambda x: tirx.Select(x < _f(0), _f(0), x) + let(exp(-_abs(x)), log1p))


def _log_of_parts(f: Any, n: Any) -> Any:
    """log((1 + f) 2^n), smallest terms first."""
    tail = let(f * f, lambda z: z * (f * _polynomial(f, LOG1P)) + n * _f(_LN2_LOW) - z * _f(0.5))
    return tail + f + n * _f(_LN2_HIGH)


def _reduced(x: Any, bias: int, body: Callable[[Any, Any], Any]) -> Any:
    """`body(t, r)`: r = x - n ln 2 with |r| <= ln(2) / 2, and the bits of t end in n + bias."""
    magic = _f(_ROUND + bias)

    def parts(t: Any) -> Any:
        n = t - magic
        return let(n, lambda n: let(x - n * _f(_LN2_HIGH) - n * _f(_LN2_LOW), lambda r: body(t, r)))

    return let(x * _f(_LOG2_E) + magic, parts)


def _one_plus(r: Any) -> Any:
    """1 + expm1(r)."""
    return _polynomial(r, (1.0, 1.0, *EXPM1))


def _exp_normal(x: Any) -> Any:
    """e^x where it is a normal number."""
    return _reduced(x, _BIAS, lambda t, r: _one_plus(r) * _power_of_two(t))


def _power_of_two(t: Any) -> Any:
    """2^n, n + bias being the low bits of t: they become the exponent."""
    return _float(tirx.shift_left(_bits(t), _i(_MANTISSA_BITS)))


def _scaled_twice(value: Any, t: Any) -> Any:
    """value 2^n where 2^n itself may be too large or subnormal: the low bits of t are n + 2 bias, and each half of
    them is an exponent."""
    shift = _i(_MANTISSA_BITS)

    def halves(bits: Any) -> Any:
        first = tirx.shift_right(bits, _i(1))
        scale = lambda h: value * _float(tirx.shift_left(h, shift)) * _float(tirx.shift_left(bits - h, shift))  # noqa: E731
        return let(first, scale)

    return let(_bits(t), halves)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    value = _f(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * x + _f(c)
    return value


def _abs(x: Any) -> Any:
    return _float(tirx.bitwise_and(_bits(x), _i(_MAGNITUDE)))


def _with_sign(magnitude: Any, x: Any) -> Any:
    return _float(tirx.bitwise_or(_bits(magnitude), tirx.bitwise_and(_bits(x), _i(_SIGN))))


# The order of operands matters: a comparison with NaN is false, so these let NaN through, and are one instruction each.
def _at_least(x: Any, low: float) -> Any:
    return let(x, lambda x: tirx.Select(x < _f(low), _f(low), x))


def _at_most(x: Any, high: float) -> Any:
    return let(x, lambda x: tirx.Select(x > _f(high), _f(high), x))


def _bits(x: Any) -> Any:
    return tirx.reinterpret("int32", x)


def _float(bits: Any) -> Any:
    return tirx.reinterpret("float32", bits)


def _f(value: float) -> Any:
    return tirx.const(value, "float32")


def _i(value: int) -> Any:
    return tirx.const(value, "int32")
