"""Matmul with a constant weight, packed at compile time, with fused epilogue.

    matmul(x, w) -> +bias, relu, ...        x: (..., K), w: (K, N) as IO{i}i{o}o, result: (..., N)

All leading dimensions of x are rows. The tiling has two levels, caches and registers. What each is worth at 512 x 512 x
512, in GFLOP/s of one thread of a Zen 4 core (benchmarks/matmul_levels.py measures it anew and writes
results/MACHINE/matmul_levels.md):

    three loops                                0.9
    blocks for the caches, vectors            55
    and tiles in registers, b in place       114       `batch_matmul`
    and b packed by the kernel               114       `batch_matmul`
    b packed at compile time                 115       this recipe; a 512-bit multiply-add every cycle
    BLAS (numpy)                             106

Few rows stream the weights (:mod:`..blocked.matmul`).
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
from tvm_ext.ops.scalars.functions import cast

from ..blocked import kernel as blocked
from ..blocked.matmul import MatmulRecipe, in_fewer_bytes, matmul_problem, result, schedule_matmul
from ..blocked.prefetch import weight_name
from ..steps.epilogue import Epilogue, placeholders
from ..steps.indices import unflatten
from ..steps.storage import decoded, schedule_decoded, why_not_float32
from ..steps.widened import scaled, why_not_widened, widened


class Dense(MatmulRecipe):
    """Packed matmul, register-blocked over columns and rows."""

    name = "dense"
    version = 2
    anchors = frozenset({"relax.matmul"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        data, weight = group.operand(0), group.operand(1)
        if data is None or weight is None:
            return Miss("an operand is computed inside the group")
        if not weight.constant or len(weight.shape) != 2:
            return Miss(f"the right operand {weight.shape} is not a constant matrix")
        if len(data.shape) < 2:
            return Miss(f"the left operand has shape {data.shape}: rows are needed")
        if why := why_not_float32(group, data, weight) or why_not_widened(group, weight, 1):
            return Miss(why)
        k, n = weight.shape
        rows = math.prod(data.shape[:-1])
        if 0 in (k, n, rows):
            return Miss("an operand is empty")
        problem = blocked.with_residence(matmul_problem(1, rows, k, n, machine), group)
        return Match(
            group,
            {
                "problem": in_fewer_bytes(problem, weight, machine),
                "data": data,
                "weight": weight,
            },
        )

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        p = match.problem
        weight = PackedWeight.make(
            2, p.inner, p.lanes * config["tile_o"], blocked.Units.of(p, config).outer_o, transposed=True
        )
        own = weight if p.word < 4 else widened(match.group, match.weight, weight)
        params = tuple(own if q is match.weight else Layout.plain(len(q.shape)) for q in match.group.params)
        return Layouts(params, Layout.plain(len(match.group.shape)))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, problem = match.group, match.problem
        tensors = placeholders(group, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        data, weight = decoded(group, tensors, layouts.params, match.data), tensors[where[match.weight.var]]
        scale, lead = scaled(group, tensors, layouts.params, match.weight), group.shape[:-1]

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            return data(*unflatten(q, lead), block * problem.inner + ri)

        def wide(n: Any, *index: Any) -> Any:
            return cast(weight(*index), "float32")

        acc = blocked.reduce_tiles(problem, blocked.Units.of(problem, config), load, wide)
        epilogue = Epilogue(group, tensors, layouts.params)
        out = result(problem, acc, lambda n, q, c, value: epilogue((*unflatten(q, lead), c), scale(value, c)))
        return te.create_prim_func([*tensors, out])

    def schedule(
        self,
        sch: Schedule,
        match: Match,
        config: Config,
        machine: Machine,
        blocker: blocked.Blocker = blocked.configured,
    ) -> None:
        schedule_decoded(sch, match.data, config["threads"], machine.lanes)
        lead = match.group.shape[:-1]
        weight = weight_name(match)
        schedule_matmul(
            sch, match.problem, config, lambda n, q, c: (*unflatten(q, lead), c), weight=weight, blocker=blocker
        )
