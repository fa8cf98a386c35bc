"""Few rows by a weight of 2, 4 or 8 bits in blocks, which is streamed as it is packed (:mod:`...steps.block_stream`).

    tvm_ext.matmul_blocks(x, codes, scales[, points]) -> +bias, ...       x: (.., K), codes: (N, B, bytes) as NBK16n8k
    also of an RMS norm of x; and of several such weights, as in silu(x gate) * (x up)

What a row costs is the read of the weight: a core unpacks and multiplies 128 codes of 4 bits, with VNNI, in about the
time in which two of them read 64 bytes from memory.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import Stream, seconds, thread_counts
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss, Recipe, Sharing
from tvm_ext.ops.block_weights import NAME

from ...blocked.matmul import streamed_rows
from ...steps.block_stream import BlockStream, StreamTile
from ...steps.block_weight import BlockMatch, block_match, known_rows

#: Cycles from a multiply-add or dot product to the next one that adds to its sum.
_LATENCY = 4.5
#: Vector instructions that add a block's sum to a vector of outputs; those that round a vector of x, and normalize it.
_FINISH, _ROUND, _NORM = 5, 12, 5
#: Instructions of a block's loop that all vectors side by side share.
_LOOP = 6
#: The share of vector registers for sums: codes, a mask, a scale and numbers on their way take the others.
_SUMS = 1 / 2
#: Rounded rows up to which the weight is streamed; each few of them unpack it again, out of L1.
_MOST_ROUNDED = 16


class MatmulBlocks(Recipe[BlockMatch]):
    """A matmul of few rows that unpacks its weight in registers."""

    name = "matmul_blocks"
    anchors = frozenset({NAME})

    def match(self, group: Group, machine: Machine) -> BlockMatch | Miss:
        match = block_match(group, machine, joined=True)
        if isinstance(match, Miss):
            return match
        if not known_rows(group):
            return Miss("the number of rows is only known at run time")
        if (rows := _rows(match)) > (_MOST_ROUNDED if _digits(match, machine) else streamed_rows(machine)):
            return Miss(f"{rows} rows, which would unpack each weight too often")
        return match

    def instruction(self, match: BlockMatch) -> str:
        return "vpdpbusd" if match.says.digits and match.lanes == 16 else ""

    def space(self, match: BlockMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Threads; x is rounded where the model allows it and VNNI is there."""
        digits = _digits(match, machine)
        cycles = match.groups * _cycles_of_a_group(match, digits, machine)
        return {
            "digits": [digits],
            "rows": [_together(match, digits, machine)],
            "threads": thread_counts(cycles, machine),
        }

    def cost(self, match: BlockMatch, config: Config, machine: Machine) -> float:
        shared = self.sharing(match, config, machine)
        cycles = shared.busiest * _cycles_of_a_group(match, config["digits"], machine)
        each = _ROUND + (_NORM if match.norm else 0)
        reading = _rows(match) * match.blocks * match.says.block / match.lanes * each / machine.fma_per_cycle
        stream = Stream(match.weight_bytes * shared.part, match.group.weights_in)
        return seconds(cycles + reading, [stream], machine, shared.threads)

    def sharing(self, match: BlockMatch, config: Config, machine: Machine) -> Sharing:
        """Groups of vectors of outputs."""
        return Sharing.of_rows(match.groups, config["threads"])

    def layouts(self, match: BlockMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        return match.layouts()

    def compute(self, match: BlockMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        tile = StreamTile.of(config, match.group.weights_in in ("l3", "memory"))
        return BlockStream(match, tile).function()

    def schedule(self, sch: Schedule, match: BlockMatch, config: Config, machine: Machine) -> None:
        """The stream of a block and what is added of it are loops in place."""


def _digits(match: BlockMatch, machine: Machine) -> int:
    """Of a rounded number of x; 0 where the model, or the machine, has floats only."""
    return match.says.digits if "avx512vnni" in machine.features and match.lanes == 16 else 0


def _rows(match: BlockMatch) -> int:
    return math.prod(match.data.shape[:-1])


def _together(match: BlockMatch, digits: int, machine: Machine) -> int:
    """Rows whose sums, and those of a block, stay in registers: equal parts of all rows, as few as fit."""
    rows = _rows(match)
    fitting = max(int(machine.registers * _SUMS) // (1 + digits), 1) if digits else rows
    return -(-rows // -(-rows // fitting))


def _cycles_of_a_group(match: BlockMatch, digits: int, machine: Machine) -> float:
    """Of vectors of outputs side by side, over the whole row, of all weights: unpacking, products, and what is added of
    each block."""
    rows, rate, side = _rows(match), machine.fma_per_cycle, match.side
    if digits:
        products = match.parts * digits * rows / (machine.rates.dot_int8 or rate)
        chain = match.parts * _LATENCY
        unpacking = -(-rows // _together(match, digits, machine)) * (2 * match.parts - 1) if match.says.bits < 8 else 0
    else:
        codes = 4 * match.parts
        products, chain, unpacking = codes * rows / rate, codes * _LATENCY, 3 * codes
    word = max(side * (products + unpacking / rate), chain)
    weights = 1 + len(match.beside)
    return weights * match.blocks * (match.words * word + (side * _FINISH * rows + _LOOP) / rate)
