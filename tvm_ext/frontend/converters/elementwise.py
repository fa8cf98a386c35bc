"""Elementwise operators: Clip, Dropout, IsInf, Div, Mod, BitShift, Pow, and those of many operands."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of
from ...ops.scalars import strict_floats
from ..checks.refusal import Refusal
from .base import (
    Attributes,
    Converter,
    broadcast,
    constant,
    converts,
    emit,
    kernel,
    outputs_of,
    scalar,
    stock,
    takes_integers,
    text,
)
from .casts import decoded


@converts("Dropout")
def dropout(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Dropout(x) -> x: in inference nothing is dropped. Stock TVM leaves a call that stands in fusion's way."""
    x, ratio, training = inputs[0], inputs[1], inputs[2]
    if training is not None and not _is_zero(training) and not (ratio is not None and _is_zero(ratio)):
        open_ = next((v for v in (training, ratio) if v is not None and not isinstance(v, GenericConst)), None)
        raise Refusal("training_mode must be known and false, or ratio known and 0", unknown=open_)
    if outputs_of(attributes) == 1:
        return x
    return relax.Tuple([x, relax.op.ones(x.ty.shape, "bool")])


def _is_zero(x: Any) -> bool:
    return isinstance(x, GenericConst) and not x.value.numpy().any()


