"""Indices as sums of loop variables times numbers, and their bounds as expressions of what is known at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, Range, Var

from ....core.graph.nodes import nodes_of

_WRAPPED = tirx.Min | tirx.Max


@dataclass
class Affine:
    """constant + sum of coefficient * variable + sum of coefficient * expression that is no such sum.

    Attributes:
        terms: variable -> coefficient, no zeros.
        rest: (expression, coefficient), such as a quotient.
    """

    terms: dict[Any, int] = field(default_factory=dict)
    rest: list[tuple[Any, int]] = field(default_factory=list)
    constant: int = 0

    @classmethod
    def of(cls, expr: Any) -> Affine:
        """An integer expression as a sum."""
        out = cls()
        out._add(expr, 1)
        out.terms = {var: k for var, k in out.terms.items() if k}
        return out

    def _add(self, expr: Any, factor: int) -> None:
        kind = type(expr)
        if kind is tirx.IntImm or kind is int:
            self.constant += factor * int(expr)
        elif isinstance(expr, Var):
            self.terms[expr] = self.terms.get(expr, 0) + factor
        elif kind is tirx.Add or kind is tirx.Sub:
            self._add(expr.a, factor)
            self._add(expr.b, factor if kind is tirx.Add else -factor)
        elif kind is tirx.Mul and type(b := expr.b) is tirx.IntImm:
            self._add(expr.a, factor * int(b))
        elif kind is tirx.Mul and type(a := expr.a) is tirx.IntImm:
            self._add(expr.b, factor * int(a))
        else:
            self.rest.append((expr, factor))

    def expr(self, dtype: str) -> Any:
        """The sum as an expression of a type."""
        out = tirx.const(self.constant, dtype)
        for part, k in [*self.terms.items(), *self.rest]:
            out = out + part * k
        return out

    def without(self, var: Any) -> Affine:
        """The sum but for one variable."""
        return Affine({v: k for v, k in self.terms.items() if not v.same_as(var)}, self.rest, self.constant)


def sums_of(expr: Any) -> Iterator[Affine]:
    """The largest sums in an integer expression: itself, and the operands of what is no sum in it."""
    affine = Affine.of(expr)
    yield affine
    for part, _ in affine.rest:
        for operand in _operands(part):
            yield from sums_of(operand)


def _operands(expr: Any) -> list[Any]:
    if isinstance(expr, Call):
        return [a for a in expr.args if _is_integer(a)]
    return [e for name in ("a", "b", "base", "stride", "value", "condition", "true_value", "false_value", "body")
            if (e := getattr(expr, name, None)) is not None and _is_integer(e)]  # fmt: skip


def _is_integer(expr: Any) -> bool:
    dtype = getattr(getattr(expr, "ty", None), "dtype", None)
    return dtype is not None and str(dtype) in ("int32", "int64", "bool")


def variables_of(expr: Any) -> set[Any]:
    """The variables that an expression reads."""
    variables, rest = set(), [expr]
    while rest:
        part = rest.pop()
        if (kind := type(part)) in _OF_TWO:  # most indices: a walk by TVM costs more than all else about them
            rest += (part.a, part.b)
        elif isinstance(part, Var):
            variables.add(part)
        elif kind is not tirx.IntImm:
            variables.update(nodes_of(part, Var))
    return variables


_OF_TWO = {tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max}


def unwrapped(expr: Any) -> Any:
    """An index without what keeps it in its buffer: min(i, number) and max(i, number) are i."""
    while isinstance(expr, _WRAPPED) and (isinstance(expr.b, tirx.IntImm) or isinstance(expr.a, tirx.IntImm)):
        expr = expr.a if isinstance(expr.b, tirx.IntImm) else expr.b
    return expr


Extents = Mapping[Any, Sequence[Any]]
"""Parameter -> of each dimension the run-time extent, in the type of loops; None where it is the buffer's own."""

#: No index of a buffer is as large.
_HUGE = 1 << 30


class UnboundedError(Exception):
    """An index without a bound, such as one that is read from memory."""


Limit = Callable[[Any, bool], Any]
"""(variable, whether the largest is asked for) -> the largest or smallest value; None leaves the variable."""


