"""Matmul with a constant weight, packed at compile time, with fused epilogue.

    matmul(x, w) -> +bias, relu, ...        x: (..., K), w: (K, N) as IO{i}i{o}o, result: (..., N)

All leading dimensions of x are rows. A result whose N is not a multiple of the lanes is computed in blocks and
copied out by the same kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout, PackedWeight
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss

from . import blocked
from .epilogue import Epilogue, placeholders
from .steps import parallel_rows


class Dense(blocked.BlockedRecipe):
    """Packed matmul, register-blocked over columns and rows."""

    name = "dense"
    anchors = frozenset({"relax.matmul"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        data, weight = group.operand(0), group.operand(1)
        if data is None or weight is None:
            return Miss("an operand is computed inside the group")
        if not weight.constant or len(weight.shape) != 2:
            return Miss(f"the right operand {weight.shape} is not a constant matrix")
        if len(data.shape) < 2:
            return Miss(f"the left operand has shape {data.shape}: rows are needed")
        if {data.dtype, weight.dtype, group.dtype} != {"float32"}:
            return Miss(f"dtype {data.dtype}: this recipe computes float32")
        k, n = weight.shape
        rows = math.prod(data.shape[:-1])
        if 0 in (k, n, rows):
            return Miss("an operand is empty")
        inner = next(i for i in range(machine.lanes, 0, -1) if k % i == 0)
        problem = blocked.Problem(1, n, rows, rows, k // inner, (1, 1), inner, machine.lanes)
        return Match(group, {"problem": problem, "data": data, "weight": weight})

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        p = match.problem
        weight = PackedWeight.make(
            2, p.inner, p.lanes * config["tile_o"], blocked.Units.of(p, config).outer_o, transposed=True
        )
        params = tuple(weight if q is match.weight else Layout.plain(len(q.shape)) for q in match.group.params)
        return Layouts(params, Layout.plain(len(match.group.shape)))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, problem = match.group, match.problem
        tensors = placeholders(group, layouts.params)
        epilogue = Epilogue(group, tensors, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        data, weight = tensors[where[match.data.var]], tensors[where[match.weight.var]]
        lead = group.shape[:-1]

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            return data(*unflatten(q, lead), block * problem.inner + ri)

        acc = blocked.reduce_tiles(problem, blocked.Units.of(problem, config), load, blocked.shared(weight))
        if problem.outputs % problem.lanes == 0:
            out = te.compute(
                (1, problem.output_blocks, problem.pixels, problem.lanes),
                lambda n, o, q, j: epilogue((*unflatten(q, lead), o * problem.lanes + j), acc(n, o, q, j)),
                name="out",
            )
            return te.create_prim_func([*tensors, out])
        shape = (1, problem.output_blocks, problem.pixels, problem.lanes)
        blocks = te.compute(shape, lambda n, o, q, j: acc(n, o, q, j), name="out")
        lanes = problem.lanes
        result = te.compute(
            group.shape,
            lambda *i: epilogue(i, blocks(0, i[-1] // lanes, flatten(i[:-1], lead), i[-1] % lanes)),
            name="copy",
        )
        return te.create_prim_func([*tensors, result])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        problem, shape = match.problem, match.group.shape
        blocked.schedule_tiles(sch, problem, config)
        if problem.outputs % problem.lanes:
            parallel_rows(sch, sch.get_loops(sch.get_sblock("copy"))[:-1], config["threads"])
            return
        sch.transform_layout(
            sch.get_sblock("out"),
            ("write", 0),
            lambda n, o, q, j: (*unflatten(q, shape[:-1]), o * problem.lanes + j),
        )


def unflatten(index: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """The index in `shape` (C order) of a flat index."""
    out = []
    for dim in reversed(shape[1:]):
        out.append(tirx.floormod(index, dim))
        index = tirx.floordiv(index, dim)
    return (index, *reversed(out))


def flatten(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """The flat index (C order) of an index in `shape`."""
    flat: Any = 0
    for i, dim in zip(index, shape, strict=True):
        flat = flat * dim + i
    return flat
