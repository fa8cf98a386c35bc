"""A chain of elementwise operations as one kernel, in whatever layout its inputs have.

add(x, y) -> relu -> ...        every input NCHW{l}c if the largest one is, else as ONNX has it
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe

from .epilogue import Epilogue, blocked_layout, placeholders
from .steps import flat_map, thread_choices


class Elementwise(Recipe):
    """Fused elementwise operations with broadcasting."""

    name = "elementwise"
    anchors = frozenset({"elementwise"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        if group.dtype not in ("float32", "float64") or any(p.dtype != group.dtype for p in group.params):
            return Miss(f"operands are not all {group.dtype} floats")
        if 0 in group.shape:
            return Miss("the result is empty")
        return Match(group, {"elements": math.prod(group.shape)})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        operations = len(match.group.bindings) + len(match.group.params)
        return {"threads": thread_choices(match.elements * operations, machine)}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return match.elements * len(match.group.bindings) / machine.lanes / 3e9 / config["threads"]

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        params, rank = match.group.params, len(match.group.shape)
        full = [lay for p, lay in zip(params, offered, strict=True) if p.shape == match.group.shape]
        result = next((lay for lay in full if not lay.is_plain), Layout.plain(rank))

        def of(shape: tuple[int, ...]) -> Layout:
            if shape == match.group.shape or result.block is None:
                return result if shape == match.group.shape else Layout.plain(len(shape))
            return blocked_layout(shape, result.block[1], rank, result.block[0])

        return Layouts(tuple(of(p.shape) for p in params), result)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        tensors = placeholders(match.group, layouts.params)
        epilogue = Epilogue(match.group, tensors, layouts.params)
        out = te.compute(
            layouts.output.physical_shape(match.group.shape), lambda *i: epilogue(layouts.output.logical(i)), name="out"
        )
        return te.create_prim_func([*tensors, out])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        flat_map(sch, sch.get_sblock("out"), config["threads"], machine.lanes)
