"""What one instruction costs by itself: cycles, bytes moved at each memory, operations.

How often the array reads an operand follows from the folds of its dataflow (see :mod:`.cycles`): what streams is read
once for each fold along the other side, what stays is read once, and partial sums go to the accumulator once for each
fold along k, but only once in output stationary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from ..code.check import ITEMSIZE, loaded_itemsize
from ..code.isa import Conv, Gemm, Instruction, Load, LoadConstant, LoadWindows, Reduce, Store, Vector
from ..code.program import Program
from ..code.sparse import kept_depth, sparse_bytes
from ..config import Accelerator
from .cycles import gemm_cycles
from .partition import Block, partition, pieces
from .row_stationary import RowCounts, RowShape, row_block, row_mapping, row_parts


@dataclass(frozen=True)
class Cost:
    """Of one instruction.

    Attributes:
        cycles: that its unit is busy, if it never waits.
        transfer: cycles of these in which it has the DMA channel.
        macs, vector_ops: multiply-adds of the array; elements of the vector unit.
        traffic: (memory, operand, bytes), read or written; memories are dram, scratchpad, accumulator, and of a
            row-stationary array spad, those within PEs, network, what is brought to PEs, and register, where sums grow.
    """

    cycles: int = 0
    transfer: int = 0
    macs: int = 0
    vector_ops: int = 0
    traffic: tuple[tuple[str, str, int], ...] = ()


class CostModel:
    """Costs of the instructions of one program; equal ones are computed once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._hardware = program.accelerator
        self._known: dict[Hashable, Cost] = {}

    def cost(self, instruction: Instruction) -> Cost:
        function, *facts = key = self._work(instruction)
        if key not in self._known:
            self._known[key] = function(self._hardware, *facts)
        return self._known[key]

    def _work(self, instruction: Instruction) -> tuple[Any, ...]:
        """The function of an instruction's cost, and what it takes beside the accelerator."""
        if isinstance(instruction, Gemm):
            sizes = instruction.m, instruction.k, instruction.n
            return gemm_cost, instruction.dataflow, instruction.accumulate, *sizes, instruction.is_sparse
        if isinstance(instruction, Conv):
            return conv_cost, replace(instruction, a=0, b=0, c=0, tokens=0)
        if isinstance(instruction, Vector):
            count = {"none": 0, "row": instruction.cols, "tile": instruction.rows * instruction.cols}
            operand_bytes = count[instruction.source] * ITEMSIZE[instruction.dtype]
            return vector_cost, instruction.rows * instruction.cols, operand_bytes
        if isinstance(instruction, Reduce):
            return reduce_cost, *(getattr(instruction, name) for name in ("op", "accumulate", "rows", "cols", "taps"))
        if isinstance(instruction, Load | LoadWindows | LoadConstant | Store):
            tensor = getattr(instruction, "tensor", None)
            is_local = tensor is not None and self._program.tensors[tensor].address is not None
            outer = "scratchpad" if is_local else "dram"
            inner = "accumulator" if isinstance(instruction, Store) else "scratchpad"
            elements = instruction.rows * instruction.cols
            nbytes = (elements * size for size in self._itemsizes(instruction))
            return _transfer_cost, outer, inner, getattr(instruction, "operand", "output"), *nbytes
        return (_no_cost,)

    def _itemsizes(self, instruction: Load | LoadWindows | LoadConstant | Store) -> tuple[int, int]:
        """Bytes of an element in its tensor, and in the memory that it is moved to or from."""
        if isinstance(instruction, LoadConstant):
            return (self._program.constants[instruction.constant].itemsize,) * 2
        dtype = self._program.tensors[instruction.tensor].dtype
        if isinstance(instruction, Store):  # words are narrowed behind the memory
            return ITEMSIZE[dtype], self._hardware.accumulator_itemsize
        return ITEMSIZE[dtype], loaded_itemsize(self._hardware, dtype, instruction.operand)


def _no_cost(hardware: Accelerator) -> Cost:
    """Of SYNC and FINISH."""
    return Cost()


def block_of(hardware: Accelerator, dataflow: str, m: int, k: int, n: int) -> Block:
    """The block of a GEMM that each array has; all of it where there is one array."""
    array = hardware.rows, hardware.cols
    if hardware.arrays == 1:
        return Block(gemm_cycles(dataflow, m, k, n, *array, hardware.compute_model), m, n)
    return partition(dataflow, m, k, n, *array, hardware.arrays, hardware.compute_model)


