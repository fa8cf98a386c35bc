"""Register-blocked reduction: the shared core of convolution and matmul.

Outputs are computed in tiles of `tile_o` output blocks (each one vector of `lanes`) by `tile_p` pixels (rows of a
matmul), held in vector registers over the reduction. The reduction is cut in chunks of `chunk` steps whose weights
stay in L1 while every tile of a unit of work passes over them; between chunks the tile is added to a buffer `acc`:

    for unit in parallel(batch * output blocks / tile_o * pixels / (tile_p * block_p)):
        for chunk:                                   # weights of one chunk: read from memory once, then from L1
            for tile of the unit:
                tile[tile_o, tile_p, lanes] = sum over the chunk (in registers)
                acc[tile] += tile
        out[unit] = epilogue(acc[unit])

With one chunk there is no buffer: each tile goes through the epilogue when it is computed.

Output blocks and pixels are rounded up to whole tiles: the weights are padded with zeros, pixels beyond the last are
computed as the last one again, and only real outputs are stored. Loops therefore divide, and no inner loop has a
condition. The blocking for registers and caches follows K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", ACM TOMS 34(3), 2008.

Of narrow numbers (:mod:`.dots`) a step of the reduction is a word of 32 bits: sizes and rates stay those of float32.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.estimate import Stream, bandwidth, level_of, seconds, thread_counts
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Match, Recipe

from .dots import Dot
from .prefetch import sprinkle
from .steps import parallel_units, unroll_and_vectorize

#: Pixels whose addresses do not advance by a constant need a pointer register each. Where a multiply-add takes no
#: broadcast operand, LLVM also loads all broadcasts of a wide tile early, and spills.
_POINTERS = 6
#: Cycles between dependent multiply-adds, with what out-of-order execution loses of it.
_LATENCY = 4.5
#: The exposed share of the time of weights that are not prefetched, of weights that units read again, and of inputs
#: that come out of another core's cache.
_COLD, _AGAIN, _FOREIGN = 0.5, 0.5, 0.5


@dataclass(frozen=True)
class Problem:
    """A blocked reduction.

    Attributes:
        batch: independent problems; images share their weights, the products of a transform have their own.
        outputs: output channels (columns of a matmul).
        pixels: output pixels (rows of a matmul).
        row: pixels whose inputs lie at a constant stride; a row of the image, or all rows of a matmul.
        blocks: blocks of the reduction, each of `inner` steps per tap.
        taps: kernel positions (KH, KW); (1, 1) for a matmul.
        inner: reduction steps that stand together in a block. A step is one number, or one word of narrow numbers.
        lanes: outputs in a block.
        weight_sets: problems of the batch with weights of their own; 1 if all share them.
        weights_in: the level of the memory hierarchy where a call finds the weights (:mod:`tvm_ext.core.residence`).
        prefetched: whether the kernel prefetches them.
        instruction: the rate of the machine at which products run: "fma", "dot_int8" or "dot_bf16".
    """

    batch: int
    outputs: int
    pixels: int
    row: int
    blocks: int
    taps: tuple[int, int]
    inner: int
    lanes: int
    weight_sets: int = 1
    weights_in: str = "memory"
    prefetched: bool = True
    instruction: str = "fma"

    @property
    def output_blocks(self) -> int:
        return -(-self.outputs // self.lanes)

    @property
    def steps(self) -> int:
        """Length of the reduction."""
        return self.blocks * self.taps[0] * self.taps[1] * self.inner

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.outputs * self.pixels * self.steps

    @property
    def weight_bytes(self) -> int:
        """Of all sets of weights."""
        return 4 * self.weight_sets * self.output_blocks * self.lanes * self.steps

    @property
    def input_bytes(self) -> int:
        """Of the pixels that one tap of all problems reads."""
        return 4 * self.batch * self.pixels * self.blocks * self.inner

    @property
    def products_bytes(self) -> int:
        """Of inputs and results of all problems of the batch, if the inputs are a transform's."""
        return 4 * self.batch * self.pixels * (self.steps + self.output_blocks * self.lanes)

    def scattered(self, tile_p: int) -> bool:
        """Whether a tile of so many pixels has no constant stride: it neither divides a row nor is whole rows."""
        return bool(self.row % tile_p and tile_p % self.row)


