"""Floating-point operations that TVM's simplifier leaves alone: it takes floats for real numbers.

    x - x, (x + y) - y, x * 0          ->  0, x, 0        # NaN or infinity is lost, and the rounding of a sum
    x == x, x < y or x >= y            ->  true           # false if one is NaN
    not x < y                          ->  y <= x         # true and false if one is NaN
    max(x, y)                          ->  y where x is NaN, whatever the other one is

Each function here is its operator in IEEE arithmetic, in a form that the simplifier has no rule for. LLVM, which knows
NaN, makes the plain instruction of it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock

from .expressions import dtype_of, like

_LOWEST = {"float16": -65504.0, "float32": -3.4028234663852886e38, "float64": -1.7976931348623157e308}
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def is_float(x: Any) -> bool:
    """Whether an expression is a floating-point number."""
    return dtype_of(x) in _LOWEST


def minus(a: Any, b: Any) -> Any:
    """a - b as a + -1 b, which is the same number: a negation is exact."""
    return a + b * like(-1.0, b) if is_float(a) else a - b


def times(a: Any, b: Any) -> Any:
    """a b; a constant 0 stands as its bits, because 0 times NaN or infinity is NaN."""
    return _hidden_zero(a) * _hidden_zero(b) if is_float(a) else a * b


def _hidden_zero(x: Any) -> Any:
    if not isinstance(x, tirx.FloatImm) or x.value != 0:
        return x
    width = {"float16": 16, "float32": 32, "float64": 64}[dtype_of(x)]
    negative = tirx.reinterpret(dtype_of(x), tirx.const(-(1 << (width - 1)), f"int{width}"))
    return negative if math.copysign(1.0, x.value) < 0 else negative * like(-1.0, x)


def equal(a: Any, b: Any) -> Any:
    """a == b; of a number with itself: whether it is not NaN."""
    return tirx.Not(tirx.isnan(a)) if is_float(a) and _is_same(a, b) else tirx.EQ(a, b)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two numbers are one; TVM compares no expressions that read tensors, but elements can be told apart."""
    if _is_element(a) and _is_element(b):
        pairs = zip(a.args[1:], b.args[1:], strict=False)
        return bool(a.args[0].same_as(b.args[0]) and all(tvm_ffi.structural_equal(i, j) for i, j in pairs))
    try:
        return bool(tvm_ffi.structural_equal(a, b))
    except TypeError:
        return False


def _is_element(x: Any) -> bool:
    return isinstance(x, Call) and str(getattr(x.op, "name", "")) == "te.tensor_load"


def not_equal(a: Any, b: Any) -> Any:
    """a != b; of a number with itself: whether it is NaN."""
    return tirx.isnan(a) if is_float(a) and _is_same(a, b) else tirx.NE(a, b)


def logical_not(x: Any) -> Any:
    """not x; of a comparison of floats: the opposite one, or one of the two is NaN."""
    if not isinstance(x, _COMPARISONS) or not is_float(x.a):
        return tirx.Not(x)
    opposite = {tirx.LT: tirx.GE, tirx.LE: tirx.GT, tirx.GT: tirx.LE, tirx.GE: tirx.LT}[type(x)]
    return tirx.any(opposite(x.a, x.b), tirx.isnan(x.a), tirx.isnan(x.b))


def logical_or(a: Any, b: Any) -> Any:
    """a or b; two comparisons of floats stand as numbers, so that no rule joins them."""
    if isinstance(a, _COMPARISONS) and isinstance(b, _COMPARISONS) and is_float(a.a) and is_float(b.a):
        one, zero = tirx.const(1.0, "float32"), tirx.const(0.0, "float32")
        return tirx.Select(a, one, zero) + tirx.Select(b, one, zero) > zero
    return tirx.any(a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger one, or NaN: LLVM's own, which names each operand once, so that chains of it do not grow."""
    return tirx.call_llvm_pure_intrin(dtype_of(a), "llvm.maximum", a, b) if is_float(a) else tirx.max(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller one, or NaN."""
    return tirx.call_llvm_pure_intrin(dtype_of(a), "llvm.minimum", a, b) if is_float(a) else tirx.min(a, b)


def strict(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel that TVM's own operators made, with its differences, comparisons and extremes in these forms.

    What starts from the largest finite number, or is padded with it, is a minimum or a maximum; it starts from infinity
    then.
    """
    rules = [
        (tirx.Sub, _if_float(minus)), (tirx.EQ, _if_float(equal)), (tirx.NE, _if_float(not_equal)),
        (tirx.Max, _if_float(maximum)), (tirx.Min, _if_float(minimum)), (tirx.Not, lambda node: logical_not(node.a)),
        (tirx.Or, lambda node: logical_or(node.a, node.b)),
    ]  # fmt: skip
    if _finds_extremes(function):
        rules.append((tirx.FloatImm, _infinite))
    return function.with_body(tvm_ffi.structural_map(function.body, rules))


def _if_float(strictly: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The rule for nodes of two floating-point operands; others stay."""
    return lambda node: strictly(node.a, node.b) if is_float(node.a) else node


def _finds_extremes(function: tirx.PrimFunc) -> bool:
    """Whether some block starts from the largest finite number."""
    starts: list[Any] = []

    def look(block: SBlock) -> None:
        if block.init is not None:
            tvm_ffi.structural_walk(block.init, (tirx.FloatImm, starts.append))

    tvm_ffi.structural_walk(function.body, (SBlock, look))
    return any(_infinite(value) is not value for value in starts)


def _infinite(value: tirx.FloatImm) -> tirx.FloatImm:
    if abs(value.value) != -_LOWEST.get(dtype_of(value), 0.0):
        return value
    return tirx.const(math.copysign(math.inf, value.value), dtype_of(value))
