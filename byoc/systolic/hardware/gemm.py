"""The GEMM unit: sequencer, skew registers, PEs; :mod:`..simulation` has the same in `StationaryRun` and `OutputRun`.

It holds a GEMM while `active`, reads vectors of the scratchpad and delivers sums to the accumulator memory::

    scratchpad => top lanes => skew =>  PEs  => sums, each with address, enable and add => accumulator memory
                  left lanes => skew =>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..code.isa import Gemm
from ..config import Dataflow
from .edges import ADDRESS_BITS, OPERAND, SUM, Delivery, Folds, Lanes, Port, Skew
from .output_array import RIGHT, OutputArray, OutputElement
from .records import GEMM, choice
from .stationary_array import STREAM, WEIGHT, StationaryArray, StationaryElement


class GemmUnit(wiring.Component):
    """What the units of both arrays share: the edges, and where results go.

    Args:
        rows, cols: processing elements.
        overlapped: whether a fold begins behind the one before, or after its last result.

    Inputs:
        active, gemm: a GEMM, from its first clock to the one in which `done` is 1.
        left_data, top_data: bytes of the scratchpad at `left_address` and `top_address`, in the same clock.
    """

    def __init__(self, rows: int, cols: int, overlapped: bool, array: Any, left: Any, top: Any) -> None:
        self._rows, self._cols, self._overlapped = rows, cols, overlapped
        ports = {"active": In(1), "gemm": In(GEMM), "done": Out(1)}
        for name, lanes in (("left", rows), ("top", cols)):
            ports[f"{name}_address"] = Out(data.ArrayLayout(ADDRESS_BITS, lanes))
            ports[f"{name}_enable"] = Out(lanes)
            ports[f"{name}_data"] = In(data.ArrayLayout(OPERAND, lanes))
        sums = {"sum_enable": Out(cols), "sum_add": Out(cols), "sum": Out(data.ArrayLayout(SUM, cols))}
        super().__init__({**ports, **sums, "sum_address": Out(data.ArrayLayout(ADDRESS_BITS, cols))})
        self.array, self.delivery = array, Delivery(cols)
        self.left_skew, self.top_skew = Skew(rows, left), Skew(cols, top)
        self.left_lanes, self.top_lanes = Lanes(rows), Lanes(cols)

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        array, delivery = self.array, self.delivery
        for name in ("left", "top"):
            lanes, skew = getattr(self, f"{name}_lanes"), getattr(self, f"{name}_skew")
            m.submodules[f"{name}_lanes"], m.submodules[f"{name}_skew"] = lanes, skew
            m.d.comb += [
                getattr(self, f"{name}_address").eq(lanes.address),
                getattr(self, f"{name}_enable").eq(lanes.enable),
                lanes.data.eq(getattr(self, f"{name}_data")),
                getattr(array, name).eq(skew.skewed),
            ]
        m.submodules.array, m.submodules.delivery = array, delivery
        m.d.comb += [
            delivery.arriving.eq(array.arriving),
            self.sum_enable.eq(delivery.enable),
            self.sum_add.eq(delivery.add),
            self.sum_address.eq(delivery.address),
            self.sum.eq(array.sums),
            self.done.eq(delivery.gemm_done),
        ]
        self._sequence(m)
        return m

    def _sequence(self, m: Module) -> None:
        """The ports of both edges and the places of sums."""
        raise NotImplementedError

    def _once_a_fold(self, m: Module, port: Port, folds: Folds, may_begin: Any) -> None:
        """Begins each fold of the GEMM on a port when it may, and goes on to the next corner at its end."""
        exhausted = Signal(name="exhausted")
        m.d.comb += [port.begin.eq(self.active & port.is_free & ~exhausted & may_begin), folds.next.eq(port.is_last)]
        with m.If(self.done):
            m.d.sync += exhausted.eq(0)
        with m.Elif(port.is_last & folds.is_last):
            m.d.sync += exhausted.eq(1)

    def _is_under_way(self, m: Module, begin: Any) -> Signal:
        """Whether a fold has begun whose last result is not in the accumulator memory."""
        under_way = Signal()
        with m.If(begin):
            m.d.sync += under_way.eq(1)
        with m.Elif(self.delivery.fold_done):
            m.d.sync += under_way.eq(0)
        return under_way


@dataclass(frozen=True)
class _Matrix:
    """Where an operand or the result lies: element [i, j] at base + i step + j stride."""

    base: Any
    step: Any
    stride: Any

    def at(self, i: Any, j: Any) -> Any:
        return self.base + i * self.step + j * self.stride


class StationaryUnit(GemmUnit):
    """result[T, S_c] += stream[T, S_r] stationary[S_r, S_c]; for "is" all three are transposed, by their strides."""

    def __init__(self, rows: int, cols: int, overlapped: bool) -> None:
        super().__init__(rows, cols, overlapped, StationaryArray(rows, cols), STREAM, WEIGHT)

    def _sequence(self, m: Module) -> None:
        g = self.gemm
        self._inputs_stay = g.dataflow == choice(Gemm, "dataflow", Dataflow.IS.value)
        self._width = Mux(self._inputs_stay, g.m, g.n)
        loaded, streams = Signal(), Port()  # loaded: a fold's values fall or lie in the PEs, and do not work yet
        m.submodules.stream_port = streams
        is_at_rest = self._weights(m, streams, loaded)
        m.d.comb += streams.begin.eq(streams.is_free & is_at_rest & loaded)
        self._stream(m, streams)
        self._results(m)

    def _folds(self, m: Module, name: str) -> Folds:
        """The corners of the folds: those of a block of columns one after the other."""
        folds = m.submodules[name] = Folds(self._rows, self._cols)
        m.d.comb += [folds.inner_size.eq(self.gemm.k), folds.outer_size.eq(self._width)]
        return folds

    @property
    def _steps(self) -> Any:
        return Mux(self._inputs_stay, self.gemm.n, self.gemm.m)

    def _weights(self, m: Module, streams: Port, loaded: Signal) -> Any:
        """Feeds stationary values, the last row of a fold first; whether none are fed."""
        g, rows, stay = self.gemm, self._rows, self._inputs_stay
        folds, port, lanes, skew = self._folds(m, "weights"), Port(), self.top_lanes, self.top_skew
        m.submodules.weight_port = port
        m.d.comb += port.length.eq(rows)
        if self._overlapped:
            may_load = ~loaded | streams.begin
        else:
            may_load = ~self._is_under_way(m, port.begin)
        self._once_a_fold(m, port, folds, may_load)
        with m.If(port.begin | streams.begin):
            m.d.sync += loaded.eq(port.begin)
        stationary = _Matrix(Mux(stay, g.a, g.b), Mux(stay, 1, g.n), Mux(stay, g.k, 1))
        row = folds.inner + (rows - 1) - port.position
        m.d.comb += [
            lanes.base.eq(stationary.at(row, folds.outer)),
            lanes.stride.eq(stationary.stride),
            lanes.count.eq(Mux(port.feeding & (row < g.k), self._width - folds.outer, 0)),
        ]
        for c in range(self._cols):
            m.d.comb += [skew.vector[c].value.eq(lanes.values[c]), skew.vector[c].latch.eq(port.is_last)]
        return port.is_free

    def _stream(self, m: Module, port: Port) -> None:
        """Feeds the steps of each fold, with valid and first bits."""
        g, stay, folds, lanes = self.gemm, self._inputs_stay, self._folds(m, "stream"), self.left_lanes
        streamed = _Matrix(Mux(stay, g.b, g.a), Mux(stay, 1, g.k), Mux(stay, g.n, 1))
        m.d.comb += [
            port.length.eq(self._steps),
            folds.next.eq(port.is_last),
            lanes.base.eq(streamed.at(port.position, folds.inner)),
            lanes.stride.eq(streamed.stride),
            lanes.count.eq(Mux(port.feeding, g.k - folds.inner, 0)),
        ]
        for r in range(self._rows):
            vector = self.left_skew.vector[r]
            m.d.comb += [
                vector.value.eq(lanes.values[r]),
                vector.valid.eq(port.feeding),
                vector.first.eq(port.feeding & (port.position == 0)),
            ]

    def _results(self, m: Module) -> None:
        """Where the sums of column 0 go: the folds of one block of columns are added up."""
        g, stay, folds, port = self.gemm, self._inputs_stay, self._folds(m, "delivered"), Port()
        m.submodules.arrivals = port
        result, place = _Matrix(g.c, Mux(stay, 1, g.n), Mux(stay, g.n, 1)), self.delivery.place
        m.d.comb += [
            port.length.eq(self._steps),
            port.begin.eq(self.array.arriving[0]),
            folds.next.eq(port.is_last),
            self.delivery.stride.eq(result.stride),
            place.address.eq(result.at(port.position, folds.outer)),
            place.add.eq(g.accumulate | (folds.inner != 0)),
            place.columns.eq(self._width - folds.outer),
            place.ends_fold.eq(port.is_last),
            place.ends_gemm.eq(port.is_last & folds.is_last),
        ]


class OutputUnit(GemmUnit):
    """result[S_r, S_c] += a[S_r, T] b[T, S_c]."""

    def __init__(self, rows: int, cols: int, overlapped: bool) -> None:
        super().__init__(rows, cols, overlapped, OutputArray(rows, cols), RIGHT, OPERAND)

    def _sequence(self, m: Module) -> None:
        port, folds = Port(), self._folds(m, "folds")
        m.submodules.port = port
        if self._overlapped:
            may_begin = self._until_drained(m, port.begin) == 0
        else:
            may_begin = ~self._is_under_way(m, port.begin)
        self._once_a_fold(m, port, folds, may_begin)
        self._operands(m, port, folds)
        self._results(m)

    def _folds(self, m: Module, name: str) -> Folds:
        """The corners of the folds, row by row."""
        folds = m.submodules[name] = Folds(self._cols, self._rows)
        m.d.comb += [folds.inner_size.eq(self.gemm.n), folds.outer_size.eq(self.gemm.m)]
        return folds

    def _operands(self, m: Module, port: Port, folds: Folds) -> None:
        """Feeds columns of a, with first and last bits, and rows of b."""
        g, left, top = self.gemm, self.left_lanes, self.top_lanes
        m.d.comb += [
            port.length.eq(g.k),
            left.base.eq(g.a + folds.outer * g.k + port.position),
            left.stride.eq(g.k),
            left.count.eq(Mux(port.feeding, g.m - folds.outer, 0)),
            top.base.eq(g.b + port.position * g.n + folds.inner),
            top.stride.eq(1),
            top.count.eq(Mux(port.feeding, g.n - folds.inner, 0)),
            self.top_skew.vector.eq(top.values),
        ]
        for r in range(self._rows):
            vector = self.left_skew.vector[r]
            m.d.comb += [
                vector.value.eq(left.values[r]),
                vector.first.eq(port.feeding & (port.position == 0)),
                vector.last.eq(port.is_last),
            ]

    def _results(self, m: Module) -> None:
        """Where the sums of column 0 go, the last row of a fold first."""
        g, port, folds, place = self.gemm, Port(), self._folds(m, "delivered"), self.delivery.place
        m.submodules.arrivals = port
        row = folds.outer + (self._rows - 1) - port.position
        m.d.comb += [
            port.length.eq(self._rows),
            port.begin.eq(self.array.arriving[0]),
            folds.next.eq(port.is_last),
            self.delivery.stride.eq(1),
            place.address.eq(g.c + row * g.n + folds.inner),
            place.add.eq(g.accumulate),
            place.columns.eq(Mux(row < g.m, g.n - folds.inner, 0)),
            place.ends_fold.eq(port.is_last),
            place.ends_gemm.eq(port.is_last & folds.is_last),
        ]

    def _until_drained(self, m: Module, begin: Any) -> Signal:
        """Clocks until a fold may begin: a column drains R clocks, so folds that begin R clocks apart find it empty."""
        left = Signal(range(self._rows + 1), name="until_drained")
        with m.If(begin):
            m.d.sync += left.eq(self._rows - 1)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        return left


def unit_of(dataflow: str, rows: int, cols: int, overlapped: bool) -> GemmUnit:
    """The unit that computes in this dataflow."""
    kind = OutputUnit if dataflow == Dataflow.OS else StationaryUnit
    return kind(rows, cols, overlapped)


def element_of(dataflow: str) -> OutputElement | StationaryElement:
    """A PE of the array that computes in this dataflow."""
    return OutputElement() if dataflow == Dataflow.OS else StationaryElement()
