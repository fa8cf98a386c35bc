"""The cells of recurrent operators: what they make of the products of a step, at one unit of one row.

An RNN: h = f(a); a GRU: z, r = f(a), h' = g(a), h = (1 - z) h' + z h; an LSTM: i, o, f = f(a), c = f c + i g(a),
h = o h(c). `a` is what the input and the state before give a gate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.ops.recurrence import Recurrence
from tvm_ext.ops.scalars import functions
from tvm_ext.ops.scalars.expressions import like
from tvm_ext.ops.scalars.gates import activated

if TYPE_CHECKING:
    from .recurrent_kernel import RecurrentKernel


class Cell:
    """One phase of one step in one direction; statements go into the function that is being built.

    Args:
        kernel: whose buffers it reads and writes.
        direction: number of the direction.
        time: index of the step in the sequence.
        step: how many steps were before.
        phase: of the step.
    """

    def __init__(self, kernel: RecurrentKernel, direction: Any, time: Any, step: Any, phase: int) -> None:
        self.kernel, self.direction, self.time, self.phase = kernel, direction, time, phase
        self.says: Recurrence = kernel.match.says
        self._old, self._new = step % 2, (step + 1) % 2

    def source(self, row: Any, k: Any) -> Any:
        """What the products of the phase multiply: h of the step before."""
        return self.kernel.hidden[self._old, row, k]

    def at_row(self, row: Any, place: Any) -> Callable[[Any, Any], None]:
        """(block, lane) -> None: the statements of a unit.

        Args:
            row: of the kernel's buffers.
            place: of the batch.
        """
        self.row, self.place = row, place
        self.live = None
        if "lengths" in self.says.operands:
            self.live = self.kernel.read("lengths", place) > self.time
        return self._at

    def _at(self, block: Any, lane: Any) -> None:
        self.block, self.lane = block, lane
        self.unit = block * self.kernel.lanes + lane
        self.compute()

    def compute(self) -> None:
        """The statements of the unit at hand."""
        raise NotImplementedError

    # ------------------------------------------------------------ what cells are made of
    def product(self, gate: int) -> Any:
        """What the state before gives a gate."""
        return self.kernel.gates[self.row, self.block, gate, self.lane]

    def keep(self, gate: int, value: Any) -> None:
        """Put a value in the place of a product."""
        T.buffer_store(self.kernel.gates, value, [self.row, self.block, gate, self.lane])

    def input(self, gate: int) -> Any:
        """What the input gives a gate."""
        hidden = self.kernel.match.hidden
        column = self.direction * (self.says.gates * hidden) + gate * hidden + self.unit
        return self.kernel.read("input", self.time, self.place, column)

    def sum(self, gate: int) -> Any:
        """What input and state give a gate."""
        return self.input(gate) + self.product(gate)

    def activated(self, number: int, x: Any, clip: bool = True) -> Any:
        """An activation of the direction, by its number, after the clip."""
        if clip and self.says.limit is not None:
            x = functions.clip(x, like(-self.says.limit, x), like(self.says.limit, x))
        own = [direction[number] for direction in self.says.activations]
        if len(set(own)) == 1:
            return activated(x, *own[0])
        return tirx.Select(self.direction == 0, activated(x, *own[0]), activated(x, *own[1]))

    @property
    def before(self) -> Any:
        """h of the step before."""
        return self.kernel.hidden[self._old, self.row, self.unit]

    def selected(self, new: Any, old: Any) -> Any:
        """The new value of a row that is not at its end; else the old one."""
        return new if self.live is None else tirx.Select(self.live, new, old)

    def finish(self, value: Any) -> None:
        """h of this step, and an element of the result."""
        kernel = self.kernel
        T.buffer_store(kernel.hidden, self.selected(value, self.before), [self._new, self.row, self.unit])
        if self.says.sequence:
            shown = self.selected(kernel.hidden[self._new, self.row, self.unit], kernel.number(0))
            kernel.write([self.time + self.says.finals, self.direction, self.place, self.unit], shown)


class Rnn(Cell):
    """h = f(a)."""

    def compute(self) -> None:
        """The statements of the unit at hand."""
        self.finish(self.activated(0, self.sum(0)))


class Gru(Cell):
    """Gates z, r and the candidate."""

    def source(self, row: Any, k: Any) -> Any:
        """h of the step before; in the second phase r h."""
        return self.kernel.factor[row, k] if self.phase else super().source(row, k)

    def compute(self) -> None:
        """The statements of the unit at hand."""
        kernel = self.kernel
        if not self.phase:
            self.keep(0, self.activated(0, self.sum(0)))
            reset = self.activated(0, self.sum(1))
            if not self.says.reset_behind:
                T.buffer_store(kernel.factor, reset * self.before, [self.row, self.unit])
                return
            self.keep(1, reset)
            behind = self.product(2)
            if "bias" in self.says.operands:
                behind = behind + kernel.read("bias", self.direction, self.unit)
            self.keep(2, self.activated(1, self.input(2) + self.product(1) * behind))
        else:
            self.keep(2, self.activated(1, self.sum(2)))
        update = self.product(0)
        self.finish((like(1, update) - update) * self.product(2) + update * self.before)


class Lstm(Cell):
    """Gates i, o, f and the cell's."""

    def source(self, row: Any, k: Any) -> Any:
        """h of the step before, or as it is quantized."""
        return self.kernel.factor[row, k] if self.says.quantized else super().source(row, k)

    def compute(self) -> None:
        """The statements of the unit at hand."""
        kernel, place = self.kernel, [self.row, self.unit]
        old = kernel.cell[place]
        self.keep(0, self.activated(0, self._peep(0, old)))
        if self.says.coupled:
            self.keep(2, kernel.number(1) - self.product(0))
        else:
            self.keep(2, self.activated(0, self._peep(2, old)))
        self.keep(3, self.product(2) * old + self.product(0) * self.activated(1, self.sum(3)))
        self.keep(1, self.activated(0, self._peep(1, self.product(3))))
        T.buffer_store(kernel.cell, self.selected(self.product(3), old), place)
        self.finish(self.product(1) * self.activated(2, self.product(3), clip=False))  # as onnxruntime reads ONNX

    def _peep(self, gate: int, cell: Any) -> Any:
        if "peepholes" not in self.says.operands:
            return self.sum(gate)
        weight = self.kernel.read("peepholes", self.direction, gate * self.kernel.match.hidden + self.unit)
        return self.sum(gate) + weight * cell


