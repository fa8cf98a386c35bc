"""A chain of elementwise operations as one kernel, in whatever layout its inputs have.

add(x, y) -> relu -> ...        every input NCHW{l}c if the largest one is, else as ONNX has it
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import vector_seconds
from tvm_ext.core.cost.sharing import Sharing
from tvm_ext.core.graph.relax_graph import op_name
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.numbers.storage import STORED
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe
from tvm_ext.ops.scalars.operators import TYPES
from tvm_ext.ops.table import of

from ..steps.epilogue import Epilogue, operand_layouts, placeholders
from ..steps.loops import flat_map, image_sharing, parallel_image, thread_choices


class Elementwise(Recipe):
    """Fused elementwise operations with broadcasting."""

    name = "elementwise"
    anchors = frozenset({"elementwise"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        if other := ({p.dtype for p in group.params} | {group.dtype}) - {*TYPES, *STORED}:
            return Miss(f"{', '.join(sorted(other))} is none of {', '.join((*TYPES, *sorted(STORED)))}")
        if 0 in group.shape:
            return Miss("the result is empty")
        operations = sum(of(op_name(b.value)).vector_work for b in group.bindings) + len(group.params)
        return Match(group, {"elements": math.prod(group.shape), "operations": operations})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return {"threads": thread_choices(match.elements * match.operations, machine, self.shared(match, machine))}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return vector_seconds(match.elements * match.operations, machine, self.sharing(match, config, machine))

    def sharing(self, match: Match, config: Config, machine: Machine) -> Sharing:
        """Rows of an image in blocks of channels, else vectors."""
        if len(match.group.shape) == 4:
            n, c, h, _ = match.group.shape
            return image_sharing(n, -(-c // machine.lanes), h, config["threads"])
        return Sharing.of_rows(-(-match.elements // machine.lanes), config["threads"])

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        params, rank = match.group.params, len(match.group.shape)
        full = [lay for p, lay in zip(params, offered, strict=True) if p.shape == match.group.shape]
        result = next((lay for lay in full if not lay.is_plain), Layout.plain(rank))
        return Layouts(tuple(operand_layouts(params, match.group.shape, result)), result)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        tensors = placeholders(match.group, layouts.params)
        epilogue = Epilogue(match.group, tensors, layouts.params)
        out = te.compute(
            layouts.output.physical_shape(match.group.shape), lambda *i: epilogue(layouts.output.logical(i)), name="out"
        )
        return te.create_prim_func([*tensors, out])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        block = sch.get_sblock("out")
        loops = sch.get_loops(block)
        if len(match.group.shape) == 4 and len(loops) == 5:  # an image in blocks of channels
            n, c, y, _, lane = loops
            parallel_image(sch, n, c, y, config["threads"])
            sch.vectorize(lane)
            return
        flat_map(sch, block, config["threads"], machine.lanes)
