"""Runs the hardware in Amaranth's simulator: a program on the whole chip.

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
from .queues import ENTRY, FINISH_EPOCH, INT8, UINT8, WORDS

_ELEMENTS = {"int8": INT8, "uint8": UINT8, "int32": WORDS, "float32": WORDS}
#: Clocks in which the host fills the queues before it lets them go.
_FILL = 4


class Bench:
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


class CoreSimulator:
    """The whole chip that a program needs, and DRAM: the host and what stands at the DRAM port are Python."""

    def __init__(self, program: Program) -> None:
        self._program, self._limit = program, 2 * simulate(program).cycles + 1000
        self.core = core_for(program)
        self._bench = Bench(self.core)

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