class Arithmetic:
    """Simplification by the ranges of variables, and run-time bounds."""

    def __init__(self) -> None:
        self.analyzer = sym.Analyzer()
        self.extents: dict[Any, int] = {}

    def bind(self, var: Any, extent: int, low: int = 0) -> None:
        """State that low <= var < low + extent."""
        self.extents[var] = extent
        self.analyzer.bind(var, Range(tirx.const(low, var.ty.dtype), tirx.const(low + extent, var.ty.dtype)))

    def simplify(self, expr: Any) -> Any:
        """An equal expression, shorter where ranges allow."""
        return self.analyzer.simplify(expr)

    def range(self, form: Affine) -> tuple[int, int] | None:
        """Smallest and largest value of a sum; None if there is none."""
        low = high = form.constant
        parts = [*form.terms.items(), *form.rest]
        for expr, k in parts:
            bound = self.analyzer.const_int_bound(expr)
            ends = (k * int(bound.min_value), k * int(bound.max_value))
            if max(map(abs, ends)) > _HUGE:
                return None
            low, high = low + min(ends), high + max(ends)
        return low, high

    def extreme(self, expr: Any, largest: bool, limit: Limit) -> Any:
        """A bound of an index, of a vector of all its lanes, as an expression of the variables that `limit` leaves."""
        if isinstance(expr, tirx.IntImm):
            return expr
        if isinstance(expr, Var):
            value = limit(expr, largest)
            return expr if value is None else value
        again = lambda e, up: self.extreme(e, up, limit)  # noqa: E731
        if isinstance(expr, tirx.Add | tirx.Min | tirx.Max):
            return _SAME[type(expr)](again(expr.a, largest), again(expr.b, largest))
        if isinstance(expr, tirx.Sub):
            return again(expr.a, largest) - again(expr.b, not largest)
        if isinstance(expr, tirx.Mul) and isinstance(expr.b, tirx.IntImm):
            return again(expr.a, largest == (int(expr.b) >= 0)) * expr.b
        if isinstance(expr, tirx.Mul) and all(
            self.analyzer.const_int_bound(e).min_value >= 0 for e in (expr.a, expr.b)
        ):
            return again(expr.a, largest) * again(expr.b, largest)
        if isinstance(expr, tirx.FloorDiv) and self._divides(expr.b, limit):
            return tirx.floordiv(again(expr.a, largest), expr.b)
        if isinstance(expr, tirx.FloorMod) and self._divides(expr.b, limit):
            whole = self.analyzer.const_int_bound(expr.a).min_value >= 0 and largest
            return tirx.min(again(expr.a, True), expr.b - 1) if whole else expr.b - 1 if largest else expr.b * 0
        if isinstance(expr, tirx.Cast):
            return tirx.Cast(expr.ty.dtype, again(expr.value, largest))
        if isinstance(expr, tirx.Broadcast):
            return again(expr.value, largest)
        if isinstance(expr, tirx.Ramp) and isinstance(expr.stride, tirx.IntImm):
            over = (int(expr.lanes) - 1) * int(expr.stride)
            return again(expr.base, largest) + (max(over, 0) if largest else min(over, 0))
        if isinstance(expr, Call) and getattr(expr.op, "name", "") == "tirx.if_then_else":
            return _SAME[tirx.Max if largest else tirx.Min](again(expr.args[1], largest), again(expr.args[2], largest))
        if all(limit(var, largest) is None for var in variables_of(expr)):
            return expr
        bound = self.analyzer.const_int_bound(expr)
        number = int(bound.max_value if largest else bound.min_value)
        if abs(number) > _HUGE:
            raise UnboundedError
        return tirx.const(number, expr.ty.dtype)

    def _divides(self, divisor: Any, limit: Limit) -> bool:
        """Whether a divisor is a positive number, or an extent, which is none less than 0, that `limit` leaves."""
        if isinstance(divisor, tirx.IntImm):
            return int(divisor) > 0
        known = all(limit(var, True) is None for var in variables_of(divisor))
        return known and bool(self.analyzer.const_int_bound(divisor).min_value >= 0)


_SAME = {tirx.Add: lambda a, b: a + b, tirx.Min: tirx.min, tirx.Max: tirx.max}


def least_of(expr: Any) -> list[Any]:
    """Expressions whose least is an expression: of a + min(b, c) these are a + b and a + c."""
    form = Affine.of(expr)
    for place, (part, k) in enumerate(form.rest):
        if isinstance(part, tirx.Min) and k > 0:
            rest = Affine(form.terms, [*form.rest[:place], *form.rest[place + 1 :]], form.constant).expr(expr.ty.dtype)
            return [*least_of(rest + part.a * k), *least_of(rest + part.b * k)]
    return [expr]


def ceildiv(value: Any, by: int) -> Any:
    """The quotient, rounded up."""
    return value if by == 1 else tirx.floordiv(value + (by - 1), by)


def in_type(expr: Any, dtype: str, variables: dict[Any, Any]) -> Any:
    """An extent in the type of a loop variable, with other variables in the place of its own."""
    again = lambda e: in_type(e, dtype, variables)  # noqa: E731
    if isinstance(expr, int | tirx.IntImm):
        return tirx.const(int(expr), dtype)
    if isinstance(expr, Var) and expr in variables:
        return variables[expr]
    if isinstance(expr, tirx.Cast):
        return again(expr.value)
    for kind, make in _BINARY.items():
        if isinstance(expr, kind):
            return make(again(expr.a), again(expr.b))
    return tirx.Cast(dtype, expr)


_BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    tirx.Add: lambda a, b: a + b, tirx.Sub: lambda a, b: a - b, tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: tirx.floordiv, tirx.FloorMod: tirx.floormod, tirx.Div: tirx.truncdiv, tirx.Mod: tirx.truncmod,
    tirx.Min: tirx.min, tirx.Max: tirx.max,
}  # fmt: skip
