"""Weight- and input-stationary array as registers; :mod:`..simulation.stationary_array` draws and explains them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .edges import OPERAND, SUM

#: What moves right, and what falls.
STREAM = data.StructLayout({"value": OPERAND, "valid": 1, "first": 1})
WEIGHT = data.StructLayout({"value": OPERAND, "latch": 1})


class StationaryElement(wiring.Component):
    """One PE: registers `stream`, `down`, `shadow`, `weight`, `sum`; `total` is what `sum` becomes in this clock."""

    def __init__(self) -> None:
        sides = {"left": In(STREAM), "top": In(OPERAND), "latch": In(1), "above": In(SUM)}
        super().__init__({**sides, "stream": Out(STREAM), "down": Out(OPERAND), "sum": Out(SUM), "total": Out(SUM)})
        self.shadow, self.weight = Signal(OPERAND), Signal(OPERAND)

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        weight = Mux(self.left.first, self.shadow, self.weight)
        m.d.comb += self.total.eq(self.above + self.left.value * weight)
        m.d.sync += [
            self.stream.eq(self.left),
            self.down.eq(self.top),
            self.weight.eq(weight),
            self.shadow.eq(Mux(self.latch, self.top, self.shadow)),
            self.sum.eq(self.total),
        ]
        return m


class StationaryArray(wiring.Component):
    """rows x cols PEs. `arriving` says which columns deliver a sum in this clock, `sums` has them.

    In the last row the accumulator memory stands in the place of the sum register.
    """

    def __init__(self, rows: int, cols: int) -> None:
        edges = {"left": In(data.ArrayLayout(STREAM, rows)), "top": In(data.ArrayLayout(WEIGHT, cols))}
        super().__init__({**edges, "arriving": Out(cols), "sums": Out(data.ArrayLayout(SUM, cols))})
        self.elements = [[StationaryElement() for _ in range(cols)] for _ in range(rows)]

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        for r, row in enumerate(self.elements):
            for c, element in enumerate(row):
                m.submodules[f"element_{r}_{c}"] = element
                m.d.comb += [
                    element.left.eq(row[c - 1].stream if c else self.left[r]),
                    element.top.eq(self.elements[r - 1][c].down if r else self.top[c].value),
                    element.above.eq(self.elements[r - 1][c].sum if r else 0),
                    element.latch.eq(self.top[c].latch),
                ]
        for c, element in enumerate(self.elements[-1]):
            m.d.comb += [self.arriving[c].eq(element.left.valid), self.sums[c].eq(element.total)]
        return m
