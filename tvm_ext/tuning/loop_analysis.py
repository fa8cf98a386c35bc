"""Statements of a scheduled TIR function, with the loops around them, what they compute and what they touch.

    for yo, xo, r, yi: for xi in vectorized(16): C[4 yo + yi, 16 xo + xi] += A[...] * B[...]
    ->  loops (64, 32, 512, 4, 16 vectorized); one mul, one add; loads C, A, B, stores C

Bytes touched inside a loop come from how many values each index takes while the loops inside run: an index is
compiled once to a Python function of the loops' extents, so that no TVM object is touched afterwards. Sums of products
with constants are exact, floor divisions and remainders count aligned pieces.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx

Extents = Mapping[int, int]
"""Variable (its hash) -> values it takes; variables that are left out are fixed."""

Width = Callable[[Extents], int]
"""How many values an expression takes, from its least to its greatest."""

#: Numbers of `ForKind` -> names.
_KINDS = {0: "serial", 1: "parallel", 2: "vec", 3: "unroll", 4: "thread"}
_ARITHMETIC = {
    "Add": "add", "Sub": "add", "Mul": "mul", "Div": "div", "FloorDiv": "div", "FloorMod": "div", "Mod": "div",
    "Max": "select", "Min": "select", "Select": "select", "Call": "call",
}  # fmt: skip
_OPERANDS = ("a", "b", "value", "condition", "true_value", "false_value", "args", "indices", "body", "base")


@dataclass(frozen=True)
class Loop:
    """A loop around a statement: its variable, extent and kind ("serial", "parallel", "vec", "unroll", "thread")."""

    var: int
    extent: int
    kind: str


@dataclass(frozen=True)
class Access:
    """A load or a store.

    Attributes:
        buffer: its hash; item: bytes of an element; size: bytes of the buffer.
        widths: of its indices.
        strides: elements between neighbours in each dimension.
    """

    buffer: int
    item: int
    size: int
    widths: tuple[Width, ...]
    strides: tuple[int, ...]

    def touched(self, extents: Extents) -> int:
        """Bytes of the smallest box that holds all it touches, at most the buffer's."""
        return min(self.size, self.item * math.prod(width(extents) for width in self.widths))

    def stride(self, var: int) -> int:
        """Elements between the accesses of neighbouring iterations of a loop."""
        step = {var: 2}
        return sum((width(step) - 1) * stride for width, stride in zip(self.widths, self.strides, strict=True))


@dataclass
class Statement:
    """A store and what it needs.

    Attributes:
        loops: around it, outermost first.
        guarded: whether a condition is around it.
        operations: floating-point arithmetic of one iteration, by kind.
        accesses: the store, then the loads.
    """

    loops: tuple[Loop, ...]
    guarded: bool
    operations: Counter[str] = field(default_factory=Counter)
    accesses: list[Access] = field(default_factory=list)

    @property
    def iterations(self) -> int:
        return math.prod(loop.extent for loop in self.loops)

    @property
    def work(self) -> int:
        """Iterations times what each does."""
        return self.iterations * (1 + sum(self.operations.values()))

    def touched(self, inner: int) -> int:
        """Bytes that one run of the innermost loops, so many of them, touches."""
        loops = self.loops[len(self.loops) - inner :]
        extents = {loop.var: loop.extent for loop in loops}
        buffers: dict[int, int] = {}
        for access in self.accesses:
            buffers[access.buffer] = max(buffers.get(access.buffer, 0), access.touched(extents))
        return sum(buffers.values())


def statements(function: tirx.PrimFunc) -> list[Statement]:
    """The statements of a function in order; initial values of reductions are left out."""
    return list(_walk(function.body, (), False, {}))


def _walk(stmt: Any, loops: tuple[Loop, ...], guarded: bool, bound: dict[int, Width]) -> Iterator[Statement]:
    kind = type(stmt).__name__
    if kind == "For":
        loop = Loop(hash(stmt.loop_var), getattr(stmt.extent, "value", 1), _KINDS.get(int(stmt.kind), "serial"))
        yield from _walk(stmt.body, (*loops, loop), guarded, bound)
    elif kind == "SeqStmt":
        for inner in stmt.seq:
            yield from _walk(inner, loops, guarded, bound)
    elif kind == "SBlockRealize":
        axes = zip(stmt.block.iter_vars, stmt.iter_values, strict=True)
        inside = {**bound, **{hash(axis.var): _width(value, bound) for axis, value in axes}}
        guarded = guarded or getattr(stmt.predicate, "value", 0) != 1
        yield from _walk(stmt.block.body, loops, guarded, inside)
    elif kind == "IfThenElse":
        for inner in filter(None, (stmt.then_case, stmt.else_case)):
            yield from _walk(inner, loops, True, bound)
    elif kind == "BufferStore":
        statement = Statement(loops, guarded)
        statement.accesses.append(_access(stmt.buffer, stmt.indices, bound))
        _expression(stmt.value, statement, bound)
        yield statement
    elif hasattr(stmt, "body"):
        yield from _walk(stmt.body, loops, guarded, bound)


def _expression(expr: Any, statement: Statement, bound: Mapping[int, Width]) -> None:
    """Count the arithmetic of an expression and note its loads."""
    kind = type(expr).__name__
    if kind == "TensorLoad":
        statement.accesses.append(_access(expr.source, expr.indices, bound))
        return  # the arithmetic of an index is none of the statement's
    operation = _ARITHMETIC.get(kind)
    if operation and "float" in str(getattr(expr, "ty", "")):
        chosen = kind == "Call" and str(getattr(expr.op, "name", "")).endswith(".if_then_else")
        statement.operations["select" if chosen else operation] += 1
    for operand in _operands(expr):
        _expression(operand, statement, bound)


def _operands(expr: Any) -> Iterator[Any]:
    for name in _OPERANDS:
        operand = getattr(expr, name, None)
        if isinstance(operand, tvm_ffi.Array):
            yield from operand
        elif operand is not None and not isinstance(operand, int | float | str):
            yield operand


def _access(buffer: Any, indices: Any, bound: Mapping[int, Width]) -> Access:
    shape = [getattr(size, "value", 1) for size in buffer.shape]
    strides = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
    item = -(-int(buffer.dtype.bits) * int(buffer.dtype.lanes) // 8)
    widths = tuple(_width(index, bound) for index in indices)
    return Access(hash(buffer), item, item * math.prod(shape), widths, strides)


# ------------------------------------------------------------------------------------------------ widths
def _width(expr: Any, bound: Mapping[int, Width]) -> Width:
    """Compile an expression to the number of values it takes."""
    kind = type(expr).__name__
    if kind == "Var":
        var = hash(expr)
        return bound[var] if var in bound else lambda extents: extents.get(var, 1)
    parts = [_width(operand, bound) for operand in _operands(expr)]
    if not parts:
        return lambda extents: 1
    if len(parts) == 1:
        return parts[0]
    first, second = parts[0], parts[1]
    constant = getattr(expr.b, "value", None) if hasattr(expr, "b") else None
    if kind in ("Add", "Sub"):
        return lambda extents: first(extents) + second(extents) - 1
    if kind == "Mul" and isinstance(constant, int):
        return lambda extents: (first(extents) - 1) * abs(constant) + 1
    if kind in ("FloorDiv", "Div") and isinstance(constant, int):
        return lambda extents: (first(extents) - 1) // abs(constant) + 1
    if kind in ("FloorMod", "Mod") and isinstance(constant, int):
        return lambda extents: min(first(extents), abs(constant))
    return lambda extents: max(part(extents) for part in parts)
