"""Register-blocked reduction: the shared core of convolution and matmul.

Outputs are computed in tiles of `tile_o` output blocks (each one vector of `lanes`) by `tile_p` pixels (rows of a
matmul), held in vector registers over the reduction. The reduction is cut in chunks of `chunk` steps whose weights
stay in L1 while every tile of a unit of work passes over them; between chunks the tile is added to a buffer `acc`:

    for unit in parallel(batch * output blocks / tile_o * pixels / (tile_p * tiles_p)):
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

Of narrow numbers (:mod:`..dots.instructions`) a step of the reduction is a word of 32 bits: sizes and rates stay those
of float32.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Machine, Match, Param, Recipe, Sharing

from ..dots.instructions import Dot
from ..steps.loops import parallel_units, unroll_and_vectorize
from .cost import copies_own as copies_own
from .cost import cost as cost
from .cost import counts_for as counts_for
from .cost import default as default
from .cost import least_seconds as least_seconds
from .cost import leaves_out_padding
from .cost import registers_used as registers_used
from .cost import space as space
from .cost import threads_for as threads_for
from .cost import tile_fits as tile_fits
from .cost import tile_space as tile_space
from .prefetch import INPUTS, LINE_BYTES, sprinkle
from .problem import NUMBERED, PIXELS, ROWS_INSIDE
from .problem import Problem as Problem
from .problem import TapRows as TapRows
from .problem import Units as Units
from .problem import packed_weight as packed_weight
from .problem import shares_pixels as shares_pixels

#: Steps of the reduction that are unrolled; of a loop that short the branches cost. (7x7 layers with cold weights, on
#: a Xeon: 0.81 to 0.95 of the time; 16 steps, for which LLVM takes much longer, gain no more.)
_UNROLL = 4

LoadData = Callable[..., Any]
"""(batch, pixel, reduction block, tap y, tap x, step in the block [, element of the word]) -> the input value."""

LoadWeight = Callable[..., Any]
"""(batch, block of outputs, reduction block, tap y, tap x, step in the block, output in the block [, element of the
word]) -> the weight."""


def shared(weight: te.Tensor) -> LoadWeight:
    """A packed weight that all batches read."""
    return lambda n, *index: weight(*index)


def reduce_tiles(
    problem: Problem, units: Units, load: LoadData, weight: LoadWeight, batch: int | None = None,
    dot: Dot | None = None, inner: Any = None,
) -> te.Tensor:  # fmt: skip
    """TE tensors "tile" and (with several chunks) "acc": (batch, padded blocks, padded pixels, lanes).

    Args:
        batch: problems of the tensors, if they are more than those scheduled together.
        dot: what multiplies words of narrow numbers.
        inner: steps of a block that are in use, where fewer may be.
    """
    taps_y, taps_x = problem.taps
    extents = [("rc", units.chunk), ("ry", taps_y), ("rx", taps_x)]
    extents += [("ri", problem.inner if inner is None else inner), *([("rk", dot.group)] if dot else [])]
    axes = [te.reduce_axis((0, e), name=name) for name, e in extents]
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
    qo, qi = sch.split(q, [units.outer_p, units.tiles_p * units.tile_p])
    outer = [n, qo, oo] if shares_pixels(problem, units, config["threads"]) else [n, oo, qo]
    sch.reorder(*outer, oi, qi, j)
    # Hold the operands of the smaller side in registers, so that tile, operands and one broadcast just fit.
    outputs_outer = units.tile_o >= units.tile_p
    unit = parallel_units(sch, outer, config["threads"])
    steps = math.gcd(problem.inner, _UNROLL)
    return Blocking(unit, units.tile_p, outputs_outer, steps if steps > 1 else None)


def schedule_tiles(
    sch: Schedule, problem: Problem, config: Config, result: str = "out", dot: Dot | None = None,
    weight: str | None = None, blocker: Blocker = configured, image: str | None = None, data: str | None = None,
    numbered: Sequence[Any] | None = None,
) -> Any:  # fmt: skip
    """Schedule "tile" and "acc" under the block `result`, whose last loops are (batch, blocks, pixels, lanes).

    Args:
        dot: that of :func:`reduce_tiles`. The loops that it takes the place of are left to
            :func:`..dots.instructions.multiply`.
        weight: name of the buffer of packed weights, to be prefetched a chunk ahead; None prefetches nothing.
        blocker: splits the loops; a tuner's own samples sizes, and prefetches nothing.
        image: name of the buffer of the padded image, if rows of taps that a tile has in the padding are left out.
        data: name of the buffer of inputs (batch, blocks, pixels, inner), of which L2 holds all and the reduction
            reads each once a tile: the next block's are prefetched into L1; None prefetches none.
        numbered: how pixels are numbered (:data:`.problem.NUMBERED`), where a call has a numbering of its own.

    Returns:
        The loop over the units of one thread.
    """
    blocking = blocker(sch, problem, config, result)
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
    _annotate_numbers(sch, qo, numbered, tile, problem, config)
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
    steps = _steps(sch, problem, reduction[-1], blocking.unroll, image if blocker is configured else None)
    if weight is not None and blocker is configured:  # a tuner that samples sizes has no chunk yet
        _prefetch(sch, problem, config, (qo, reduction[2], steps), (weight, data), dot.group if dot else 1)
    return unit


def annotate_pixels(sch: Schedule, block: Any, problem: Problem, config: Config, place: int = 2) -> None:
    """State that variable `place` of a block numbers pixels through a call, where a configuration has it so."""
    if config.get("numbered"):
        sch.annotate(block, PIXELS, [place, problem.pixels, problem.row])


def _annotate_numbers(
    sch: Schedule, tiles: Any, numbered: Sequence[Any] | None, tile: Any, problem: Problem, config: Config
) -> None:  # fmt: skip
    """State how the pixels of tiles are numbered: as `numbered` of :func:`schedule_tiles` says, and a configuration."""
    if numbered is not None:
        sch.annotate(tiles, NUMBERED, list(numbered))
    annotate_pixels(sch, tile, problem, config, 2 + (problem.blocks > config["chunk"]))


def _steps(sch: Schedule, problem: Problem, loop: Any, unroll: Any, image: str | None) -> Any:
    """The steps of one tap: some are unrolled; those that read rows of padding are left out of an image. Returns the
    loop around the unrolled steps."""
    if unroll is not None:
        loop, unrolled = sch.split(loop, [None, unroll])
        sch.unroll(unrolled)
    if image is not None and problem.tap_rows is not None:
        sch.annotate(loop, ROWS_INSIDE, [image, problem.tap_rows.first, problem.tap_rows.end])
    return loop


def _prefetch(
    sch: Schedule,
    problem: Problem,
    config: Config,
    loops: tuple[Any, Any, Any],
    names: tuple[str, str | None],
    group: int,
) -> None:
    """Prefetch the next chunk's weights, unless one tile is all of a chunk and leaves no load slot free, here or, with
    sizes known at run time, in a call; and inputs.

    Args:
        loops: over the tiles of a chunk, over the taps of a block of the reduction, and over the steps of a tap.
        names: of the buffers of weights, and of inputs as `data` of :func:`schedule_tiles`.
        group: elements of a word of the weights, 4 bytes each.
    """
    (tiles, body, steps), (weight, data) = loops, names
    o, p, count = config["tile_o"], config["tile_p"], int(sch.get(tiles).extent)
    words = o * problem.lanes
    if data is not None and problem.blocks > 1:
        lines = -(-p * problem.inner * 4 // LINE_BYTES)
        sch.annotate(body, INPUTS, [data, problem.pixels * problem.inner, lines])
    alone = 2 * o + p <= o * p
    if count > 1 or alone:
        ahead = config["chunk"] * math.prod(problem.taps) * problem.inner * words * group
        lines = -(-problem.inner * words * problem.word // LINE_BYTES)
        spread = int(sch.get(steps).extent) * count
        if math.prod(problem.taps) == 1 and lines % spread == 0 and not problem.free:
            body, lines = steps, lines // spread * count
        passing = problem.weights_in == "memory"
        sprinkle(sch, (tiles, count), body, weight, ahead, lines, passing, problem.free, alone)


def _last_three(sch: Schedule, block: Any) -> tuple[list[Any], Any]:
    *outer, last = sch.get_loops(block)[-3:]
    return outer, last


@dataclass(frozen=True)
class BlockedMatch(Match):
    """A group whose anchor is one blocked reduction.

    Attributes:
        data: the left operand of its products: an image, or rows.
        weight: the right operand.
        problem: the reduction.
    """

    data: Param
    weight: Param
    problem: Problem


B = TypeVar("B", bound=BlockedMatch)


def ends_with_rows(problem: Problem, row: int, config: Config) -> bool:
    """Whether tiles, and what a thread has of the pixels, begin where rows do.

    Args:
        row: pixels of a row whose length is known at run time.
    """
    share = problem.pixels // config["parts"]
    return row % config["tile_p"] == 0 and (share % row == 0 or row % share == 0)


def with_numbers(problem: Problem, config: Config) -> tuple[Problem, Config]:
    """A problem as a configuration numbers its pixels, and what that costs as much as: without partial sums, threads
    share the tiles of all pixels."""
    if not config.get("numbered"):
        return problem, config
    parts = config["threads"] if config["chunk"] == problem.blocks else config["parts"]
    return replace(problem, numbered=True, free=True), {**config, "parts": parts}


def padded_image(problem: Problem, config: Config, machine: Machine) -> str | None:
    """The `image` of :func:`schedule_tiles`: the stage of :func:`.convolution.padded`, if its rows are left out."""
    return "pad" if leaves_out_padding(problem, config, machine) else None


class BlockedRecipe(Recipe[B]):
    """A recipe of one blocked reduction."""

    def space(self, match: B, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return space(match.problem, machine)

    def default(self, match: B, machine: Machine) -> Config:
        return dict(default(match.problem, machine))

    def cuts(self, match: B, config: Config) -> bool:
        """Of rows of run-time length, tiles and what a thread has of the image begin where rows do. Where the number of
        rows is known at run time, threads share single rows, or none: of larger parts the last is what is left. Pixels
        that are numbered through a call end where those of an image do."""
        if config.get("numbered"):
            return bool(config["parts"] == 1)
        row, pixels, rank = match.problem.row, match.problem.pixels, len(match.group.shape)
        rows, columns = (match.group.extent(None, axis) for axis in (rank - 2, rank - 1))
        if row < pixels and config["parts"] not in (1, pixels // row) and not isinstance(rows, int):
            return False
        if row == pixels or isinstance(columns, int):
            return True
        return ends_with_rows(match.problem, row, config)

    def cost(self, match: B, config: Config, machine: Machine) -> float:
        return cost(*with_numbers(match.problem, config), machine)

    def cost_cut(self, match: B, config: Config, machine: Machine) -> float:
        """Rows of pixels are computed in whole tiles, unless their pixels are numbered."""
        p = match.problem
        if config.get("numbered"):
            return cost(*with_numbers(p, config), machine)
        row = p.row if p.row == p.pixels else -(-p.row // config["tile_p"]) * config["tile_p"]
        return cost(replace(p, pixels=p.pixels // p.row * row, row=row, free=True), config, machine)

    def sharing(self, match: B, config: Config, machine: Machine) -> Sharing:
        return Units.of(match.problem, config).sharing(match.problem, config["threads"])