@dataclass(frozen=True)
class Units:
    """The padded iteration space: units of work, and tiles in each."""

    outer_o: int
    outer_p: int
    tile_o: int
    tile_p: int
    block_p: int
    chunk: int

    @staticmethod
    def of(problem: Problem, config: Config) -> Units:
        """Round up so that units divide evenly among the threads."""
        to, tp, parts, threads = (config[k] for k in ("tile_o", "tile_p", "parts", "threads"))
        bp = -(-problem.pixels // (tp * parts))
        outer_o = -(-problem.output_blocks // to)
        outer_p = -(-problem.pixels // (tp * bp))
        if (problem.batch * outer_o * outer_p) % threads:
            more_o = _round_up(outer_o, threads // math.gcd(threads, problem.batch * outer_p))
            more_p = _round_up(outer_p, threads // math.gcd(threads, problem.batch * outer_o))
            if more_o * outer_p <= outer_o * more_p:
                outer_o = more_o
            else:
                outer_p = more_p
        return Units(outer_o, outer_p, to, tp, bp, config["chunk"])

    @property
    def padded_blocks(self) -> int:
        return self.outer_o * self.tile_o

    @property
    def padded_pixels(self) -> int:
        return self.outer_p * self.block_p * self.tile_p


def by_pixels(problem: Problem, units: Units, threads: int) -> bool:
    """Whether threads share a problem's pixels, and not its outputs.

    Then each reads all weights and its own pixels, which it wrote itself if the kernel before was shared alike
    (:func:`.steps.parallel_image`); else each reads its own weights and all pixels, most of them out of another core's
    cache. The smaller is read by all; of two equal ones, the weights.
    """
    alone = problem.batch % threads > 0 and problem.weight_sets == 1
    return threads > 1 and alone and units.outer_p % threads == 0 and problem.weight_bytes <= problem.input_bytes


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def space(problem: Problem, machine: Machine) -> Mapping[str, Sequence[Any]]:
    """Knobs: the register tile, parts the pixels are cut in, reduction blocks whose weights stay in cache, threads."""
    return {**_tiling(problem, machine), "threads": [threads_for(problem, machine)]}


def _tiling(problem: Problem, machine: Machine) -> dict[str, Sequence[Any]]:
    """The knobs of :func:`space` but the threads."""
    chunks = [c for c in (1, 2, 4, 8, 16, 32, 64, problem.blocks) if problem.blocks % c == 0]
    return {
        "tile_o": [t for t in (1, 2, 3, 4, 6, 8) if t <= problem.output_blocks],
        "tile_p": [t for t in (1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 24, 28) if t <= problem.pixels],
        "parts": sorted({t for t in (1, 2, 4, 8, machine.threads) if t <= problem.pixels}),
        "chunk": sorted(set(chunks)),
    }


@functools.lru_cache(maxsize=1024)
def threads_for(problem: Problem, machine: Machine) -> int:
    """The number of threads whose best tile is estimated to take least, of :func:`.estimate.thread_counts`."""
    counts = thread_counts(problem.flops / 2 / problem.lanes / product_rate(problem, machine), machine)
    if len(counts) == 1:
        return counts[0]
    return min(counts, key=lambda t: (cost(problem, dict(default(problem, machine, t)), machine), t))


def product_rate(problem: Problem, machine: Machine) -> float:
    """Products of vectors a cycle."""
    if problem.instruction == "fma":
        return machine.fma_at(problem.lanes)
    return float(getattr(machine.rates, problem.instruction)) or machine.rates.fma


@functools.lru_cache(maxsize=1024)
def default(problem: Problem, machine: Machine, threads: int | None = None) -> Mapping[str, Any]:
    """The point of least cost; groups that differ only in their epilogue share it.

    Args:
        threads: those the kernel will use; None takes the choice of :func:`space`.
    """
    knobs = dict(_tiling(problem, machine))
    knobs["threads"] = [threads_for(problem, machine) if threads is None else threads]
    tiles = itertools.product(knobs.pop("tile_o"), knobs.pop("tile_p"))
    legal = [t for t in ({"tile_o": o, "tile_p": p} for o, p in tiles) if tile_fits(problem, t, machine)]
    rest = [dict(zip(knobs, values, strict=True)) for values in itertools.product(*knobs.values())]
    points: Iterator[Config] = ({**tile, **others} for tile in legal for others in rest)
    best: Config = min(points, key=lambda config: cost(problem, config, machine))
    return types.MappingProxyType(best)


def tile_fits(problem: Problem, config: Mapping[str, Any], machine: Machine) -> bool:
    """Whether a register tile, its operands and its pixels' addresses fit into registers."""
    scattered = problem.scattered(config["tile_p"])
    wide = config["tile_p"] > _POINTERS and (scattered or not machine.operand_broadcast)
    return registers_used(config) <= machine.registers and not wide


def registers_used(config: Mapping[str, Any]) -> int:
    """Vector registers the inner loop holds: the tile, the smaller side of its operands, one of the other."""
    to, tp = config["tile_o"], config["tile_p"]
    return int(to * tp + min(to, tp) + 1)


def cost(problem: Problem, config: Config, machine: Machine, units: int = 1, apart: bool = False) -> float:
    """Estimated seconds: multiply-adds, loads, latency, cache traffic, waste by rounding up, idle threads.

    Args:
        units: times the problem is solved, with the same weights.
        apart: each unit is one thread's; else all threads share each.
    """
    if not tile_fits(problem, config, machine):
        return math.inf
    to, threads = config["tile_o"], config["threads"]
    work = Units.of(problem, {**config, "threads": 1} if apart else config)
    count = problem.batch * work.outer_o * work.outer_p * units
    cycles = count * work.block_p * _tile_cycles(problem, config, work, machine) / threads
    again = max(0, 4 * count * to * problem.lanes * problem.steps - problem.weight_bytes)
    readers = threads if by_pixels(problem, work, threads) else 1
    streams = [
        Stream(problem.weight_bytes * readers / threads, problem.weights_in, 0.0 if problem.prefetched else _COLD),
        Stream(again / threads, level_of(problem.weight_bytes, machine), _AGAIN),
        Stream(0 if apart else _foreign_bytes(problem, work, threads), "foreign", _FOREIGN),
    ]
    return float(seconds(cycles, streams, machine, threads))


def _foreign_bytes(problem: Problem, units: Units, threads: int) -> float:
    """Bytes of input that a thread reads out of other cores' caches."""
    if problem.batch % threads == 0 or problem.weight_sets > 1 or by_pixels(problem, units, threads):
        return 0.0
    return problem.input_bytes * (1 - 1 / threads)


def _tile_cycles(problem: Problem, config: Config, units: Units, machine: Machine) -> float:
    """Cycles of one register tile over the whole reduction."""
    to, tp, chunk = config["tile_o"], config["tile_p"], config["chunk"]
    chunks = problem.blocks // chunk
    step = max(to * tp / product_rate(problem, machine), (to + tp) / 2, _LATENCY) + 0.08 * (to + tp)
    step *= 1 + 0.03 * tp if problem.scattered(tp) else 1.0
    chunk_bytes = 4 * to * problem.lanes * chunk * problem.taps[0] * problem.taps[1] * problem.inner
    weight_cycles = 4 * to * problem.lanes / bandwidth(level_of(chunk_bytes, machine), machine)
    cycles = problem.steps * max(step + weight_cycles / 4, weight_cycles) + 10
    if chunks > 1:
        fits = 4 * units.block_p * tp * to * problem.lanes <= machine.l2 // 2
        cycles += chunks * ((1.5 if fits else 3.0) * to * tp + 8)
    return float(cycles)


LoadData = Callable[..., Any]
"""(batch, pixel, reduction block, tap y, tap x, step in the block [, element of the word]) -> the input value."""

LoadWeight = Callable[..., Any]
"""(batch, block of outputs, reduction block, tap y, tap x, step in the block, output in the block [, element of the
word]) -> the weight."""


def shared(weight: te.Tensor) -> LoadWeight:
    """A packed weight that all batches read."""
    return lambda n, *index: weight(*index)


def reduce_tiles(
    problem: Problem, units: Units, load: LoadData, weight: LoadWeight, batch: int | None = None, dot: Dot | None = None
) -> te.Tensor:
    """TE tensors "tile" and (with several chunks) "acc": (batch, padded blocks, padded pixels, lanes).

    Args:
        batch: problems of the tensors, if they are more than those scheduled together.
        dot: what multiplies words of narrow numbers.
    """
    taps_y, taps_x = problem.taps
    extents = [("rc", units.chunk), ("ry", taps_y), ("rx", taps_x), ("ri", problem.inner)]
    axes = [te.reduce_axis((0, e), name=name) for name, e in [*extents, *([("rk", dot.group)] if dot else [])]]
    rc, ry, rx, ri, *rk = axes
    product = dot.product if dot else operator.mul
    chunks, last = problem.blocks // units.chunk, problem.pixels - 1
    to, lanes = units.tile_o, problem.lanes
    shape = (batch or problem.batch, units.padded_blocks, units.padded_pixels, lanes)

    def value(g: Any, n: Any, o: Any, q: Any, j: Any) -> Any:
        pixel = q if units.padded_pixels == problem.pixels else tirx.min(q, last)
        block = g * units.chunk + rc
        w = weight(n, tirx.floordiv(o, to), block, ry, rx, ri, tirx.floormod(o, to) * lanes + j, *rk)
        return te.sum(product(load(n, pixel, block, ry, rx, ri, *rk), w), axis=axes)

    if chunks == 1:
        return te.compute(shape, lambda n, o, q, j: value(0, n, o, q, j), name="tile")
    tile = te.compute((chunks, *shape), value, name="tile")
    rg = te.reduce_axis((0, chunks), name="rg")
    return te.compute(shape, lambda n, o, q, j: te.sum(tile(rg, n, o, q, j), axis=rg), name="acc")


@dataclass(frozen=True)
class Blocking:
    """How the loops of a blocked reduction are split; sizes are numbers, or what a tuner samples.

    Attributes:
        unit: the loop over the units of one thread.
        tile_p: pixels of a register tile.
        outputs_outer: whether a tile is written output block by output block, and not pixel by pixel.
        unroll: reduction steps that are unrolled; None leaves them to LLVM.
    """

    unit: Any
    tile_p: Any
    outputs_outer: bool
    unroll: Any = None


Blocker = Callable[[Schedule, Problem, Config, str], Blocking]
"""(schedule, problem, configuration, result block) -> how its loops are split."""


def configured(sch: Schedule, problem: Problem, config: Config, result: str) -> Blocking:
    """The blocking that a configuration states."""
    units = Units.of(problem, config)
    n, o, q, j = sch.get_loops(sch.get_sblock(result))[-4:]
    oo, oi = sch.split(o, [units.outer_o, units.tile_o])
    qo, qi = sch.split(q, [units.outer_p, units.block_p * units.tile_p])
    outer = [n, qo, oo] if by_pixels(problem, units, config["threads"]) else [n, oo, qo]
    sch.reorder(*outer, oi, qi, j)
    # Hold the operands of the smaller side in registers, so that tile, operands and one broadcast just fit.
    outputs_outer = units.tile_o >= units.tile_p
    return Blocking(parallel_units(sch, outer, config["threads"]), units.tile_p, outputs_outer)


_BLOCKER: ContextVar[Blocker] = ContextVar("blocker", default=configured)


@contextmanager
def blocked_by(blocker: Blocker) -> Iterator[None]:
    """While this is open, recipes that end in :func:`schedule_tiles` have their loops split by `blocker`."""
    token = _BLOCKER.set(blocker)
    try:
        yield
    finally:
        _BLOCKER.reset(token)


def schedule_tiles(
    sch: Schedule, problem: Problem, config: Config, result: str = "out", dot: Dot | None = None,
    weight: str | None = None,
) -> Any:  # fmt: skip
    """Schedule "tile" and "acc" under the block `result`, whose last loops are (batch, blocks, pixels, lanes).

    Args:
        dot: that of :func:`reduce_tiles`. The loops that it takes the place of are left to :func:`.dots.multiply`.
        weight: name of the buffer of packed weights, to be prefetched a chunk ahead; None prefetches nothing.

    Returns:
        The loop over the units of one thread.
    """
    blocking = _BLOCKER.get()(sch, problem, config, result)
    tile, unit, axes = sch.get_sblock("tile"), blocking.unit, 8 if dot else 7
    sch.vectorize(sch.get_loops(sch.get_sblock(result))[-1])
    sch.set_scope(tile, 0, "local")
    if problem.blocks == config["chunk"]:
        o, q, j = sch.get_loops(sch.get_sblock(result))[-3:]
        qo, qi = sch.split(q, [None, blocking.tile_p])
        sch.reorder(qo, o, qi, j)
        sch.compute_at(tile, qo, preserve_unit_loops=True)
    else:
        acc = sch.get_sblock("acc")
        sch.compute_at(acc, unit, preserve_unit_loops=True)
        o, q, j, rg = sch.get_loops(acc)[-4:]
        qo, qi = sch.split(q, [None, blocking.tile_p])
        sch.reorder(rg, qo, o, qi, j)
        unroll_and_vectorize(sch, [o, qi], j)
        sch.compute_at(tile, qo, preserve_unit_loops=True)
        unroll_and_vectorize(sch, *_last_three(sch, sch.decompose_reduction(acc, rg)))
    o, qi, j, *reduction = sch.get_loops(tile)[-axes:]
    inner = [o, qi] if blocking.outputs_outer else [qi, o]
    elements = [reduction.pop()] if dot else []
    sch.reorder(*reduction, *inner, *elements, j)
    if dot is not None and dot.feature:
        sch.reorder(j, *elements)
        for loop in inner:
            sch.unroll(loop)
    else:
        unroll_and_vectorize(sch, [*inner, *elements], j)
    unroll_and_vectorize(sch, *_last_three(sch, sch.decompose_reduction(tile, reduction[0])))
    if blocking.unroll is not None:
        sch.unroll(sch.split(reduction[-1], [None, blocking.unroll])[1])
    if weight is not None and _BLOCKER.get() is configured:  # a tuner that samples sizes has no chunk yet
        panel = int(sch.get(o).extent) * problem.lanes * (dot.group if dot else 1)  # elements of a step
        steps = config["chunk"] * math.prod(problem.taps) * problem.inner
        sprinkle(sch, qo, reduction[2], weight, steps * panel, problem.inner * int(sch.get(o).extent))
    return unit


def _last_three(sch: Schedule, block: Any) -> tuple[list[Any], Any]:
    *outer, last = sch.get_loops(block)[-3:]
    return outer, last


class BlockedRecipe(Recipe):
    """A recipe whose match states one blocked reduction, as the fact `problem`."""

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return space(match.problem, machine)

    def default(self, match: Match, machine: Machine) -> Config:
        return dict(default(match.problem, machine))

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return cost(match.problem, config, machine)
