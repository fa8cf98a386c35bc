"""What stands around the PEs, as registers: skew, ports that feed folds, corners of folds, addresses of results.

Names and structure are those of :mod:`..simulation.array_edges`, which says what each is for.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

#: Widths of an address, in bytes of the scratchpad or words of the accumulator, and of a size of a GEMM.
ADDRESS_BITS, SIZE_BITS = 32, 16
OPERAND, SUM = signed(8), signed(32)


class Skew(wiring.Component):
    """The triangle of registers at one edge: lane i of `vector` leaves in `skewed` i clocks after lane 0.

    Args:
        lanes: rows (left edge) or columns (top edge) of the array.
        shape: of what a lane carries, a value with its control bits.
    """

    def __init__(self, lanes: int, shape: Any) -> None:
        self._lanes, self._shape = lanes, shape
        layout = data.ArrayLayout(shape, lanes)
        super().__init__({"vector": In(layout), "skewed": Out(layout)})

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        for lane in range(self._lanes):
            value = self.vector[lane]
            for stage in range(lane):
                register = Signal(self._shape, name=f"lane_{lane}_stage_{stage}")
                m.d.sync += register.eq(value)
                value = register
            m.d.comb += self.skewed[lane].eq(value)
        return m


class Port(wiring.Component):
    """Feeds the vectors of one fold after the other, a vector a clock: `position` of the `length` of a fold.

    `begin`, while `is_free`, feeds position 0 in the same clock; `is_last` marks the last one.
    """

    def __init__(self) -> None:
        flags = {"is_free": Out(1), "feeding": Out(1), "is_last": Out(1)}
        super().__init__({"begin": In(1), "length": In(SIZE_BITS), "position": Out(SIZE_BITS), **flags})

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        active = Signal()
        m.d.comb += [
            self.is_free.eq(~active),
            self.feeding.eq(active | self.begin),
            self.is_last.eq(self.feeding & (self.position == self.length - 1)),
        ]
        with m.If(self.feeding):
            m.d.sync += active.eq(~self.is_last), self.position.eq(Mux(self.is_last, 0, self.position + 1))
        return m


class Folds(wiring.Component):
    """The corner of one fold after the other: `inner` moves first, each by its step; `next` goes on, at the end to 0.

    Args:
        inner_step, outer_step: rows or columns of the array.
    """

    def __init__(self, inner_step: int, outer_step: int) -> None:
        self._inner_step, self._outer_step = inner_step, outer_step
        size, corner = In(SIZE_BITS), Out(SIZE_BITS)
        sizes = {"inner_size": size, "outer_size": size}
        super().__init__({"next": In(1), **sizes, "inner": corner, "outer": corner, "is_last": Out(1)})

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        inner_last, outer_last = Signal(), Signal()
        m.d.comb += [
            inner_last.eq(self.inner + self._inner_step >= self.inner_size),
            outer_last.eq(self.outer + self._outer_step >= self.outer_size),
            self.is_last.eq(inner_last & outer_last),
        ]
        with m.If(self.next):
            m.d.sync += self.inner.eq(Mux(inner_last, 0, self.inner + self._inner_step))
            with m.If(inner_last):
                m.d.sync += self.outer.eq(Mux(outer_last, 0, self.outer + self._outer_step))
        return m


#: Where a column puts a sum: the word, whether it is added to what is there, how many columns of the fold are results
#: and not padding, and whether it is the last sum of its column in the fold, and in the GEMM.
PLACE = data.StructLayout({"address": ADDRESS_BITS, "add": 1, "columns": SIZE_BITS, "ends_fold": 1, "ends_gemm": 1})


class Delivery(wiring.Component):
    """Accompanies the sums that leave the bottom of the array to the accumulator: `place` is that of column 0.

    Column c delivers a clock after column c - 1, so places move right, a register a column, `stride` words further.

    Outputs:
        enable, address, add: of each column in this clock.
        fold_done, gemm_done: the last column delivers the last sum.
    """

    def __init__(self, cols: int) -> None:
        self._cols = cols
        places = {"place": In(PLACE), "stride": In(SIZE_BITS), "arriving": In(cols)}
        columns = {"enable": Out(cols), "add": Out(cols), "address": Out(data.ArrayLayout(ADDRESS_BITS, cols))}
        super().__init__({**places, **columns, "fold_done": Out(1), "gemm_done": Out(1)})

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        place = self.place
        for col in range(self._cols):
            if col:
                moved = Signal(PLACE, name=f"place_{col}")
                m.d.sync += [moved.eq(place), moved.address.eq(place.address + self.stride)]
                place = moved
            m.d.comb += [
                self.enable[col].eq(self.arriving[col] & (place.columns > col)),
                self.add[col].eq(place.add),
                self.address[col].eq(place.address),
            ]
        m.d.comb += [
            self.fold_done.eq(self.arriving[-1] & place.ends_fold),
            self.gemm_done.eq(self.arriving[-1] & place.ends_gemm),
        ]
        return m


class Lanes(wiring.Component):
    """Reads a vector of the scratchpad: lane i at `base` + i `stride`, the first `count` lanes; others are 0.

    Args:
        lanes: of the vector.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        vector = {"base": In(ADDRESS_BITS), "stride": In(SIZE_BITS), "count": In(Shape(SIZE_BITS))}
        memory = {"address": Out(data.ArrayLayout(ADDRESS_BITS, lanes)), "data": In(data.ArrayLayout(OPERAND, lanes))}
        super().__init__({**vector, **memory, "values": Out(data.ArrayLayout(OPERAND, lanes)), "enable": Out(lanes)})

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        m.d.comb += self.enable.eq(Cat(self.count > lane for lane in range(self._lanes)))
        for lane in range(self._lanes):
            address = self.address[lane - 1] + self.stride if lane else self.base
            m.d.comb += self.address[lane].eq(address)
            m.d.comb += self.values[lane].eq(Mux(self.enable[lane], self.data[lane], 0))
        return m
