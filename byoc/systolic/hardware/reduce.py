"""REDUCE in the vector unit: a term a lane, `vector_lanes` terms a clock; sums stay until they are whole."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..code.isa import Reduce
from .edges import ADDRESS_BITS
from .records import REDUCE, choice

_COUNT_BITS = 32


class ReduceUnit(wiring.Component):
    """Goes over the terms [rows, cols, taps] of a tile, in order; holds an instruction while `active`, to `done`.

    Outputs:
        a_address, b_address: of the byte of each lane's term, and of its factor; `a` and `b` come in this clock.
        enable, address: of the words that become whole in a lane in this clock: `word`, what the accumulator holds,
            comes and `result` goes back in it.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        addresses, words = data.ArrayLayout(ADDRESS_BITS, lanes), data.ArrayLayout(32, lanes)
        operands = {"a_address": Out(addresses), "b_address": Out(addresses)}
        operands |= {name: In(data.ArrayLayout(8, lanes)) for name in ("a", "b")}
        accumulator = {"enable": Out(lanes), "address": Out(addresses), "word": In(words), "result": Out(words)}
        super().__init__({"active": In(1), "reduce": In(REDUCE), "done": Out(1), **operands, **accumulator})

    def elaborate(self, _platform: Any) -> Module:
        m, r = Module(), self.reduce
        is_max, is_dot = (r.op == choice(Reduce, "op", name) for name in ("max", "dot"))
        term, element, column, tap = (Signal(_COUNT_BITS, name=name) for name in ("term", "element", "column", "tap"))
        total, value = Signal(_COUNT_BITS), Signal(signed(32))  # value: of the element that lane 0 goes on with
        m.d.comb += [total.eq(r.rows * r.cols * r.taps), self.done.eq(self.active & (term + self._lanes >= total))]
        state: list[Value] = [element, column, tap, value]
        for lane in range(self._lanes):
            enable = self.active & (term + lane < total)
            state = self._lane(m, lane, enable, state, is_max, is_dot)
            m.d.comb += self.a_address[lane].eq(Mux(enable, r.a + term + lane, 0))
        with m.If(self.active):
            m.d.sync += term.eq(Mux(self.done, 0, term + self._lanes))
            for register, following in zip((element, column, tap, value), state, strict=True):
                m.d.sync += register.eq(Mux(self.done, 0, following))
        return m

    def _lane(
        self, m: Module, lane: int, enable: Value, state: list[Value], is_max: Value, is_dot: Value
    ) -> list[Value]:
        """One term; the state of the lane behind it: element, its column, its tap, and what its terms are so far."""
        r, (element, column, tap, value) = self.reduce, state
        a, b = self.a[lane].as_signed(), self.b[lane].as_signed()
        product, so_far, whole = (Signal(signed(32), name=f"{name}_{lane}") for name in ("term", "so_far", "whole"))
        word, is_last, ends_row = self.word[lane].as_signed(), tap + 1 == r.taps, column + 1 == r.cols
        m.d.comb += [
            product.eq(Mux(is_dot, a * b, a)),
            so_far.eq(Mux(tap == 0, product, _joined(is_max, value, product))),
            whole.eq(Mux(r.accumulate, _joined(is_max, word, so_far), so_far)),
            self.b_address[lane].eq(Mux(enable & is_dot, r.b + tap * r.cols + column, 0)),
            self.enable[lane].eq(enable & is_last),
            self.address[lane].eq(Mux(enable & is_last, r.c + element, 0)),
            self.result[lane].eq(whole),
        ]
        following = [Signal(_COUNT_BITS, name=f"{name}_{lane + 1}") for name in ("element", "column", "tap")]
        m.d.comb += [
            following[0].eq(element + is_last),
            following[1].eq(Mux(is_last, Mux(ends_row, 0, column + 1), column)),
            following[2].eq(Mux(is_last, 0, tap + 1)),
        ]
        return [*following, so_far]


def _joined(is_max: Value, left: Value, right: Value) -> Value:
    """The larger, or the sum."""
    return Mux(is_max, Mux(left > right, left, right), left + right)