CELLS: dict[str, type[Cell]] = {"GRU": Gru, "LSTM": Lstm, "RNN": Rnn}


def quantize(hidden: Any, which: Any, rows: Any, units: int, out: Any) -> None:
    """out = hidden[which] as DynamicQuantizeLinear stores it, decoded: statements of the function that is being built.

    Args:
        hidden: (2, rows, units).
        which: of the two.
        rows, units: that count.
        out: (rows, units).
    """
    parts = T.alloc_buffer((4,), "float32")
    low, high, scale, start = (parts[i] for i in range(4))
    for i in range(2):
        T.buffer_store(parts, _f(0), [i])
    with T.serial(rows) as row, T.serial(units) as unit:
        T.buffer_store(parts, tirx.min(low, hidden[which, row, unit]), [0])
        T.buffer_store(parts, tirx.max(high, hidden[which, row, unit]), [1])
    T.buffer_store(parts, tirx.Select(high == low, _f(1), (high - low) / _f(255)), [2])
    T.buffer_store(parts, tirx.max(_f(0), tirx.min(_f(255), _f(0) - low / scale)), [3])
    with T.serial(rows) as row, T.serial(units) as unit:
        zero = tirx.round(start).astype("uint8")
        stored = functions.quantize(hidden[which, row, unit], scale, zero, "uint8")
        T.buffer_store(out, functions.dequantize(stored, scale, zero), [row, unit])


def _f(value: float) -> Any:
    return tirx.const(value, "float32")
