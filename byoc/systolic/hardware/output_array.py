"""Output-stationary array as registers; :mod:`..simulation.output_array` draws and explains them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .edges import OPERAND, SUM

#: What moves right; values alone fall.
RIGHT = data.StructLayout({"value": OPERAND, "first": 1, "last": 1})


class OutputElement(wiring.Component):
    """One PE: registers `right`, `down`, `total`, `held`, `out`; `leaving` is what it hands down in this clock."""

    def __init__(self) -> None:
        sides = {"left": In(RIGHT), "top": In(OPERAND), "above": In(SUM), "begins": In(1)}
        super().__init__({**sides, "right": Out(RIGHT), "down": Out(OPERAND), "leaving": Out(SUM)})
        self.total, self.held, self.out = Signal(SUM), Signal(SUM), Signal(SUM)

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        total = Signal(SUM)
        m.d.comb += [
            total.eq(Mux(self.left.first, 0, self.total) + self.left.value * self.top),
            self.leaving.eq(Mux(self.begins, self.held, self.out)),
        ]
        m.d.sync += [
            self.right.eq(self.left),
            self.down.eq(self.top),
            self.total.eq(total),
            self.held.eq(Mux(self.left.last, total, self.held)),
            self.out.eq(self.above),
        ]
        return m


class OutputArray(wiring.Component):
    """rows x cols PEs. `arriving` says which columns deliver a result in this clock, `sums` has them."""

    def __init__(self, rows: int, cols: int) -> None:
        edges = {"left": In(data.ArrayLayout(RIGHT, rows)), "top": In(data.ArrayLayout(OPERAND, cols))}
        super().__init__({**edges, "arriving": Out(cols), "sums": Out(data.ArrayLayout(SUM, cols))})
        self.elements = [[OutputElement() for _ in range(cols)] for _ in range(rows)]
        self.left_to_drain = [Signal(range(rows + 1), name=f"left_to_drain_{c}") for c in range(cols)]

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        rows = len(self.elements)
        for r, row in enumerate(self.elements):
            for c, element in enumerate(row):
                m.submodules[f"element_{r}_{c}"] = element
                m.d.comb += [
                    element.left.eq(row[c - 1].right if c else self.left[r]),
                    element.top.eq(self.elements[r - 1][c].down if r else self.top[c]),
                    element.above.eq(self.elements[r - 1][c].leaving if r else 0),
                    element.begins.eq(self.left_to_drain[c] == rows),
                ]
        for c, (element, left) in enumerate(zip(self.elements[-1], self.left_to_drain, strict=True)):
            m.d.comb += [self.arriving[c].eq(left != 0), self.sums[c].eq(element.leaving)]
            m.d.sync += left.eq(Mux(element.left.last, rows, Mux(left == 0, 0, left - 1)))
        return m
