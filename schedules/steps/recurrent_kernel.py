"""The loops of a recurrence: all steps of an RNN, GRU or LSTM in one kernel.

    for direction:                                  threads share directions and rows of the batch ("rows") ...
        h = h0; c = c0
        for step:
            for block of units:                     ... or, in each step, blocks of units ("units")
                gates[rows, block] = h r            register tiles of rows x blocks x gates, over the inputs
            h[rows], c[rows] = cell(x[step] + gates)
            y[step] = h

A tile is of vectors of units: all gates of a unit are computed by one thread, so nothing but h goes from one to
another. What a product of a step reads is h of the step before, in the other of two buffers. A GRU whose reset gate
stands before the product has two phases in a step: z and r, then its candidate of r h.

Rows behind their length keep h and c, and give 0; backwards they begin when their last step comes. Where steps or rows
have run-time extents, the loops over them end there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.layout import PackedGates
from tvm_ext.core.recipe import Config, Layouts, Match, Param
from tvm_ext.ops.recurrence import Recurrence

from .arguments import building
from .nests import nested, own_buffer, tiles, vectors_of
from .recurrent_cells import CELLS, Cell, quantize


@dataclass(frozen=True)
class RecurrentMatch(Match):
    """A recurrence.

    Attributes:
        says: its attributes.
        operands: what each operand is -> the parameter, or the number that it is.
        steps, batch, directions, hidden: S, N, D, H, at the bounds.
    """

    says: Recurrence
    operands: Mapping[str, Param | float]
    steps: int
    batch: int
    directions: int
    hidden: int

    @property
    def dtype(self) -> str:
        """What it computes in."""
        return self.group.computed

    def weight(self, lanes: int) -> PackedGates:
        """How its recurrent weight is packed."""
        first = 2 if self.says.kind == "GRU" and not self.says.reset_behind else self.says.gates
        return PackedGates((0, 1, 2), None, self.says.gates, lanes, first)

    @property
    def packed(self) -> Param | None:
        """The weight, if it is packed before the kernel runs; None if the kernel packs it."""
        weight = self.operands["recurrent"]
        return weight if isinstance(weight, Param) and weight.constant else None


@dataclass(frozen=True)
class Tile:
    """Sizes of the loops.

    Attributes:
        lanes, blocks, rows: of a register tile: units of a vector, vectors of each gate, rows of the batch.
        threads: that share the work.
        by_units: whether they share units in each step, and not directions and rows.
    """

    lanes: int
    blocks: int
    rows: int
    threads: int
    by_units: bool

    @staticmethod
    def of(config: Config) -> Tile:
        lanes, blocks, rows, threads = (int(config[knob]) for knob in ("lanes", "blocks", "rows", "threads"))
        return Tile(lanes, blocks, rows, threads, config["share"] == "units")

    def parts(self, match: RecurrentMatch) -> int:
        """Parts of the rows of each direction, where threads share those."""
        return 1 if self.by_units or match.says.quantized else min(-(-self.threads // match.directions), match.batch)


class RecurrentKernel:
    """Builds the kernel of one match."""

    def __init__(self, match: RecurrentMatch, config: Config, layouts: Layouts) -> None:
        self.match, self._layouts, self._tile = match, layouts, Tile.of(config)
        self._weight = match.weight(self._tile.lanes)
        self._blocks = -(-match.hidden // self._tile.lanes)
        extent, x = match.group.extent, match.operands["input"]
        assert isinstance(x, Param) or match.steps == match.batch == 1
        self._steps, self._batch = (extent(x, axis) if isinstance(x, Param) else 1 for axis in (0, 1))

    def function(self) -> tirx.PrimFunc:
        """Parameters of the group in order, then the result; loops in place."""
        with building(self.match.group, self._layouts) as (builder, self._args, self._out), T.sblock("root"):
            self._pack()
            if self._tile.by_units:
                self._allocate(self.match.batch)
                with T.serial(self.match.directions) as direction:
                    self._sequence(direction, 0, self._batch)
            else:
                self._share_rows()
        return builder.get()

    @property
    def lanes(self) -> int:
        """Units of a vector."""
        return self._tile.lanes

    def read(self, role: str, *index: Any) -> Any:
        """An operand at a logical index."""
        operand = self.match.operands[role]
        if not isinstance(operand, Param):
            return tirx.const(operand, "int32" if role == "lengths" else self.match.dtype)
        return self._args.reader(operand)(*self._args.layout(operand).index(index))

    def _pack(self) -> None:
        """What reads the weight at a physical index; a copy, if it is computed, or stored in another type."""
        match, weight, param = self.match, self._weight, self.match.packed
        if param is not None and not param.decode:
            self._weights = self._args.tensor(param)
            return
        shape = (match.directions, match.says.gates * match.hidden, match.hidden)
        packed = self._buffer("packed", weight.physical_shape(shape))
        self._weights = lambda *index: packed[index]
        for first, count in weight.phases:
            loops = [T.serial(n) for n in (match.directions, self._blocks, match.hidden, count)]
            with nested(*loops, T.vectorized(weight.lanes)) as (d, block, k, gate, lane):
                unit = tirx.min(block * weight.lanes + lane, match.hidden - 1)
                place = [d, (first + gate) * match.hidden + unit, k]
                at = [d, block, match.hidden * first + k * count + gate, lane]
                stored = param and self._args.decode(param, self._args.tensor(param)(*at), place)
                T.buffer_store(packed, self.read("recurrent", *place) if stored is None else stored, at)

    def _share_rows(self) -> None:
        """Shares directions, and parts of the rows of each, among threads."""
        parts = self._tile.parts(self.match)
        units = self.match.directions * parts
        threads = min(self._tile.threads, units)
        with T.parallel(threads) if threads > 1 else T.serial(1) as thread:
            self._allocate(-(-self.match.batch // parts))
            with T.serial(thread * units // threads, (thread + 1) * units // threads) as unit:
                first = unit % parts * self._batch // parts
                last = (unit % parts + 1) * self._batch // parts
                whole = parts == 1
                self._sequence(unit // parts, 0 if whole else first, self._batch if whole else last - first)

    def _allocate(self, rows: int) -> None:
        """What a thread keeps, or all together."""
        units = self._blocks * self._tile.lanes
        self.hidden = self._buffer("hidden", (2, rows, units))
        self.cell: Any = self._buffer("cell", (rows, units)) if self.match.says.kind == "LSTM" else None
        two = len(self._weight.phases) > 1 or self.match.says.quantized
        self.factor: Any = self._buffer("factor", (rows, units)) if two else None
        self.gates = self._buffer("gates", (rows, self._blocks, self.match.says.gates, self._tile.lanes))

    def _sequence(self, direction: Any, first: Any, count: Any) -> None:
        """All steps of some rows in one direction."""
        self._begin(direction, first, count)
        with T.serial(self._steps) as step:
            time = self._time(direction, step)
            if self.match.says.quantized:
                quantize(self.hidden, step % 2, count, self.match.hidden, self.factor)
            for phase in range(len(self._weight.phases)):
                cell = CELLS[self.match.says.kind](self, direction, time, step, phase)
                self._phase(phase, cell, first, count)
        if self.match.says.finals:
            self._end(direction, first, count)

    def _time(self, direction: Any, step: Any) -> Any:
        """The index of a step in the sequence."""
        backwards, last = self.match.says.backwards, self._steps - 1 - step
        if len(set(backwards)) == 1:
            return last if backwards[0] else step
        return tirx.Select(direction == backwards.index(True), last, step)

    def _begin(self, direction: Any, first: Any, count: Any) -> None:
        """h = h0, c = c0; zeros without them."""
        states = [("hidden", lambda row, unit: (self.hidden, [0, row, unit]))]
        if self.cell is not None:
            states.append(("cell", lambda row, unit: (self.cell, [row, unit])))
        with T.serial(count) as row:
            for role, place in states:
                for unit in self._units():
                    known = role in self.match.operands
                    value = self.read(role, direction, first + row, unit) if known else self.number(0)
                    buffer, index = place(row, unit)
                    T.buffer_store(buffer, value, index)

    def _end(self, direction: Any, first: Any, count: Any) -> None:
        """The states after the last step."""
        with T.serial(count) as row:
            for unit in self._units():
                self.write([0, direction, first + row, unit], self.hidden[self._steps % 2, row, unit])
                if self.match.says.finals > 1:
                    self.write([1, direction, first + row, unit], self.cell[row, unit])

    def write(self, index: Sequence[Any], value: Any) -> None:
        """An element of the result, after the group's epilogue."""
        T.buffer_store(self._out, self._args.epilogue(index, value), self._layouts.output.index(index))

    def number(self, value: float) -> Any:
        """A constant of the type that is computed in."""
        return tirx.const(value, self.match.dtype)

    # ------------------------------------------------------------ one phase of a step
    def _phase(self, phase: int, cell: Cell, first: Any, count: Any) -> None:
        """Products of all units, then what the cell makes of them; threads share the units."""
        threads = min(self._tile.threads, self._blocks)
        if not self._tile.by_units or threads == 1:
            self._products(phase, cell, 0, self._blocks, count)
            self._elements(cell, 0, self._blocks, first, count)
            return
        with T.parallel(threads) as thread:
            low, high = thread * self._blocks // threads, (thread + 1) * self._blocks // threads
            self._products(phase, cell, low, high, count)
            self._elements(cell, low, high, first, count)

    def _products(self, phase: int, cell: Cell, low: Any, high: Any, count: Any) -> None:
        """gates[rows, low:high] = h r, in register tiles."""
        tile, inputs = self._tile, self.match.hidden
        first, gates = self._weight.phases[phase]
        for block, blocks in tiles(low, high, tile.blocks):
            for row, rows in tiles(0, count, tile.rows):
                acc = self._buffer("acc", (rows, blocks, gates, tile.lanes), "local")
                vectors = functools.partial(self._vectors, rows, blocks, gates)
                with vectors() as (n, b, g, lane):
                    T.buffer_store(acc, self.number(0), [n, b, g, lane])
                with T.serial(inputs) as k, vectors() as (n, b, g, lane):
                    weight = self._weights(cell.direction, block + b, inputs * first + k * gates + g, lane)
                    T.buffer_store(acc, acc[n, b, g, lane] + cell.source(row + n, k) * weight, [n, b, g, lane])
                with vectors() as (n, b, g, lane):
                    T.buffer_store(self.gates, acc[n, b, g, lane], [row + n, block + b, first + g, lane])

    def _vectors(self, *extents: int) -> Any:
        """Loops over the vectors of a register tile, and over their lanes."""
        return nested(*map(T.unroll, extents), T.vectorized(self._tile.lanes))

    def _elements(self, cell: Cell, low: Any, high: Any, first: Any, count: Any) -> None:
        """What the cell makes of the products of some blocks of units, a vector at a time."""
        lanes, (whole, left) = self._tile.lanes, divmod(self.match.hidden, self._tile.lanes)
        with T.serial(count) as row:
            at = cell.at_row(row, first + row)
            stop = high if not left else tirx.min(high, whole) if not isinstance(high, int) else min(high, whole)
            if not isinstance(stop, int) or stop > 0:
                with T.serial(low, stop) as block, T.vectorized(lanes) as lane:
                    at(block, lane)
            if left and isinstance(high, int):
                with T.vectorized(left) as lane:
                    at(whole, lane)
            elif left:
                with T.If(high > whole), T.Then(), T.vectorized(left) as lane:
                    at(whole, lane)

    def _units(self) -> Iterator[Any]:
        """Units of a row."""
        return vectors_of(self.match.hidden, self._tile.lanes)

    def _buffer(self, name: str, shape: tuple[int, ...], scope: str = "global") -> Any:
        return own_buffer(name, shape, self.match.dtype, scope)
