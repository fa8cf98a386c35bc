"""What recipes of matmuls share: the problem, its loops, and streaming the weights where rows are few.

With few rows each weight is used once: such a kernel is as fast as it reads the weights, so they are streamed in the
order they are stored, by as many accumulators as hide the latency of a multiply-add.
"""

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.numbers.precision import NARROW_FLOATS
from tvm_ext.core.recipe import Config, Machine, Param

from ..dots.instructions import Dot
from ..steps.arguments import Arguments
from ..steps.indices import unflatten
from . import kernel as blocked


class MatmulRecipe(blocked.BlockedRecipe[blocked.B]):
    """What matmuls share: knobs for one register tile of columns and rows, and streaming for few rows."""

    def default(self, match: blocked.B, machine: Machine) -> Config:
        problem = match.problem
        if problem.pixels <= streamed_rows(machine):
            return dict(streamed(problem, machine))
        tile = blocked.default(problem, machine)
        return {**tile, "chunk": _longest_chunk(problem, tile["tile_o"], machine)}

    def cuts(self, match: blocked.B, config: Config) -> bool:
        """Tiles, and what a thread has of the rows, begin where rows of the innermost dimension of run-time extent do;
        and no partial sums of all rows are kept."""
        group, problem = match.group, match.problem
        axes = [axis for axis in range(len(group.shape) - 1) if not isinstance(group.extent(None, axis), int)]
        if not axes or problem.pixels == group.shape[-2]:  # the rows are one dimension
            return True
        if config["chunk"] < problem.blocks:  # partial sums of all rows of the bounds leave L2
            return False
        return blocked.ends_with_rows(problem, math.prod(group.shape[axes[-1] : -1]), config)


def matmul_problem(batch: int, rows: int, k: int, n: int, machine: Machine) -> blocked.Problem:
    """A batch of (rows, k) @ (k, n): columns are outputs, rows are pixels.

    A result of few columns is computed in vectors of fewer lanes. Problems of a batch have weights of their own.
    """
    lanes = machine.lanes
    while lanes > 4 and n <= lanes // 2:
        lanes //= 2
    inner = next(i for i in range(lanes, 0, -1) if k % i == 0)
    return blocked.Problem(batch, n, rows, rows, k // inner, (1, 1), inner, lanes, batch)


ResultIndex = Callable[[Any, Any, Any], tuple[Any, ...]]
"""(problem of the batch, row, column) -> the logical index in the result."""


def result_index(shape: Sequence[int], batched: bool = False) -> ResultIndex:
    """Where a result of `shape` has its rows: leading dimensions are rows, or, of a batch, problems."""
    if batched:
        return lambda n, q, c: (*unflatten(n, shape[:-2]), q, c)
    return lambda n, q, c: (*unflatten(q, shape[:-1]), c)


def matmul_kernel(
    args: Arguments, problem: blocked.Problem, acc: te.Tensor, index: ResultIndex,
    anchor: Callable[[Any, Any], Any] = lambda total, c: total,
) -> tirx.PrimFunc:  # fmt: skip
    """The kernel whose stage "out" runs over (batch, rows, columns) of the sums `acc`.

    Args:
        index: where a result lies.
        anchor: of a sum and its column, the anchor's value.
    """

    def value(n: Any, q: Any, c: Any) -> Any:
        total = acc(n, tirx.floordiv(c, problem.lanes), q, tirx.floormod(c, problem.lanes))
        return args.epilogue(index(n, q, c), anchor(total, c))

    return args.function(te.compute((problem.batch, problem.pixels, problem.outputs), value, name="out"))


def schedule_matmul(
    sch: Schedule, problem: blocked.Problem, config: Config, index: ResultIndex, dot: Dot | None = None,
    weight: str | None = None, blocker: blocked.Blocker = blocked.configured,
) -> Any:  # fmt: skip
    """Schedule a blocked matmul with the stage "out" of :func:`matmul_kernel`.

    Args:
        index: where a result lies.
        dot, weight, blocker: those of :func:`..blocked.kernel.schedule_tiles`.

    Returns:
        The loop over the units of one thread.
    """
    n, q, c = sch.get_loops(sch.get_sblock("out"))
    # The last vector of a row may be partly beyond it: it is computed whole, only real columns are stored.
    o, j = sch.split(c, [None, problem.lanes])
    sch.reorder(n, o, q, j)
    unit = blocked.schedule_tiles(sch, problem, config, dot=dot, weight=weight, blocker=blocker)
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
    points: list[Config] = [{"tile_o": o, **fixed, "threads": t} for o in knobs["tile_o"] for t in knobs["threads"]]
    legal = [p for p in points if blocked.registers_used(p, problem.adds) <= machine.registers]
    best: Config = min(legal, key=lambda p: (blocked.cost(problem, p, machine), -p["tile_o"]))
    return types.MappingProxyType(best)
