"""float32 arithmetic of the vector unit, in a clock: IEEE 754, to nearest even, with subnormals, infinities and NaN.

A finite number is split into sign, significand (24 bits, an integer) and the exponent of its lowest bit; results come
as such too, of any width, and `pack` rounds them. A NaN that an operation makes is the one of x86, 0xffc00000.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data

FLOAT = data.StructLayout({"fraction": 23, "exponent": 8, "sign": 1})
_NAN, _INFINITY = 0xFFC00000, 0x7F800000
_BIAS = 127 + 23  #: of the lowest bit of a significand
_EXPONENT = signed(12)


class Arithmetic:
    """Makes operators in a module; each returns a signal of 32 bits.

    Args:
        m: where they stand.
        name: prefix of its signals.
    """

    def __init__(self, m: Module, name: str) -> None:
        self._m, self._name, self._count = m, name, 0

    def _signal(self, shape: Any, value: Any) -> Signal:
        self._count += 1
        signal = Signal(shape, name=f"{self._name}_{self._count}")
        self._m.d.comb += signal.eq(value)
        return signal

    def from_integer(self, value: Value) -> Signal:
        """Of a signed integer of 33 bits."""
        magnitude = self._signal(33, Mux(value < 0, -value, value))
        return self._pack(value < 0, magnitude, 0, 0)

    def multiply(self, a: Value, b: Value) -> Signal:
        x, y, sign = FLOAT(a), FLOAT(b), a[31] ^ b[31]
        finite = self._pack(sign, _significand(x) * _significand(y), _lowest(x) + _lowest(y), 0)
        invalid = (_is_infinite(x) & _is_zero(y)) | (_is_zero(x) & _is_infinite(y))
        infinite = _is_infinite(x) | _is_infinite(y)
        return self._special(x, y, invalid, infinite, sign, finite)

    def divide(self, a: Value, b: Value) -> Signal:
        x, y, sign = FLOAT(a), FLOAT(b), a[31] ^ b[31]
        dividend = self._signal(72, Cat(Const(0, 48), _significand(x)))
        quotient = self._signal(72, dividend // _significand(y))
        sticky = self._signal(1, quotient * _significand(y) != dividend)
        finite = self._pack(sign, quotient, _lowest(x) - _lowest(y) - 48, sticky)
        result = Mux(_is_infinite(y), Cat(Const(0, 31), sign), finite)
        invalid = (_is_infinite(x) & _is_infinite(y)) | (_is_zero(x) & _is_zero(y))
        return self._special(x, y, invalid, _is_infinite(x) | _is_zero(y), sign, result)

    def add(self, a: Value, b: Value) -> Signal:
        larger = a[:31] >= b[:31]
        x, y = FLOAT(self._signal(32, Mux(larger, a, b))), FLOAT(self._signal(32, Mux(larger, b, a)))
        high = Cat(Const(0, 27), _significand(x))
        low = self._signal(51, Cat(Const(0, 27), _significand(y)))
        distance = self._signal(8, _lowest(x) - _lowest(y))
        shifted = self._signal(51, low >> distance)
        sticky = self._signal(1, (shifted << distance)[:307] != low)
        apart = x.sign ^ y.sign
        total = self._signal(53, Mux(apart, high - shifted - sticky, high + shifted))
        sign = Mux(apart & (total == 0) & ~sticky, 0, x.sign)
        finite = self._pack(sign, total, _lowest(x) - 27, sticky)
        invalid = _is_infinite(x) & _is_infinite(y) & apart
        return self._special(FLOAT(a), FLOAT(b), invalid, _is_infinite(x), x.sign, finite)

    def round_to(self, a: Value, least: Value, most: Value) -> Signal:
        """The nearest integer, halves to even, within [least, most], signed, 10 bits; 0 of NaN."""
        x = FLOAT(a)
        huge = x.exponent >= 127 + 9
        places = Signal(5, name=f"{self._name}_places")  # of the fraction behind the point; from 26 on nothing is left
        self._m.d.comb += places.eq(Mux(x.exponent < _BIAS - 26, 26, Mux(huge, 26, _BIAS - x.exponent)))
        scaled = self._signal(50, Cat(Const(0, 26), _significand(x)) >> places)
        whole, half, rest = scaled[26:], scaled[25], scaled[:25] != 0
        nearest = self._signal(10, whole + (half & (rest | whole[0])))
        value = self._signal(signed(12), Mux(huge, 512, nearest))
        wanted = self._signal(signed(12), Mux(x.sign, -value, value))
        clipped = Mux(wanted < least, least, Mux(wanted > most, most, wanted))
        return self._signal(signed(10), Mux(_is_nan(x), 0, clipped))

    def _special(self, x: Any, y: Any, invalid: Value, infinite: Value, sign: Value, finite: Value) -> Signal:
        """The result where an operand is no finite number: its NaN, quiet; what is invalid; infinity."""
        quiet = Mux(_is_nan(x), x.as_value(), y.as_value()) | (1 << 22)
        result = Mux(infinite, Cat(Const(_INFINITY, 31), sign), finite)
        return self._signal(32, Mux(_is_nan(x) | _is_nan(y), quiet, Mux(invalid, _NAN, result)))

    def _pack(self, sign: Value, significand: Value, lowest: Value, sticky: Value) -> Signal:
        """significand 2^lowest, and a little more where `sticky`, rounded."""
        m, width = self._m, len(significand)
        value = self._signal(width, significand)
        shift = self._signal(range(width), 0)
        for bit in range(width):  # the last assignment counts: that of the highest bit set
            with m.If(value[bit]):
                m.d.comb += shift.eq(width - 1 - bit)
        padding = max(0, 26 - width)
        total = width + padding
        top = self._signal(total, Cat(Const(0, padding), value) << shift)
        exponent = self._signal(_EXPONENT, lowest + (width - 24) - shift + _BIAS)  # biased, were it rounded to 24 bits
        below = self._signal(range(28), Mux(exponent >= 1, 0, Mux(exponent < -24, 26, 1 - exponent)))
        placed = self._signal(total + 26, Cat(Const(0, 26), top) >> below)
        kept, half, rest = placed[-24:], placed[-25], (placed[:-25] != 0) | sticky
        hidden = Mux(exponent >= 1, exponent - 1, 0)  # the highest bit kept adds 1 to it
        rounded = self._signal(33, (hidden << 23) + kept + (half & (rest | kept[0])))
        magnitude = Mux(exponent > 254, _INFINITY, Mux(rounded >= _INFINITY, _INFINITY, rounded))
        return self._signal(32, Cat(Mux(value == 0, 0, magnitude)[:31], sign))


def _significand(x: Any) -> Value:
    return Cat(x.fraction, x.exponent != 0)


def _lowest(x: Any) -> Value:
    """The exponent of the lowest bit of the significand."""
    return Mux(x.exponent == 0, 1, x.exponent) - _BIAS


def _is_nan(x: Any) -> Value:
    return (x.exponent == 255) & (x.fraction != 0)


def _is_infinite(x: Any) -> Value:
    return (x.exponent == 255) & (x.fraction == 0)


def _is_zero(x: Any) -> Value:
    return (x.exponent == 0) & (x.fraction == 0)
