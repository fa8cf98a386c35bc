"""Softmax over the last axis, a row at a time, with fused epilogue.

softmax(x): maximum of the row, exponentials, their sum, quotient; the row stays in cache
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

from .dense import flatten, unflatten
from .epilogue import Epilogue, placeholders
from .steps import parallel_rows, thread_choices

#: An exponential costs about this many vector operations, one lane at a time.
_EXP = 160


class Softmax(Recipe):
    """Numerically stable softmax of rows."""

    name = "softmax"
    anchors = frozenset({"relax.nn.softmax"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        data = group.operand(0)
        if data is None or data.dtype != "float32" or group.dtype != "float32":
            return Miss("this recipe takes one float32 input")
        rank = len(data.shape)
        if int(group.call.attrs.axis) % rank != rank - 1:  # type: ignore[union-attr]
            return Miss(f"axis {int(group.call.attrs.axis)} is not the last one")  # type: ignore[union-attr]
        if 0 in data.shape:
            return Miss("the input is empty")
        return Match(group, {"data": data, "rows": math.prod(data.shape[:-1]), "row": data.shape[-1]})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return {"threads": thread_choices(match.rows * match.row * _EXP, machine)}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return match.rows * match.row * _EXP / machine.lanes / 3e9 / config["threads"]

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        params = tuple(Layout.plain(len(p.shape)) for p in match.group.params)
        return Layouts(params, Layout.plain(len(match.group.shape)))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, rows, row = match.group, match.rows, match.row
        tensors = placeholders(group, layouts.params)
        data = tensors[group.params.index(match.data)]
        lead = match.data.shape[:-1] or (1,)

        def at(r: Any, k: Any) -> Any:
            return data(*(unflatten(r, lead) if match.data.shape[:-1] else ()), k)

        k, s = te.reduce_axis((0, row), name="k"), te.reduce_axis((0, row), name="s")
        top = te.compute((rows,), lambda r: te.max(at(r, k), axis=k), name="top")
        exp = te.compute((rows, row), lambda r, c: tirx.exp(at(r, c) - top(r)), name="exp")
        total = te.compute((rows,), lambda r: te.sum(exp(r, s), axis=s), name="total")
        epilogue = Epilogue(group, tensors, layouts.params)

        def value(*index: Any) -> Any:
            r = flatten(index[:-1], lead) if len(index) > 1 else 0
            return epilogue(index, exp(r, index[-1]) / total(r))

        return te.create_prim_func([*tensors, te.compute(group.shape, value, name="out")])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        loops = sch.get_loops(sch.get_sblock("out"))
        if len(loops) == 1:
            return
        row = parallel_rows(sch, loops[:-1], config["threads"])
        for name in ("total", "exp", "top"):
            sch.compute_at(sch.get_sblock(name), row, preserve_unit_loops=True)
