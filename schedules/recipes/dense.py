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

With few rows each weight is used once: such a kernel is as fast as it reads the weights, so they are streamed in the
order they are stored, by as many accumulators as hide the latency of a multiply-add.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group, Param
from tvm_ext.core.layout import Layout, PackedWeight
from tvm_ext.core.machine import Machine
from tvm_ext.core.numbers.precision import NARROW_FLOATS
from tvm_ext.core.recipe import Config, Layouts, Match, Miss
from tvm_ext.ops.scalars.functions import cast

from ..blocked import kernel as blocked
from ..blocked.prefetch import weight_name
from ..dots.instructions import Dot
from ..steps.epilogue import Epilogue, placeholders
from ..steps.storage import decoded, schedule_decoded, why_not_float32
from ..steps.widened import scaled, why_not_widened, widened


class MatmulRecipe(blocked.BlockedRecipe):
    """What matmuls share: knobs for one register tile of columns and rows, and streaming for few rows."""

    def default(self, match: Match, machine: Machine) -> Config:
        problem = match.problem
        if problem.pixels <= streamed_rows(machine):
            return dict(streamed(problem, machine))
        tile = blocked.default(problem, machine)
        return {**tile, "chunk": _longest_chunk(problem, tile["tile_o"], machine)}


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

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        schedule_decoded(sch, match.data, config["threads"], machine.lanes)
        lead = match.group.shape[:-1]
        weight = weight_name(match)
        schedule_matmul(sch, match.problem, config, lambda n, q, c: (*unflatten(q, lead), c), weight=weight)


def matmul_problem(batch: int, rows: int, k: int, n: int, machine: Machine) -> blocked.Problem:
    """A batch of (rows, k) @ (k, n): columns are outputs, rows are pixels.

    A result of few columns is computed in vectors of fewer lanes. Problems of a batch
    have weights of their own.
    """
    lanes = machine.lanes
    while lanes > 4 and n <= lanes // 2:
        lanes //= 2
    inner = next(i for i in range(lanes, 0, -1) if k % i == 0)
    return blocked.Problem(batch, n, rows, rows, k // inner, (1, 1), inner, lanes, batch)


def result(problem: blocked.Problem, acc: te.Tensor, value: Any) -> te.Tensor:
    """The stage "out" over (batch, rows, columns): `value(n, q, c, accumulated)`."""
    lanes = problem.lanes
    return te.compute(
        (problem.batch, problem.pixels, problem.outputs),
        lambda n, q, c: value(n, q, c, acc(n, tirx.floordiv(c, lanes), q, tirx.floormod(c, lanes))),
        name="out",
    )


def schedule_matmul(
    sch: Schedule, problem: blocked.Problem, config: Config, index: Any, dot: Dot | None = None,
    weight: str | None = None,
) -> Any:  # fmt: skip
    """Schedule a blocked matmul with the stage "out"; `index(n, q, c)` is where a result lies.

    Args:
        dot, weight: those of :func:`..blocked.kernel.schedule_tiles`.

    Returns:
        The loop over the units of one thread.
    """
    n, q, c = sch.get_loops(sch.get_sblock("out"))
    # The last vector of a row may be partly beyond it: it is computed whole, only real columns are stored.
    o, j = sch.split(c, [None, problem.lanes])
    sch.reorder(n, o, q, j)
    unit = blocked.schedule_tiles(sch, problem, config, dot=dot, weight=weight)
    sch.transform_layout(sch.get_sblock("out"), ("write", 0), index)
    return unit


def _longest_chunk(problem: blocked.Problem, tile_o: int, machine: Machine) -> int:
    """Reduction blocks between two additions to `acc`: the rows of a matmul are neighbours, so a panel of weights that
    comes from L2 arrives as fast as a tile of four rows or more uses it; only leaving L2 would cost."""
    panel = 4 * tile_o * problem.lanes * problem.inner
    return max(c for c in blocked.space(problem, machine)["chunk"] if c == 1 or c * panel <= machine.l2 // 4)


# ------------------------------------------------------------ few rows: streaming
def streamed_rows(machine: Machine) -> int:
    """Rows up to which one register tile holds them all beside enough accumulators, so each weight is read once."""
    return 4 if machine.registers < 32 else 6


def in_fewer_bytes(problem: blocked.Problem, weight: Param, machine: Machine) -> blocked.Problem:
    """The problem with a narrow weight as it is stored, where few rows read it and its bytes are what takes time."""
    instruction = weight.dtype == "bfloat16" or "f16c" in machine.features or machine.isa in ("neon", "sve")
    if weight.dtype not in NARROW_FLOATS or problem.pixels > streamed_rows(machine) or not instruction:
        return problem
    choices = [problem, replace(problem, word=2)]
    return min(choices, key=lambda p: blocked.cost(p, dict(streamed(p, machine)), machine))


@functools.lru_cache(maxsize=1024)
def streamed(problem: blocked.Problem, machine: Machine) -> Mapping[str, Any]:
    """The register tile that streams the weights of all columns in least time: all rows, one chunk."""
    knobs = blocked.space(problem, machine)
    rows = problem.pixels
    fixed = {"tile_p": rows if rows in knobs["tile_p"] else 1, "parts": 1, "chunk": problem.blocks}
    points: Iterator[Config] = (
        {"tile_o": o, **fixed, "threads": t}
        for o in knobs["tile_o"] for t in knobs["threads"]
    )  # fmt: skip
    legal: list[Config] = [p for p in points if blocked.registers_used(p) <= machine.registers]
    best: Config = min(legal, key=lambda p: (blocked.cost(problem, p, machine), -p["tile_o"]))
    return types.MappingProxyType(best)


# ------------------------------------------------------------ indices
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
