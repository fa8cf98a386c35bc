"""Operations that TVM's simplifier leaves alone: it takes floats for real numbers, and integers for whole ones.

    x - x, (x + y) - y, x * 0, 0 / x   ->  0, x, 0, 0     # NaN or infinity is lost, and the rounding of a sum
    x == x, x < y or x >= y            ->  true           # false if one is NaN
    not x < y, not x == y              ->  y <= x, x != y # true and false if one is NaN
    where(x < y, a, where(x >= y, b, c))  ->  a or b       # c if one is NaN
    x != y                             ->  an ordered comparison in LLVM: false if one is NaN
    max(x, y)                          ->  y where x is NaN, whatever the other one is
    x + 2147483647 + 3                 ->  x + 2147483650 # which int32 has not

Each function here is its operator in IEEE arithmetic, in a form that the simplifier has no rule for. LLVM, which knows
NaN, makes the plain instruction of it again.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock

from ...core.graph.nodes import nodes_of
from .expressions import dtype_of, let, like

_LOWEST = {"float16": -65504.0, "float32": -3.4028234663852886e38, "float64": -1.7976931348623157e308}
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


def is_float(x: Any) -> bool:
    """Whether an expression is a floating-point number."""
    return dtype_of(x) in _LOWEST


def plus(a: Any, b: Any) -> Any:
    """a + b; of integers modulo their width, as all of these. A constant 0 stands as its bits: 0 + -0 is 0."""
    return _hidden_zero(a) + _hidden_zero(b) if is_float(a) else _wrapped(operator.add, a, b)


def minus(a: Any, b: Any) -> Any:
    """a - b; of floats as a + -1 b, which is the same number: a negation is exact."""
    return plus(a, b * like(-1.0, b)) if is_float(a) else _wrapped(operator.sub, a, b)


def negative(x: Any) -> Any:
    """-x; that of the smallest integer is itself."""
    return -x if is_float(x) else _wrapped(operator.sub, like(0, x), x)


def times(a: Any, b: Any) -> Any:
    """a b; a constant 0 stands as its bits, because 0 times NaN or infinity is NaN."""
    return _hidden_zero(a) * _hidden_zero(b) if is_float(a) else _wrapped(operator.mul, a, b)


def quotient(a: Any, b: Any) -> Any:
    """a / b of floats; by a constant zero, which TVM refuses to divide by, it is the same as times infinity."""
    if isinstance(b, tirx.FloatImm) and b.value == 0:
        return times(a, like(math.copysign(math.inf, b.value), b))
    return _hidden_zero(a) / b


def _hidden_zero(x: Any) -> Any:
    if not isinstance(x, tirx.FloatImm) or x.value != 0:
        return x
    width = {"float16": 16, "float32": 32, "float64": 64}[dtype_of(x)]
    negative = tirx.reinterpret(dtype_of(x), tirx.const(-(1 << (width - 1)), f"int{width}"))
    return negative if math.copysign(1.0, x.value) < 0 else negative * like(-1.0, x)


def _wrapped(sum_or_product: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """The result of integers modulo their width.

    TVM tells LLVM that no result of 32 bits or more leaves its type, so that x + 1 > x is always true, and joins
    constants likewise. Those of 32 bits are computed in 64; those of 64 in halves, each of which has room for a carry.
    """
    dtype = dtype_of(a)
    width = int(tvm.DataType(dtype).bits)
    if width < 32:
        return sum_or_product(a, b)
    if width == 32:
        # of a product no bit is left
        wide = "uint64" if sum_or_product is operator.mul and dtype == "uint32" else "int64"
        return sum_or_product(a.astype(wide), b.astype(wide)).astype(dtype)
    by_halves = {operator.add: _sum, operator.sub: _difference, operator.mul: _product}[sum_or_product]
    y = _in_halves(a, lambda *low_high: _in_halves(b, lambda *others: by_halves(*low_high, *others)))
    return y if dtype == "uint64" else tirx.reinterpret(dtype, y)


_LOW = 0xFFFFFFFF


def _word(value: int) -> Any:
    return tirx.const(value, "uint64")


def _in_halves(x: Any, body: Callable[[Any, Any], Any]) -> Any:
    """`body` of the low and the high 32 bits of an integer of 64, each as uint64."""
    if isinstance(x, tirx.IntImm):
        return body(_word(int(x.value) & _LOW), _word(int(x.value) >> 32 & _LOW))
    return let(tirx.reinterpret("uint64", x), lambda u: body(u & _word(_LOW), u >> _word(32)))


def _joined(low: Any, high: Any) -> Any:
    """high * 2^32 + low, of numbers below 2^63, modulo 2^64."""
    return let(low, lambda low: ((high + (low >> _word(32))) << _word(32)) | (low & _word(_LOW)))


def _sum(al: Any, ah: Any, bl: Any, bh: Any) -> Any:
    return _joined(al + bl, ah + bh)


def _difference(al: Any, ah: Any, bl: Any, bh: Any) -> Any:
    """a + not b + 1."""
    return _joined(al + (_word(_LOW) - bl) + _word(1), ah + (_word(_LOW) - bh))


def _product(al: Any, ah: Any, bl: Any, bh: Any) -> Any:
    return _joined(al * bl, ((al * bh) & _word(_LOW)) + ((ah * bl) & _word(_LOW)))


def equal(a: Any, b: Any) -> Any:
    """a == b; of a number with itself: whether it is not NaN. Truth values, which LLVM cannot compare, as numbers."""
    if dtype_of(a) == "bool":
        return tirx.EQ(_number(a), _number(b))
    return tirx.Not(tirx.isnan(a)) if is_float(a) and _is_same(a, b) else tirx.EQ(a, b)


def _number(truth: Any) -> Any:
    return tirx.Select(truth, tirx.const(1.0, "float32"), tirx.const(0.0, "float32"))


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
    """a != b, which NaN is of every number; of a number with itself: whether it is NaN."""
    if not is_float(a) and dtype_of(a) != "bool":
        return tirx.NE(a, b)
    return tirx.isnan(a) if is_float(a) and _is_same(a, b) else logical_not(equal(a, b))


def logical_not(x: Any) -> Any:
    """not x; what compares floats stands as a number, so that no rule turns the comparison around."""
    return tirx.Select(x, tirx.const(0.0, "float32"), tirx.const(1.0, "float32")) > 0.0 if _compares(x) else tirx.Not(x)


def logical_or(a: Any, b: Any) -> Any:
    """a or b; what compares floats stands as a number, so that no rule joins the comparisons."""
    return _number(a) + _number(b) > 0.0 if _compares(a) and _compares(b) else tirx.any(a, b)


def where(condition: Any, a: Any, b: Any) -> Any:
    """a or b; a condition that compares floats stands as a number, so that b is not taken to be under its opposite."""
    return tirx.Select(_number(condition) > 0.0 if _compares(condition) else condition, a, b)


def _compares(x: Any) -> bool:
    """Whether an expression is a comparison of floats, or made of such by logic."""
    if isinstance(x, _COMPARISONS):
        return is_float(x.a)
    return any(_compares(getattr(x, side)) for side in ("a", "b", "body") if hasattr(x, side))


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
        (tirx.Select, lambda node: where(node.condition, node.true_value, node.false_value)),
    ]  # fmt: skip
    if _finds_extremes(function):
        rules.append((tirx.FloatImm, _infinite))
    return function.with_body(tvm_ffi.structural_map(function.body, rules))


def _if_float(strictly: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The rule for nodes of two floating-point operands; others stay."""
    return lambda node: strictly(node.a, node.b) if is_float(node.a) else node


def _finds_extremes(function: tirx.PrimFunc) -> bool:
    """Whether some block starts from the largest finite number."""
    inits = (block.init for block in nodes_of(function.body, SBlock) if block.init is not None)
    return any(_infinite(value) is not value for init in inits for value in nodes_of(init, tirx.FloatImm))


def _infinite(value: tirx.FloatImm) -> tirx.FloatImm:
    if abs(value.value) != -_LOWEST.get(dtype_of(value), 0.0):
        return value
    return tirx.const(math.copysign(math.inf, value.value), dtype_of(value))
