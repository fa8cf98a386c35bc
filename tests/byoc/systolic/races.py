"""Races: two instructions of different queues that touch the same memory, where no token says which comes first.

A program with a race computes what it should only if the timing is kind. Orders are found as in vector clocks (Mattern,
"Virtual time and global states of distributed systems", 1989): for each instruction, how far it knows each queue to be.
"""

from collections import deque
from dataclasses import dataclass

from tvm_ext.byoc.systolic.code.check import ITEMSIZE, loaded_itemsize
from tvm_ext.byoc.systolic.code.isa import (
    QUEUES,
    Conv,
    Gemm,
    Instruction,
    Load,
    LoadConstant,
    LoadWindows,
    Reduce,
    SparseGemm,
    Store,
    Vector,
)
from tvm_ext.byoc.systolic.code.program import Program
from tvm_ext.byoc.systolic.code.sparse import sparse_bytes
from tvm_ext.byoc.systolic.simulation.queues import CHANNELS, Channel, channels_of


@dataclass(frozen=True)
class Access:
    """Bytes [begin, end) of "scratchpad", "accumulator" or a tensor in DRAM ("dram 0"), read or written."""

    memory: str
    begin: int
    end: int
    writes: bool


def accesses(program: Program, instruction: Instruction) -> list[Access]:
    """What an instruction reads and writes. Tensors count as a whole."""
    if isinstance(instruction, Load | LoadWindows):
        dtype = program.tensors[instruction.tensor].dtype
        item = loaded_itemsize(program.accelerator, dtype, instruction.operand)
        size = instruction.rows * instruction.cols * item
        return [_whole(program, instruction.tensor, False), _range("scratchpad", instruction.dst, size, True)]
    if isinstance(instruction, LoadConstant):
        size = instruction.rows * instruction.cols * program.constants[instruction.constant].itemsize
        return [_range("scratchpad", instruction.dst, size, True)]
    if isinstance(instruction, Gemm | Conv):
        item, (m, k, n) = program.accelerator.itemsize, sizes_of(instruction)
        of_a = m * k if isinstance(instruction, Gemm) else instruction.channels * instruction.height * instruction.width
        of_b = sparse_bytes(k, n) if isinstance(instruction, SparseGemm) else k * n * item
        return [
            _range("scratchpad", instruction.a, of_a * item, False),
            _range("scratchpad", instruction.b, of_b, False),
            _range("accumulator", instruction.c, m * n, True),
        ]
    if isinstance(instruction, Reduce):
        item, terms = program.accelerator.itemsize, instruction.cols * instruction.taps
        accessed = [_range("scratchpad", instruction.a, instruction.rows * terms * item, False)]
        accessed += [_range("scratchpad", instruction.b, terms * item, False)] * (instruction.op == "dot")
        return [*accessed, _range("accumulator", instruction.c, instruction.rows * instruction.cols, True)]
    if isinstance(instruction, Vector):
        count = {"none": 0, "row": instruction.cols, "tile": instruction.rows * instruction.cols}[instruction.source]
        accessed = [_range("accumulator", instruction.c, instruction.rows * instruction.cols, True)]
        return accessed + [
            _range("scratchpad", instruction.address, count * ITEMSIZE[instruction.dtype], False)
        ] * bool(count)
    if isinstance(instruction, Store):
        read = _range("accumulator", instruction.c, instruction.rows * instruction.cols, False)
        return [read, _whole(program, instruction.tensor, True)]
    return []


def sizes_of(instruction: Gemm | Conv) -> tuple[int, int, int]:
    """m, k and n."""
    return instruction.sizes if isinstance(instruction, Conv) else (instruction.m, instruction.k, instruction.n)


def find_races(program: Program) -> list[tuple[int, int, str]]:
    """Pairs of instructions, by index, that race, with the memory.

    Raises:
        ProgramError: deadlock.
    """
    clocks = _clocks(program)
    touched: dict[str, list[tuple[int, Access]]] = {}
    races = []
    for index in program.order:
        for access in accesses(program, program.instructions[index]):
            for other, earlier in touched.setdefault(access.memory, []):
                meets = access.begin < earlier.end and earlier.begin < access.end
                if meets and (access.writes or earlier.writes) and not _ordered(program, clocks, other, index):
                    races.append((other, index, access.memory))
            touched[access.memory].append((index, access))
    return races


def _ordered(program: Program, clocks: dict[int, dict[str, int]], earlier: int, later: int) -> bool:
    queue = program.instructions[earlier].queue
    return queue == program.instructions[later].queue or clocks[later][queue] >= earlier


def _clocks(program: Program) -> dict[int, dict[str, int]]:
    """Instruction -> queue -> the last instruction of that queue that is done before it starts."""
    sent: dict[Channel, deque[dict[str, int]]] = {channel: deque() for channel in CHANNELS}
    now = {queue: dict.fromkeys(QUEUES, -1) for queue in QUEUES}
    clocks = {}
    for index in program.order:
        instruction = program.instructions[index]
        if instruction.queue == "all":
            clock = dict.fromkeys(QUEUES, index)
            now = {queue: dict(clock) for queue in QUEUES}
        else:
            pops, pushes = channels_of(instruction.queue, instruction.tokens)
            known = [now[instruction.queue], *(sent[channel].popleft() for channel in pops)]
            clock = {queue: max(each[queue] for each in known) for queue in QUEUES}
            now[instruction.queue] = {**clock, instruction.queue: index}
            for channel in pushes:
                sent[channel].append(now[instruction.queue])
        clocks[index] = clock
    return clocks


def _range(memory: str, begin: int, size: int, writes: bool) -> Access:
    return Access(memory, begin, begin + size, writes)


def _whole(program: Program, tensor: int, writes: bool) -> Access:
    address, nbytes = program.tensors[tensor].address, program.tensors[tensor].nbytes
    memory = f"dram {tensor}" if address is None else "scratchpad"
    return _range(memory, address or 0, nbytes, writes)
