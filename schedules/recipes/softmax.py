"""Softmax and log-softmax, a row at a time, with fused epilogue.

    top = max(x), e = exp(x - top), total = sum(e)         three passes over a row, which stays in L1 or L2
    softmax(x) = e * (1 / total)                           one division a row
    log_softmax(x) = x - top - log(total)

The axis is the innermost one: a tensor whose axis is another one is asked for in the layout that has it last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import vector_seconds
from tvm_ext.core.cost.sharing import Sharing
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe
from tvm_ext.ops.scalars import vector_math

from ..steps import row_reduction
from ..steps.epilogue import Epilogue, placeholders
from ..steps.loops import parallel_rows, thread_choices, vectorize_all
from ..steps.storage import reader, why_not_float32

#: Work an element takes, in units of loading or storing one: an exponential, and loads, stores and additions.
_OPERATIONS = 10


class Softmax(Recipe):
    """Numerically stable softmax of rows."""

    name = "softmax"
    anchors = frozenset({"relax.nn.softmax", "relax.nn.log_softmax"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        data = group.operand(0)
        if data is None:
            return Miss("the operand is computed inside the group")
        if why := why_not_float32(group, data):
            return Miss(why)
        if 0 in data.shape:
            return Miss("the input is empty")
        axis = int(group.call.attrs.axis) % len(data.shape)  # type: ignore[union-attr]
        return Match(group, {"data": data, "axis": axis, "row": data.shape[axis], "lanes": machine.lanes})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return {
            "threads": thread_choices(math.prod(match.group.shape) * _OPERATIONS, machine, self.shared(match, machine))
        }

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return vector_seconds(math.prod(match.group.shape) * _OPERATIONS, machine, self.sharing(match, config, machine))

    def sharing(self, match: Match, config: Config, machine: Machine) -> Sharing:
        """Rows along the axis."""
        return Sharing.of_rows(math.prod(match.group.shape) // match.row, config["threads"])

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        rank = len(match.group.shape)
        rows = Layout((*(a for a in range(rank) if a != match.axis), match.axis))
        params = (rows if p.shape == match.group.shape else Layout.plain(len(p.shape)) for p in match.group.params)
        return Layouts(tuple(params), rows)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, row = match.group, match.row
        tensors = placeholders(group, layouts.params)
        data = reader(group, tensors, layouts.params, match.data)
        shape = layouts.output.physical_shape(group.shape)
        lead = shape[:-1]
        top = row_reduction.compute("top", "max_number", lead, row, match.lanes, data)
        exp = te.compute(shape, lambda *i: vector_math.exp_flushed(data(*i) - top(*i[:-1], 0)), name="exp")
        total = row_reduction.compute("total", "sum", lead, row, match.lanes, exp)
        softmax = group.anchor == "relax.nn.softmax"
        one = tirx.const(1.0, "float32")
        final = te.compute(
            (*lead, 1), lambda *i: one / total(*i) if softmax else top(*i) + vector_math.log(total(*i)), name="final"
        )
        epilogue = Epilogue(group, tensors, layouts.params)

        def value(*i: Any) -> Any:
            last = final(*i[:-1], 0)
            return epilogue(layouts.output.logical(i), exp(*i) * last if softmax else data(*i) - last)

        return te.create_prim_func([*tensors, te.compute((*lead, row), value, name="out")])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        out = sch.get_sblock("out")
        if len(sch.get_loops(out)) == 1:
            sch.add_unit_loop(out)
        *rows, column = sch.get_loops(out)
        row = parallel_rows(sch, rows, config["threads"])
        sch.compute_at(sch.get_sblock("final"), row, preserve_unit_loops=True)
        row_reduction.place(sch, "total", row)
        sch.compute_at(sch.get_sblock("exp"), row, preserve_unit_loops=True)
        row_reduction.place(sch, "top", row)
        row_reduction.vectorize(sch, "top")
        row_reduction.vectorize(sch, "total")
        vectorize_all(sch, sch.get_loops(sch.get_sblock("exp"))[-1], machine.lanes)
        vectorize_all(sch, column, machine.lanes)
