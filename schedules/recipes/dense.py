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

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss
from tvm_ext.ops.scalars.functions import cast

from ..blocked import kernel as blocked
from ..blocked.matmul import MatmulRecipe, in_fewer_bytes, matmul_kernel, matmul_problem, result_index, schedule_matmul
from ..blocked.prefetch import buffer_name
from ..steps.arguments import Arguments
from ..steps.indices import unflatten
from ..steps.storage import schedule_decoded, why_not_float32
from ..steps.widened import scaled, why_not_widened, widened


class Dense(MatmulRecipe[blocked.BlockedMatch]):
    """Packed matmul, register-blocked over columns and rows."""

    name = "dense"
    version = 2
    anchors = frozenset({"relax.matmul"})

    def match(self, group: Group, machine: Machine) -> blocked.BlockedMatch | Miss:
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
        free = not all(isinstance(group.extent(None, axis), int) for axis in range(len(group.shape) - 1))
        problem = replace(matmul_problem(1, rows, k, n, machine), weights_in=group.weights_in, free=free)
        return blocked.BlockedMatch(group, data, weight, in_fewer_bytes(problem, weight, machine))

    def layouts(self, match: blocked.BlockedMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        weight = blocked.packed_weight(match.problem, config, rank=2, transposed=True)
        own = weight if match.problem.word < 4 else widened(match.group, match.weight, weight)
        return Layouts.plain(match.group, {match.weight.var: own})

    def compute(self, match: blocked.BlockedMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, lead = Arguments(match.group, layouts), match.problem, match.group.shape[:-1]
        data, weight, scale = args.decoded(match.data), args.tensor(match.weight), scaled(args, match.weight)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            return data(*unflatten(q, lead), block * problem.inner + ri)

        def wide(n: Any, *index: Any) -> Any:
            return cast(weight(*index), "float32")

        acc = blocked.reduce_tiles(problem, blocked.Units.of(problem, config), load, wide)
        return matmul_kernel(args, problem, acc, result_index(match.group.shape), scale)

    def schedule(
        self, sch: Schedule, match: blocked.BlockedMatch, config: Config, machine: Machine,
        blocker: blocked.Blocker = blocked.configured,
    ) -> None:  # fmt: skip
        schedule_decoded(sch, match.data, config["threads"], machine.lanes)
        index, weight = result_index(match.group.shape), buffer_name(match, match.weight)
        schedule_matmul(sch, match.problem, config, index, weight=weight, blocker=blocker)
