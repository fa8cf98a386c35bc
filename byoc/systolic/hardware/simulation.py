"""Runs the hardware in Amaranth's simulator: a GEMM on the array, or a program on the whole chip.

A run begins with registers and memories of zeros, and keeps what was elaborated; one run at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from amaranth.sim import Simulator

from ..code.isa import FORMS, QUEUES, Finish, Gemm, LoadConstant, Sync, encode
from ..code.program import Program
from ..simulation.functional import TileMover
from ..simulation.timing import simulate
from .core import Core
from .gemm import unit_of
from .queues import ENTRY, FINISH_EPOCH, INT8, UINT8, WORDS
from .records import GEMM

_ELEMENTS = {"int8": INT8, "uint8": UINT8, "int32": WORDS, "float32": WORDS}
#: Clocks in which the host fills the queues before it lets them go.
_FILL = 4


class _Bench:
    """A component in the simulator; each :meth:`go` runs one testbench on it from reset."""

    def __init__(self, component: Any) -> None:
        self._simulator, self._bench = Simulator(component), None  # type: Any, Any
        self._simulator.add_clock(1e-6)

    async def _run(self, context: Any) -> None:
        await self._bench(context)

    def go(self, bench: Callable[[Any], Any]) -> None:
        if self._bench is None:
            self._simulator.add_testbench(self._run)
        else:
            self._simulator.reset()
        self._bench = bench
        self._simulator.run()


class GemmSimulator:
    """The GEMM unit of one dataflow, with arrays of numpy for its memories.

    Args:
        dataflow: "ws", "os" or "is".
        rows, cols: processing elements.
        overlapped: see :func:`..simulation.stepper.step_gemm`.
    """

    def __init__(self, dataflow: str, rows: int, cols: int, overlapped: bool = False) -> None:
        self.unit = unit_of(dataflow, rows, cols, overlapped)
        self._dataflow, self._rows, self._cols, self._bench = dataflow, rows, cols, _Bench(self.unit)

    def run(
        self, a: np.ndarray, b: np.ndarray, acc: np.ndarray | None = None, watch: Callable[..., None] | None = None
    ) -> tuple[np.ndarray, int]:
        """acc[m, n] + a[m, k] b[k, n] of int8, int32, and the clocks until it is in the accumulator memory.

        Args:
            watch: is given, after each clock, a function that reads a signal, and the accumulator memory [m, n].
        """
        (m, k), n = a.shape, b.shape[1]
        scratchpad = np.frombuffer(a.tobytes() + b.tobytes(), np.uint8)
        memory = np.zeros(m * n, np.int32) if acc is None else acc.reshape(-1).copy()
        gemm = Gemm(self._dataflow, int(acc is not None), 0, a.size, 0, m, k, n)
        limit, clocks, unit = 4 * (m + self._rows) * (k + self._rows) * (n + self._cols), 0, self.unit

        async def bench(context: Any) -> None:
            nonlocal clocks
            context.set(unit.gemm, GEMM.from_bits(int.from_bytes(encode([gemm]), "little")))
            context.set(unit.active, 1)
            done = False
            while not done:
                self._serve(context, scratchpad, memory)
                done = context.get(unit.done)
                await context.tick()
                clocks += 1
                assert clocks < limit, f"{gemm} has not finished after {limit} clocks"
                if watch is not None:
                    watch(context.get, memory.reshape(m, n))

        self._bench.go(bench)
        return memory.reshape(m, n), clocks

    def _serve(self, context: Any, scratchpad: np.ndarray, memory: np.ndarray) -> None:
        """Answers the reads of this clock, and writes its sums."""
        unit = self.unit
        for name, lanes in (("left", self._rows), ("top", self._cols)):
            if enable := context.get(getattr(unit, f"{name}_enable")):
                address = _unpacked(context, getattr(unit, f"{name}_address"), lanes, "<u4")
                values = scratchpad[np.where(_bits(enable, lanes), address, 0)]
                context.set(getattr(unit, f"{name}_data").as_value(), int.from_bytes(values.tobytes(), "little"))
        if enable := context.get(unit.sum_enable):
            address, sums = (
                _unpacked(context, values, self._cols, dtype)[_bits(enable, self._cols)]
                for values, dtype in ((unit.sum_address, "<u4"), (unit.sum, "<i4"))
            )
            add = _bits(context.get(unit.sum_add), self._cols)[_bits(enable, self._cols)]
            memory[address] = np.where(add, memory[address], 0) + sums


def _unpacked(context: Any, values: Any, count: int, dtype: str) -> np.ndarray:
    data = context.get(values.as_value()).to_bytes(count * np.dtype(dtype).itemsize, "little")
    return np.frombuffer(data, dtype)


def _bits(value: int, count: int) -> np.ndarray:
    return np.array([value >> bit & 1 for bit in range(count)], bool)


class CoreSimulator:
    """The whole chip that a program needs, and DRAM: the host and what stands at the DRAM port are Python."""

    def __init__(self, program: Program) -> None:
        self._program, self._limit = program, 2 * simulate(program).cycles + 1000
        self.core = core_for(program)
        self._bench = _Bench(self.core)

    def run_into(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> int:
        """Writes the outputs of a run, in place, as :func:`..simulation.functional.run_into` does.

        Returns:
            Cycles from the first instruction to FINISH.
        """
        host, core, clocks = _Host(self._program, inputs, outputs), self.core, 0

        async def bench(context: Any) -> None:
            nonlocal clocks
            for _ in range(_FILL):
                host.fill(context, core)
                await context.tick()
            context.set(core.go, 1)
            while not context.get(core.finished):
                host.fill(context, core)
                host.move(context, core)
                await context.tick()
                clocks += 1
                assert clocks < self._limit, f"the program has not finished after {self._limit} clocks"

        self._bench.go(bench)
        return clocks


def core_for(program: Program) -> Core:
    """A chip with what a program needs: the arrays of its GEMMs, and a way for tensors that stay in the scratchpad."""
    dataflows = sorted({i.dataflow for i in program.instructions if isinstance(i, Gemm)})
    return Core(program.accelerator, dataflows, any(tensor.address is not None for tensor in program.tensors))


class _Host:
    """Fills the queues of one run and answers the DRAM port."""

    def __init__(self, program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self._program, self._dram = program, TileMover(program, inputs, outputs)
        self._entries = {queue: entries_of(program, queue) for queue in QUEUES}
        self._loaded, self._stored = b"", bytearray()

    def fill(self, context: Any, core: Core) -> None:
        """Offers each queue that has room its next instruction."""
        for queue, entries in self._entries.items():
            port = getattr(core, f"{queue}_entries")
            entry = next(entries, None) if context.get(port.ready) else None
            context.set(port.valid, int(entry is not None))
            if entry is not None:
                context.set(port.payload.as_value(), entry)

    def move(self, context: Any, core: Core) -> None:
        """The bytes of this clock."""
        width = self._program.accelerator.dma_bytes_per_cycle
        load, store = context.get(core.load_valid), context.get(core.store_valid)
        if load:
            offset = context.get(core.load_offset)
            if offset == 0:
                self._loaded = self._dram.load(self._program.instructions[context.get(core.load_index)])
            context.set(core.load_data, int.from_bytes(self._loaded[offset : offset + width], "little"))
        if store:
            tile = self._program.instructions[context.get(core.store_index)]
            nbytes = tile.rows * tile.cols * np.dtype(self._program.tensors[tile.tensor].dtype).itemsize
            self._stored += context.get(core.store_data).to_bytes(width, "little")
            if len(self._stored) >= nbytes:
                self._dram.store(tile, bytes(self._stored[:nbytes]))
                self._stored.clear()


def entries_of(program: Program, queue: str) -> Iterator[int]:
    """The bits of the entries of a queue, in order; see :data:`.queues.ENTRY`."""
    epoch = 0
    for index, instruction in enumerate(program.instructions):
        if isinstance(instruction, Sync | Finish):
            epoch += 1
        elif instruction.queue == queue:
            record = int.from_bytes(encode([instruction]), "little")
            elements = _ELEMENTS[_dtype_of(program, instruction)]
            tensor = getattr(instruction, "tensor", None)
            address = None if tensor is None else program.tensors[tensor].address
            yield _entry(record, index, epoch, elements, address)
    yield _entry(FORMS[Finish].code, len(program.instructions) - 1, FINISH_EPOCH, WORDS)


def _entry(record: int, index: int, epoch: int, elements: int, address: int | None = None) -> int:
    values = {"record": record, "index": index, "epoch": epoch, "elements": elements}
    values |= {"is_local": int(address is not None), "base": address or 0}
    return ENTRY.const(values).as_bits()


def _dtype_of(program: Program, instruction: Any) -> str:
    """Of what a load or store moves; "int32" of others."""
    if isinstance(instruction, LoadConstant):
        return str(program.constants[instruction.constant].dtype)
    tensor = getattr(instruction, "tensor", None)
    return "int32" if tensor is None else program.tensors[tensor].dtype
