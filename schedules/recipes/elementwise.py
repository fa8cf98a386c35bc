"""A chain of elementwise operations as one kernel, in whatever layout its inputs have.

add(x, y) -> relu -> ...        every input NCHW{l}c if the largest one is, else as ONNX has it
"""

import math
from collections.abc import Sequence

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.graph.relax_graph import op_name
from tvm_ext.core.numbers.storage import STORED
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Match, Miss, Recipe, Sharing, VectorWork
from tvm_ext.ops.scalars.operators import TYPES
from tvm_ext.ops.table import of

from ..steps.arguments import Arguments
from ..steps.epilogue import operand_layouts
from ..steps.loops import flat_map, image_sharing, parallel_image


class Elementwise(Recipe[Match]):
    """Fused elementwise operations with broadcasting."""

    name = "elementwise"
    anchors = frozenset({"elementwise"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        if other := ({p.dtype for p in group.params} | {group.dtype}) - {*TYPES, *STORED}:
            return Miss(f"{', '.join(sorted(other))} is none of {', '.join((*TYPES, *sorted(STORED)))}")
        if 0 in group.shape:
            return Miss("the result is empty")
        return Match(group)

    def work(self, match: Match, machine: Machine) -> VectorWork:
        operations = sum(of(op_name(b.value)).vector_work for b in match.group.bindings) + len(match.group.params)
        return VectorWork(math.prod(match.group.shape) * operations)

    def sharing(self, match: Match, config: Config, machine: Machine) -> Sharing:
        """Rows of an image in blocks of channels, else vectors."""
        if len(match.group.shape) == 4:
            n, c, h, _ = match.group.shape
            return image_sharing(n, -(-c // machine.lanes), h, config["threads"])
        return Sharing.of_rows(-(-math.prod(match.group.shape) // machine.lanes), config["threads"])

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        params, rank = match.group.params, len(match.group.shape)
        full = [lay for p, lay in zip(params, offered, strict=True) if p.shape == match.group.shape]
        result = next((lay for lay in full if not lay.is_plain), Layout.plain(rank))
        return Layouts(tuple(operand_layouts(params, match.group.shape, result)), result)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        return Arguments(match.group, layouts).kernel(lambda *i: None)

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        block = sch.get_sblock("out")
        loops = sch.get_loops(block)
        if len(match.group.shape) == 4 and len(loops) == 5:  # an image in blocks of channels
            n, c, y, _, lane = loops
            parallel_image(sch, n, c, y, config["threads"])
            sch.vectorize(lane)
            return
        flat_map(sch, block, config["threads"], machine.lanes)
