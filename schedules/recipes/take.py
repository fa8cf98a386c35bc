"""Rows picked by index, such as embeddings, with fused epilogue.

take(table[V, H], indices[B, S], axis=0)  ->  for b, s: row = indices[b, s] mod V; for h in vectors: out = table[row, h]

An index is wrapped or clipped first, so that no load leaves the table; a whole row is copied in vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import vector_seconds
from tvm_ext.core.graph.relax_graph import scalar_of, shape_of
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe

from ..steps.epilogue import Epilogue, placeholders
from ..steps.loops import parallel_rows, thread_choices, vectorize_all
from ..steps.storage import reader

#: Vector operations a row takes before its first element: load the index, divide it, compute the address.
_ROW = 40


class Take(Recipe):
    """Gather along one axis of a tensor of any dtype."""

    name = "take"
    anchors = frozenset({"relax.take"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        call, data, indices = group.call, group.operand(0), group.operand(1)
        fixed = scalar_of(call.args[1])  # type: ignore[union-attr]
        if data is None or (indices is None and fixed is None):
            return Miss("the table or the indices are computed inside the group")
        if data.computed != group.computed:
            return Miss(f"the table is {data.computed}, the result {group.computed}")
        mode, axis = str(call.attrs.mode), call.attrs.axis  # type: ignore[union-attr]
        if mode not in ("wrap", "clip"):
            return Miss(f"mode {mode!r} reads foreign memory where an index is out of bounds; 'wrap' and 'clip' do not")
        if 0 in data.shape or 0 in group.shape:
            return Miss("the table or the result is empty")
        shape = shape_of(call.args[1])  # type: ignore[union-attr]
        facts = {"data": data, "indices": indices, "fixed": fixed, "picked": len(shape or ()), "mode": mode}
        return Match(group, {**facts, "axis": int(axis or 0) % len(data.shape)})  # no axis: one dimension

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return {"threads": thread_choices(_operations(match, machine), machine)}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return vector_seconds(_operations(match, machine), machine, self.sharing(match, config, machine))

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        params = tuple(Layout.plain(len(p.shape)) for p in match.group.params)
        return Layouts(params, Layout.plain(len(match.group.shape)))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, axis, picked = match.group, match.axis, match.picked
        tensors = placeholders(group, layouts.params)
        data = reader(group, tensors, layouts.params, match.data)
        epilogue = Epilogue(group, tensors, layouts.params)

        def picks(index: Sequence[Any]) -> Any:
            if match.indices is None:
                return tirx.const(int(match.fixed), "int64")
            return tensors[group.params.index(match.indices)](*index)

        def value(*index: Any) -> Any:
            row = _inside(picks(index[axis : axis + picked]), match.data.shape[axis], match.mode)
            return epilogue(index, data(*index[:axis], row, *index[axis + picked :]))

        return te.create_prim_func([*tensors, te.compute(group.shape, value, name="out")])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        block = sch.get_sblock("out")
        loops = sch.get_loops(block)
        if not loops:
            return
        if _row_length(match) == 1:  # single elements: a vector of indices is no vector of elements
            parallel_rows(sch, loops, config["threads"])
            return
        if len(loops) == 1:
            sch.add_unit_loop(block)
        *rows, column = sch.get_loops(block)
        parallel_rows(sch, rows, config["threads"])
        vectorize_all(sch, column, machine.lanes)


def _inside(index: Any, rows: int, mode: str) -> Any:
    """The row an index means: -1 is the last one where it wraps around."""
    extent, zero = tirx.const(rows, index.ty.dtype), tirx.const(0, index.ty.dtype)
    if mode == "wrap":
        return tirx.floormod(index, extent)
    return tirx.max(tirx.min(index, extent - 1), zero)


def _row_length(match: Match) -> int:
    """Elements of the last dimension that one index picks; 1 if the last dimension is one of the indices."""
    return int(match.data.shape[-1]) if match.axis < len(match.data.shape) - 1 else 1


def _operations(match: Match, machine: Machine) -> float:
    elements = math.prod(match.group.shape)
    return elements * len(match.group.bindings) + elements / _row_length(match) * _ROW * machine.lanes
