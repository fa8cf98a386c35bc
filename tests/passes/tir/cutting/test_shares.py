"""Threads do each needed iteration once, and as many as each other, by walking the loops that they get."""

from typing import Any

import pytest
from tvm import tirx
from tvm.ir.expr import TensorLoad

from tvm_ext.passes.tir.cutting.shares import Digit, shared
from tvm_ext.passes.tir.cutting.statements import children, serial

_EVALUATED: dict[Any, Any] = {
    tirx.Add: lambda a, b: a + b, tirx.Sub: lambda a, b: a - b, tirx.Mul: lambda a, b: a * b, tirx.Min: min,
    tirx.Max: max, tirx.FloorDiv: lambda a, b: a // b, tirx.FloorMod: lambda a, b: a % b, tirx.LE: lambda a, b: a <= b,
}  # fmt: skip


class Walk:
    """Runs statements over integers: what each thread evaluates.

    Attributes:
        done: thread -> values of the variables in its innermost statements, in their order.
    """

    def __init__(self, digits: list[Any], values: dict[Any, int]) -> None:
        self._digits, self._values, self._memory = digits, values, dict[Any, int]()
        self.done: dict[int, list[tuple[int, ...]]] = {}

    def value(self, expr: Any) -> Any:
        if isinstance(expr, tirx.IntImm):
            return int(expr)
        if isinstance(expr, TensorLoad):
            return self._memory[expr.source]
        if isinstance(expr, tirx.Select):
            return self.value(expr.true_value if self.value(expr.condition) else expr.false_value)
        for kind, of in _EVALUATED.items():
            if isinstance(expr, kind):
                return of(self.value(expr.a), self.value(expr.b))
        return self._values[expr]

    def run(self, stmt: Any, thread: int = 0) -> None:
        if isinstance(stmt, tirx.BufferStore):
            self._memory[stmt.buffer] = self.value(stmt.value)
        elif isinstance(stmt, tirx.Bind):
            self._values[stmt.var] = self.value(stmt.value)
        elif isinstance(stmt, tirx.Evaluate):
            self.done[thread].append(tuple(self._values[digit] for digit in self._digits))
        elif isinstance(stmt, tirx.For):
            first = self.value(stmt.min)
            for i in range(first, first + self.value(stmt.extent)):
                self._values[stmt.loop_var] = i
                if int(stmt.kind) == tirx.ForKind.PARALLEL:
                    thread = i
                    self.done[thread] = []
                self.run(stmt.body, thread)
        else:
            for child in children(stmt):
                self.run(child, thread)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("counts", [(1, 1), (2, 7), (4, 12), (3, 1), (0, 5)])
@pytest.mark.parametrize("columns", [0, 5])
def test_shares(counts: tuple[int, int], threads: int, columns: int) -> None:
    """Rows and tiles of a row, and around them so many columns, which are all needed."""
    names = [*(["columns"] if columns else []), "rows", "tiles"]
    extents = [*([columns] if columns else []), 4, 12]
    variables = [tirx.Var(name, "int32") for name in names]
    known = [tirx.Var(f"{name}_count", "int32") for name in ("rows", "tiles")]
    work = serial(tirx.Var("k", "int32"), tirx.const(1, "int32"), tirx.Evaluate(0))
    loops = [serial(v, tirx.const(e, "int32"), work) for v, e in zip(variables, extents, strict=True)]
    needed = [*([None] if columns else []), *known]
    digits = [Digit(loop, count) for loop, count in zip(loops, needed, strict=True)]
    walk = Walk(variables, dict(zip(known, counts, strict=True)))
    walk.run(shared(digits, threads, work))
    done = [walk.done[thread] for thread in range(threads)]
    ranges = [*([columns] if columns else []), *counts]
    everything = [()]
    for size in ranges:
        everything = [(*before, i) for before in everything for i in range(size)]
    assert sorted(index for part in done for index in part) == everything
    assert all(part == sorted(part) for part in done)
    lengths = [len(part) for part in done]
    assert max(lengths) <= max(-(-len(everything) // threads), 1.1 * len(everything) / threads)
