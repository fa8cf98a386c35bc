"""The vector unit: a lane an element, in a clock; :mod:`..simulation.vector` defines the operations."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..code.isa import Vector
from .edges import ADDRESS_BITS
from .float32 import FLOAT, Arithmetic
from .records import VECTOR, choice

_COUNT_BITS = 32


class VectorLane(wiring.Component):
    """One element: `word` of the accumulator, and `operand` of the scratchpad, 4 bytes, to `result`."""

    def __init__(self) -> None:
        super().__init__({"vector": In(VECTOR), "word": In(32), "operand": In(32), "result": Out(32)})

    def elaborate(self, _platform: Any) -> Module:
        m, v = Module(), self.vector
        arithmetic = Arithmetic(m, "float")
        is_int8 = v.dtype == choice(Vector, "dtype", "int8")
        is_int32 = v.dtype == choice(Vector, "dtype", "int32")
        is_add, is_multiply = (v.op == choice(Vector, "op", name) for name in ("add", "multiply"))
        word, operand = self.word, self.operand

        factor = Mux((v.source == choice(Vector, "source", "none")) | is_add, v.scale, operand)
        integer = Signal(signed(33))
        m.d.comb += integer.eq((Mux(is_add, operand[:8].as_signed(), word.as_signed()) - v.zero_point)[:32].as_signed())
        converted = arithmetic.from_integer(integer)
        product = arithmetic.multiply(Mux(is_multiply, word, converted), factor)
        total = arithmetic.add(word, Mux(is_int8, product, operand))
        quotient = arithmetic.divide(word, factor)
        rounded = arithmetic.round_to(quotient, -128 - v.zero_point, 127 - v.zero_point)
        x = FLOAT(word)
        is_nan = (x.exponent == 255) & (x.fraction != 0)
        order, low, high = (_order(m, name, of) for name, of in (("word", word), ("low", v.low), ("high", v.scale)))
        clipped = Mux(order < low, v.low, Mux(order > high, v.scale, word))

        with m.Switch(v.op):
            with m.Case(choice(Vector, "op", "add")):
                m.d.comb += self.result.eq(Mux(is_int32, word + operand, total))
            with m.Case(choice(Vector, "op", "relu")):
                m.d.comb += self.result.eq(Mux(x.sign & (is_int32 | ~is_nan), 0, word))
            with m.Case(choice(Vector, "op", "clip")):
                m.d.comb += self.result.eq(Mux(is_nan, word, clipped))
            with m.Case(choice(Vector, "op", "quantize")):
                m.d.comb += self.result.eq(rounded + v.zero_point)
            with m.Default():  # multiply, dequantize: the others of `..rtl.OPERATIONS`
                m.d.comb += self.result.eq(product)
        return m


def _order(m: Module, name: str, number: Value) -> Signal:
    """A number that compares with others as a float32 that is no NaN does; both zeros are the same."""
    order = Signal(signed(32), name=f"{name}_order")
    m.d.comb += order.eq(Mux(number[31], -number[:31], number[:31]))
    return order


class VectorUnit(wiring.Component):
    """Goes over a tile, an element a lane in each clock; holds an instruction while `active`, to the clock of `done`.

    Outputs:
        enable, address: of the words of the accumulator, whose `word` comes and `result` goes back in this clock.
        operand_address: of the first byte of each lane's operand.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        words, addresses = data.ArrayLayout(32, lanes), data.ArrayLayout(ADDRESS_BITS, lanes)
        accumulator = {"enable": Out(lanes), "address": Out(addresses), "word": In(words), "result": Out(words)}
        operands = {"operand_address": Out(addresses), "operand": In(words)}
        super().__init__({"active": In(1), "vector": In(VECTOR), "done": Out(1), **accumulator, **operands})

    def elaborate(self, _platform: Any) -> Module:
        m, v = Module(), self.vector
        element, column = Signal(_COUNT_BITS), Signal(16)  # those of lane 0
        total = Signal(_COUNT_BITS)
        shift = Mux(v.dtype == choice(Vector, "dtype", "int8"), 0, 2)
        is_row = v.source == choice(Vector, "source", "row")
        held = Signal(VECTOR)  # still while no lane works
        m.d.comb += [
            total.eq(v.rows * v.cols),
            self.done.eq(self.active & (element + self._lanes >= total)),
            held.eq(Mux(self.active, v.as_value(), 0)),
        ]
        columns = [column]
        for index in range(self._lanes):
            lane = VectorLane()
            m.submodules[f"lane_{index}"] = lane
            at, enable = element + index, self.active & (element + index < total)
            m.d.comb += [
                self.enable[index].eq(enable),
                self.address[index].eq(Mux(enable, v.c + at, 0)),
                self.operand_address[index].eq(Mux(enable, v.address + (Mux(is_row, columns[-1], at) << shift), 0)),
                lane.vector.eq(held),
                lane.word.eq(Mux(enable, self.word[index], 0)),
                lane.operand.eq(Mux(enable, self.operand[index], 0)),
                self.result[index].eq(lane.result),
            ]
            following = Signal(16, name=f"column_{index + 1}")
            m.d.comb += following.eq(Mux(columns[-1] + 1 == v.cols, 0, columns[-1] + 1))
            columns.append(following)
        with m.If(self.active):
            m.d.sync += element.eq(Mux(self.done, 0, element + self._lanes))
            m.d.sync += column.eq(Mux(self.done, 0, columns[-1]))
        return m