def gemm_cost(
    hardware: Accelerator, dataflow: str, accumulate: int, m: int, k: int, n: int, is_sparse: bool = False
) -> Cost:
    """Of a GEMM of the arrays, whose operands lie in the scratchpad; all of A is read for weights of 2:4 too."""
    depth = kept_depth(k) if is_sparse else k
    rows, cols, block = hardware.rows, hardware.cols, block_of(hardware, dataflow, m, depth, n)
    a, c = m * k * hardware.itemsize, m * n * hardware.accumulator_itemsize
    b = sparse_bytes(k, n) if is_sparse else k * n * hardware.itemsize
    a_reads = sum(count * (1 if dataflow == "is" else -(-size // cols)) for size, count in pieces(n, block.n))
    along = {"ws": m, "os": rows, "is": cols}[dataflow]
    b_reads = sum(count * -(-size // along) for size, count in pieces(m, block.m))
    c_writes = 1 if dataflow == "os" else -(-depth // rows)
    return Cost(
        cycles=block.cycles,
        macs=m * depth * n,
        traffic=(
            ("scratchpad", "a", a * a_reads),
            ("scratchpad", "b", b * b_reads),
            ("accumulator", "output", c * (2 * c_writes - 1 + accumulate)),
        ),
    )


def gemm_energy(hardware: Accelerator, dataflow: str, sizes: tuple[int, int, int], is_sparse: bool) -> float:
    """Picojoules that both memories take for a GEMM that is added to sums."""
    table = hardware.energy
    prices = {"scratchpad": table.scratchpad_byte, "accumulator": table.accumulator_byte}
    traffic = gemm_cost(hardware, dataflow, 1, *sizes, is_sparse).traffic
    return sum(prices[memory] * nbytes for memory, _, nbytes in traffic)


def conv_cost(hardware: Accelerator, conv: Conv) -> Cost:
    """Of a convolution, row stationary, whose operands lie in the scratchpad: the cycles of the slowest array."""
    moved: Counter[tuple[str, str]] = Counter()
    sizes = {"a": hardware.itemsize, "b": hardware.itemsize, "output": hardware.accumulator_itemsize}
    for _, part in row_parts(conv, hardware):
        counts, (m, _, n) = RowCounts.of(part, row_mapping(RowShape.of(part), hardware)[1]), part.sizes
        levels = {"scratchpad": counts.buffer, "network": counts.network, "spad": counts.spad}
        levels["register"] = {"output": counts.registers}
        levels["accumulator"] = {"output": m * n * (2 * counts.sums - 1 + conv.accumulate)}
        for level, values in levels.items():
            moved.update({(level, name): count * sizes[name] for name, count in values.items()})
    traffic = tuple((level, name, nbytes) for (level, name), nbytes in moved.items())
    return Cost(row_block(RowShape.of(conv), hardware).cycles, macs=math.prod(conv.sizes), traffic=traffic)


def vector_cost(hardware: Accelerator, elements: int, operand_bytes: int) -> Cost:
    """Of an operation of the vector unit: `vector_lanes` elements a cycle, each read and written."""
    return Cost(
        cycles=-(-elements // hardware.vector_lanes),
        vector_ops=elements,
        traffic=(
            ("scratchpad", "epilogue", operand_bytes),
            ("accumulator", "output", 2 * elements * hardware.accumulator_itemsize),
        ),
    )


def reduce_cost(hardware: Accelerator, op: str, accumulate: int, rows: int, cols: int, taps: int) -> Cost:
    """Of a reduction by the vector unit: `vector_lanes` terms a cycle, sums stay in its lanes until they are whole."""
    terms, output = rows * cols * taps, rows * cols * hardware.accumulator_itemsize
    return Cost(
        cycles=-(-terms // hardware.vector_lanes),
        vector_ops=terms,
        traffic=(
            ("scratchpad", "a", terms * hardware.itemsize),
            ("scratchpad", "b", cols * taps * hardware.itemsize if op == "dot" else 0),
            ("accumulator", "output", output * (1 + accumulate)),
        ),
    )


def transfer_cycles(hardware: Accelerator, nbytes: int) -> int:
    """Cycles that a transfer has the DMA channel, which come after its latency."""
    return -(-nbytes // hardware.dma_bytes_per_cycle)


def move_cycles(hardware: Accelerator, nbytes: int, is_local: bool) -> int:
    """Cycles of a load or store without waiting: of the DMA channel, or, of what is in the scratchpad, of its port."""
    return -(-nbytes // hardware.port_bytes) if is_local else hardware.dma_latency + transfer_cycles(hardware, nbytes)


def _transfer_cost(hardware: Accelerator, outer: str, inner: str, operand: str, nbytes: int, on_chip: int) -> Cost:
    is_local = outer == "scratchpad"
    return Cost(
        cycles=move_cycles(hardware, nbytes, is_local),
        transfer=0 if is_local else transfer_cycles(hardware, nbytes),
        traffic=((outer, operand, nbytes), (inner, operand, on_chip)),
    )