@converts("Clip")
def clip(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Clip(x, min, max) -> relax.clip, maximum or minimum, which passes can fuse; stock TVM leaves opaque kernels.

    A bound that is NaN, or missing, does not bind. Before opset 11 the bounds are attributes.
    """
    x, dtype, most = inputs[0], str(inputs[0].ty.dtype), np.iinfo(np.int64).max  # of TVM's literals
    low = _bound(inputs[1], attributes.get("min"), dtype, -math.inf)
    high = _bound(inputs[2], attributes.get("max"), dtype, math.inf)
    both = isinstance(low, float | int) and isinstance(high, float | int)
    if both and low <= high and ("float" in dtype or high <= most):
        return relax.op.clip(x, low, high)
    if low is not None:  # with the bounds crossed ONNX gives `max`, TVM's clip `min`
        x = relax.op.maximum(x, _tensor(low, dtype))
    return x if high is None else relax.op.minimum(x, _tensor(high, dtype))


def _bound(operand: Any, attribute: float | None, dtype: str, unbound: float) -> Any:
    """A bound as a Python number, a Relax expression if it is computed, or None if it does not bind."""
    if isinstance(operand, GenericConst):
        attribute = operand.value.numpy().reshape(()).item()
    elif operand is not None:
        if "float" not in dtype:
            return operand
        return relax.op.where(relax.op.isnan(operand), relax.const(unbound, dtype), operand)
    return None if attribute is None or attribute != attribute else attribute


def _tensor(bound: Any, dtype: str) -> Any:
    return constant(bound, dtype) if isinstance(bound, float | int) else bound


# ------------------------------------------------------------ several operands
def _folded(combine: Callable[[Any, Any], Any]) -> Converter:
    """Max(a, b, c) -> maximum(maximum(a, b), c); stock TVM stacks the operands and reduces the stack."""

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        return functools.reduce(combine, inputs)

    return converter


@converts("Mean")
def mean(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Mean(a, b, c) -> ((a + b) + c) / 3."""
    total = functools.reduce(relax.op.add, inputs)
    if len(inputs) == 1:
        return total
    return total / relax.const(len(inputs), str(inputs[0].ty.dtype))


@converts("IsInf")
def is_inf(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """IsInf, of one sign only if it says so; stock TVM finds both."""
    x = inputs[0]
    has_infinity = np.isinf(np.array(math.inf).astype(dtype_of(x)))  # not all floats of 8 bits have
    signs = [sign for name, sign in (("detect_positive", 1), ("detect_negative", -1)) if attributes.get(name, 1)]
    tests = [relax.op.equal(x, scalar(sign * math.inf, x)) for sign in signs if has_infinity]
    return functools.reduce(relax.op.logical_or, tests) if tests else relax.op.zeros(x.ty.shape, "bool")


# ------------------------------------------------------------ divisions of integers
# By what may be 0: no input, and no branch that is computed and not taken, may end the process.
#
#     a / b   ->   b == 0 ? 0 : b == -1 ? -a : a / b
#
# On x86 a division by 0, and one of the least integer by -1, is a signal. ONNX defines neither; numpy gives 0 for the
# first.
@converts("Div")
def div(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Div of integers, towards 0, by computed divisors that may be 0: the quotient is 0 there. The rest is stock.

    Which refuses a constant that is 0.
    """
    x, y = inputs[0], inputs[1]
    if not may_trap(x, y) or (isinstance(y, GenericConst) and not y.value.numpy().all()):
        return stock("Div", inputs, attributes, opset)
    dtype = dtype_of(x)
    return kernel(lambda a, b: broadcast(lambda n, d: _quotient(n, d, dtype), a, b), x, y, name="divide")


def remainder(x: Any, y: Any, truncated: bool) -> Any:
    """The remainder of integers by divisors that may be 0, where it is 0.

    Args:
        truncated: whether it has the sign of x, not that of y.
    """
    function, dtype = tirx.truncmod if truncated else tirx.floormod, dtype_of(x)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)

    def value(n: Any, d: Any) -> Any:
        trivial = d == zero if dtype.startswith("uint") else tirx.any(d == zero, d == tirx.const(-1, dtype))
        return tirx.Select(trivial, zero, function(n, tirx.Select(trivial, one, d)))

    return kernel(lambda a, b: broadcast(value, a, b), x, y, name="mod")


def _quotient(n: Any, d: Any, dtype: str) -> Any:
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if dtype.startswith("uint"):
        return tirx.Select(d == zero, zero, tirx.truncdiv(n, tirx.Select(d == zero, one, d)))
    minus = d == tirx.const(-1, dtype)
    quotient = tirx.truncdiv(n, tirx.Select(tirx.any(d == zero, minus), one, d))
    return tirx.Select(d == zero, zero, tirx.Select(minus, strict_floats.negative(n), quotient))


def may_trap(x: Any, y: Any) -> bool:
    """Whether x and y are integers, and y is no constant without 0 and -1."""
    if not (_is_integer(x) and _is_integer(y)):
        return False
    return not isinstance(y, GenericConst) or bool(np.isin(y.value.numpy().astype(object), (0, -1)).any())


def _is_integer(x: Any) -> bool:
    return isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType) and "int" in dtype_of(x)


# ------------------------------------------------------------ arithmetic at the edges
@converts("Mod")
def mod(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Mod -> the remainder with the sign of the dividend (fmod=1), or of the divisor, as numpy has it.

    Stock TVM computes x - floor(x / y) * y, which is NaN for an infinite divisor.
    """
    x, y = inputs[0], inputs[1]
    if may_trap(x, y):
        return remainder(x, y, bool(attributes.get("fmod", 0)))
    if "float" not in dtype_of(x):
        return stock("Mod", inputs, attributes, opset)
    if attributes.get("fmod", 0):
        return relax.op.mod(x, y)
    dtype = dtype_of(x)

    def value(a: Any, b: Any) -> Any:
        rest, zero = tirx.truncmod(a, b), tirx.const(0, dtype)
        up, down = tirx.Select(rest < zero, rest + b, rest), tirx.Select(rest > zero, rest + b, rest)
        signed = tirx.Select(b < zero, down, up)
        nothing = tirx.abs(rest)  # a zero of the divisor's sign; two constants TVM would take for equal
        return tirx.Select(rest == zero, tirx.Select(b < zero, nothing * tirx.const(-1, dtype), nothing), signed)

    return kernel(lambda a, b: broadcast(value, a, b), x, y, name="mod")


@converts("Sign")
def sign(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Sign; of unsigned integers, for which TVM has no -1, 1 where they are not 0."""
    x = inputs[0]
    return relax.op.minimum(x, scalar(1, x)) if dtype_of(x).startswith("uint") else relax.op.sign(x)


@converts("Erf")
@takes_integers
def error_function(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Erf; of integers through float64, and cut off."""
    return relax.op.erf(inputs[0])


@converts("IsNaN")
def is_nan(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """IsNaN; of float8, of which TVM does not ask it, in float32."""
    x = inputs[0]
    return relax.op.isnan(emit(decoded(x)) if dtype_of(x).startswith("float8") else x)


@converts("BitShift")
def bit_shift(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BitShift with what ONNX says of shifts that are negative or wider than the type: all bits leave.

    A right shift of a signed number keeps the sign. For LLVM such a shift has no value at all.
    """
    x, count = inputs[0], inputs[1]
    dtype = dtype_of(x)
    left, width = text(attributes, "direction", "LEFT") == "LEFT", np.iinfo(dtype).bits
    inside = relax.op.less(count, scalar(width, count))
    if dtype.startswith("int"):
        inside = relax.op.logical_and(inside, relax.op.greater_equal(count, scalar(0, count)))
    count = relax.op.where(inside, count, scalar(0 if left or dtype[0] == "u" else width - 1, count))
    shifted = (relax.op.left_shift if left else relax.op.right_shift)(x, count)
    if not left and dtype.startswith("int"):
        return shifted
    return relax.op.where(inside, shifted, scalar(0, x))


@converts("Pow")
def power(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Pow of any two dtypes; the result has that of the base. Stock TVM takes floats of one dtype only."""
    x, y = inputs[0], inputs[1]
    dtype = dtype_of(x)
    if dtype == dtype_of(y) and "float" in dtype:
        return relax.op.power(x, y)
    if "float" not in dtype and "float" not in dtype_of(y):
        return _integer_power(x, y)
    wide = dtype if "float" in dtype else "float64"
    result = relax.op.power(relax.op.astype(x, wide), relax.op.astype(y, wide))
    return result if wide == dtype else relax.op.astype(result, dtype)


def _integer_power(x: Any, y: Any) -> Any:
    """By squaring, modulo the width of the type, of bases beyond 1 to the 127th power; for a negative exponent 1 / x^y,
    cut off."""
    dtype, exponents = dtype_of(x), dtype_of(y)

    def value(base: Any, exponent: Any) -> Any:
        one, most = tirx.const(1, dtype), tirx.const(127, exponents)
        result, square = one, base
        exponent = tirx.Select(exponent > most, most - 1 + tirx.bitwise_and(exponent, 1), exponent)
        for bit in range(7):
            odd = tirx.bitwise_and(tirx.shift_right(exponent, tirx.const(bit, exponents)), 1) != 0
            result, square = result * tirx.Select(odd, square, one), square * square
        if exponents.startswith("uint"):
            return result
        return tirx.Select(exponent < 0, _reciprocal(base, exponent, one), result)

    return kernel(lambda a, b: broadcast(value, a, b), x, y, name="power")


def _reciprocal(base: Any, exponent: Any, unit: Any) -> Any:
    """1 / base^-exponent, cut off: only 1 and -1 give anything but 0."""
    even = tirx.bitwise_and(exponent, 1) == 0
    return tirx.Select(base == unit, unit, tirx.Select(base == -unit, tirx.Select(even, unit, -unit), unit - unit))


converts("Max")(_folded(relax.op.maximum))
converts("Min")(_folded(relax.op.minimum))
converts("Sum")(_folded(relax.op.add))
