"""The accelerator: queues, DMA channel, scratchpad, GEMM units, accumulator memory, vector unit; DRAM is outside.

::

    entries => load queue    => transfer  => DRAM asked for bytes of a tile  => scratchpad
               compute queue => GEMM unit => accumulator memory, or vector unit, in place there
               store queue   => transfer  => accumulator memory => bytes of a tile to DRAM

The clocks are those of :mod:`..simulation.timing`. Which bytes of a tensor a tile has (strides, windows, the 128 that
uint8 loses) is the business of what stands at the DRAM port.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..code.isa import QUEUES, Gemm, Reduce, Vector
from ..config import Accelerator, Dataflow
from .gemm import unit_of
from .local import LocalLoad, LocalStore, stored_byte
from .memories import PortedMemory
from .queues import ENTRY, INDEX_BITS, WORDS, Queues, Transfer, arbitrate
from .records import GEMM, STORE, choice, is_a, tile_of
from .reduce import ReduceUnit
from .vector import VectorUnit


class Core(wiring.Component):
    """The whole chip.

    Args:
        hardware: sizes, bandwidth, latency; int8.
        dataflows: those it computes in: "ws" and "is" share an array, "os" has its own.
        fusion: whether tensors may lie in the scratchpad, for which it has units and ports of their own.

    Inputs and outputs:
        go, finished, *_entries: see :class:`.queues.Queues`.
        load_valid, load_index, load_offset, load_data: in this clock the chip takes `load_data`, the bytes from an
            offset on of the tile that an instruction loads.
        store_valid, store_index, store_offset, store_data: likewise, bytes that it gives.
    """

    def __init__(self, hardware: Accelerator, dataflows: Sequence[str], fusion: bool = True) -> None:
        self._hardware = hardware
        self._width = hardware.port_bytes if fusion else 0
        width = 8 * hardware.dma_bytes_per_cycle
        members: dict[str, Any] = {"go": In(1), "finished": Out(1)}
        members |= {f"{name}_entries": In(stream.Signature(ENTRY)) for name in QUEUES}
        for name in ("load", "store"):
            members |= {f"{name}_valid": Out(1), f"{name}_index": Out(INDEX_BITS), f"{name}_offset": Out(32)}
        super().__init__({**members, "load_data": In(width), "store_data": Out(width)})
        rows, cols, lanes = hardware.rows, hardware.cols, hardware.vector_lanes
        overlapped = hardware.compute_model == "overlapped"
        kinds = sorted({flow == Dataflow.OS for flow in dataflows})
        self._is_output = kinds
        self._units = [unit_of("os" if is_output else "ws", rows, cols, overlapped) for is_output in kinds]
        self._vector, self._reduce, self._queues = VectorUnit(lanes), ReduceUnit(lanes), Queues()
        nbytes = hardware.dma_bytes_per_cycle
        readers, writers = rows + cols + 4 * lanes + self._width, nbytes + 2 * self._width
        self.scratchpad = PortedMemory(8, hardware.scratchpad_bytes, readers=readers, writers=writers)
        words, readers = hardware.accumulator_bytes // 4, nbytes + self._width
        self.accumulator = PortedMemory(32, words, ports=max(cols, lanes), readers=readers)
        self._load, self._store = (Transfer(hardware.dma_latency, nbytes) for _ in range(2))

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        for name in ("queues", "scratchpad", "accumulator", "load", "store", "vector", "reduce"):
            m.submodules[name] = getattr(self, name if name in ("scratchpad", "accumulator") else f"_{name}")
        for is_output, unit in zip(self._is_output, self._units, strict=True):
            m.submodules["output" if is_output else "stationary"] = unit
        queues = self._queues
        m.d.comb += [queues.go.eq(self.go), self.finished.eq(queues.finished)]
        for name in QUEUES:
            connect(m, flipped(getattr(self, f"{name}_entries")), getattr(queues, f"{name}_entries"))
        arbitrate(m, self._load, self._store, queues.load_head.index < queues.store_head.index)
        self._transfer_in(m)
        self._compute(m)
        self._transfer_out(m)
        if self._width:
            self._local_moves(m)
        return m

    def _transfer(self, m: Module, name: str, tile: Any) -> Transfer:
        """Joins a queue, its transfer and the DRAM port; `tile` has the sizes of what its head moves."""
        transfer, head = getattr(self, f"_{name}"), getattr(self._queues, f"{name}_head")
        m.d.comb += [
            transfer.active.eq(getattr(self._queues, f"{name}_active") & ~head.is_local),
            transfer.nbytes.eq((tile.rows * tile.cols) << Mux(head.elements == WORDS, 2, 0)),
            getattr(self, f"{name}_valid").eq(transfer.granted),
            getattr(self, f"{name}_index").eq(head.index),
            getattr(self, f"{name}_offset").eq(transfer.offset),
        ]
        with m.If(~head.is_local):
            m.d.comb += getattr(self._queues, f"{name}_done").eq(transfer.done)
        return transfer

    def _local_moves(self, m: Module) -> None:
        """Joins the units of what lies in the scratchpad to lanes of their own."""
        first = self._hardware.rows + self._hardware.cols + 4 * self._hardware.vector_lanes
        written = self._hardware.dma_bytes_per_cycle
        places = ("load", LocalLoad, self.scratchpad, first), ("store", LocalStore, self.accumulator, written)
        for name, kind, memory, lane in places:
            unit = m.submodules[f"local_{name}"] = kind(self._width)
            head = getattr(self._queues, f"{name}_head")
            m.d.comb += [unit.head.eq(head), unit.active.eq(getattr(self._queues, f"{name}_active") & head.is_local)]
            with m.If(head.is_local):
                m.d.comb += getattr(self._queues, f"{name}_done").eq(unit.done)
            for at in range(self._width):
                m.d.comb += memory.read_address[lane + at].eq(unit.read_address[at])
                m.d.comb += unit.read_data[at].eq(memory.read_data[lane + at])
                for part in ("enable", "address", "value"):
                    port = getattr(self.scratchpad, f"write_{part}")[written + at]
                    m.d.comb += port.eq(getattr(unit, f"write_{part}")[at])
            written += self._width

    def _transfer_in(self, m: Module) -> None:
        tile = tile_of(self._queues.load_head.record)
        transfer, memory = self._transfer(m, "load", tile), self.scratchpad
        for byte in range(self._hardware.dma_bytes_per_cycle):
            offset = transfer.offset + byte
            m.d.comb += [
                memory.write_enable[byte].eq(transfer.granted & (offset < transfer.nbytes)),
                memory.write_address[byte].eq(tile.dst + offset),
                memory.write_value[byte].eq(self.load_data.word_select(byte, 8)),
            ]

    def _transfer_out(self, m: Module) -> None:
        """A byte a lane: of a word, or a word that is saturated."""
        head = self._queues.store_head
        tile, memory = STORE(head.record), self.accumulator
        transfer, is_word = self._transfer(m, "store", tile), head.elements == WORDS
        for byte in range(self._hardware.dma_bytes_per_cycle):
            offset = Signal(32, name=f"store_offset_{byte}")
            m.d.comb += offset.eq(transfer.offset + byte)
            m.d.comb += memory.read_address[byte].eq(
                Mux(transfer.granted, tile.c + Mux(is_word, offset >> 2, offset), 0)
            )
            value = stored_byte(memory.read_data[byte], offset, head.elements)
            m.d.comb += self.store_data.word_select(byte, 8).eq(value)

    def _compute(self, m: Module) -> None:
        """Operands and sums of the unit whose instruction works: lanes of the memories that no other uses then."""
        head, active = self._queues.compute_head.record, self._queues.compute_active
        scratchpad, accumulator = self.scratchpad, self.accumulator
        for is_output, unit in zip(self._is_output, self._units, strict=True):
            flow_is_output = GEMM(head).dataflow == choice(Gemm, "dataflow", Dataflow.OS.value)
            works = active & is_a(head, Gemm) & (flow_is_output == is_output)
            m.d.comb += [unit.active.eq(works), unit.gemm.eq(head)]
            reads = [*unit.left_address, *unit.top_address]
            data = [*unit.left_data, *unit.top_data]
            for lane, operand in enumerate(data):
                m.d.comb += operand.eq(scratchpad.read_data[lane])
            with m.If(works):
                m.d.comb += self._queues.compute_done.eq(unit.done)
                for lane, address in enumerate(reads):
                    m.d.comb += scratchpad.read_address[lane].eq(address)
                for col in range(self._hardware.cols):
                    before = Mux(unit.sum_add[col], accumulator.port_data[col], 0)
                    m.d.comb += [
                        accumulator.port_address[col].eq(unit.sum_address[col]),
                        accumulator.port_enable[col].eq(unit.sum_enable[col]),
                        accumulator.port_value[col].eq(before + unit.sum[col]),
                    ]
        self._compute_vector(m, active & is_a(head, Vector))
        self._compute_reduce(m, active & is_a(head, Reduce))

    def _vector_lanes(self, m: Module, works: Any, unit: VectorUnit | ReduceUnit) -> Iterator[list[Any]]:
        """Joins each lane of a unit to its word of the accumulator, while the unit works; the bytes of its operands."""
        accumulator, first = self.accumulator, self._hardware.rows + self._hardware.cols
        for lane in range(self._hardware.vector_lanes):
            m.d.comb += unit.word[lane].eq(accumulator.port_data[lane])
            with m.If(works):
                m.d.comb += [
                    accumulator.port_address[lane].eq(unit.address[lane]),
                    accumulator.port_enable[lane].eq(unit.enable[lane]),
                    accumulator.port_value[lane].eq(unit.result[lane]),
                ]
            yield [first + 4 * lane + byte for byte in range(4)]
        with m.If(works):
            m.d.comb += self._queues.compute_done.eq(unit.done)

    def _compute_vector(self, m: Module, works: Any) -> None:
        vector, scratchpad = self._vector, self.scratchpad
        m.d.comb += [vector.active.eq(works), vector.vector.eq(self._queues.compute_head.record)]
        for lane, places in enumerate(self._vector_lanes(m, works, vector)):
            with m.If(works):
                for byte, place in enumerate(places):
                    m.d.comb += scratchpad.read_address[place].eq(vector.operand_address[lane] + byte)
            m.d.comb += vector.operand[lane].eq(Cat(scratchpad.read_data[place] for place in places))

    def _compute_reduce(self, m: Module, works: Any) -> None:
        reduce, scratchpad = self._reduce, self.scratchpad
        m.d.comb += [reduce.active.eq(works), reduce.reduce.eq(self._queues.compute_head.record)]
        for lane, (a, b, *_) in enumerate(self._vector_lanes(m, works, reduce)):
            with m.If(works):
                m.d.comb += scratchpad.read_address[a].eq(reduce.a_address[lane])
                m.d.comb += scratchpad.read_address[b].eq(reduce.b_address[lane])
            m.d.comb += [reduce.a[lane].eq(scratchpad.read_data[a]), reduce.b[lane].eq(scratchpad.read_data[b])]
