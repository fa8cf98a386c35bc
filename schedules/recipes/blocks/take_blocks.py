"""Rows of a table of 2, 4 or 8 bits in blocks, picked by index and decoded: embeddings that stay packed.

tvm_ext.take_blocks(indices[B, S], codes, scales[, points])  ->  for b, s: row = indices[b, s]; out = decoded codes[row]

The table lies as a matmul by it wants it (a tied embedding is stored once): a row is one lane of its words.
"""

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss, Recipe, VectorWork
from tvm_ext.ops.block_weights import TAKE

from ...steps.arguments import Arguments
from ...steps.block_weight import BlockMatch, block_match
from ...steps.loops import parallel_rows

#: Scalar instructions that load a code, decode it and store it.
_ELEMENT = 8


class TakeBlocks(Recipe[BlockMatch]):
    """Gather of rows of a packed table."""

    name = "take_blocks"
    anchors = frozenset({TAKE})

    def match(self, group: Group, machine: Machine) -> BlockMatch | Miss:
        return block_match(group, machine)

    def work(self, match: BlockMatch, machine: Machine) -> VectorWork:
        return VectorWork(math.prod(match.group.shape) * _ELEMENT * machine.lanes / 2, max(_rows(match), 1))

    def layouts(self, match: BlockMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        return match.layouts()

    def compute(self, match: BlockMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args = Arguments(match.group, layouts)
        index = args.reader(match.data)

        def anchor(*place: Any) -> Any:
            row = index(*place[:-1]).astype("int64")
            row = tirx.if_then_else(row < 0, row + match.outputs, row)
            row = tirx.max(tirx.min(row, match.outputs - 1), 0).astype("int32")
            return match.decoded(args, row // match.lanes, row % match.lanes, place[-1])

        return args.kernel(anchor)

    def schedule(self, sch: Schedule, match: BlockMatch, config: Config, machine: Machine) -> None:
        *rows, column = sch.get_loops(sch.get_sblock("out"))
        each = 4 * match.parts
        if int(sch.get(column).extent) % each == 0:
            _, inner = sch.split(column, [None, each])
            sch.unroll(inner)
        if rows:
            parallel_rows(sch, rows, config["threads"])


def _rows(match: BlockMatch) -> int:
    return math.prod(match.data.shape)
