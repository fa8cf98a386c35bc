"""Design spaces of the blocked recipes: their schedule, with tile sizes that MetaSchedule samples and mutates.

TVM calls a design once, then replays its trace with other decisions, so nothing here reads a sampled value. What
cannot be sampled is a design of its own: which loop is shared among threads, and the largest register tile, so that
whatever is sampled stays in registers.

    for t in parallel(threads): for unit in batch * blocks * parts:     parts, tiles_p, tile_p = perfect tile of pixels
        for tile of the unit: for steps: tile[tile_o, tile_p, lanes]    blocks, tile_o = perfect tile of output blocks

Tiles divide the padded extents of the kernel that was compiled: its weights are packed and its inputs laid out already.
So does `chunk`, the length of a stage of the reduction, which is fixed with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.s_tir import Schedule

from ...core.layout import Layout
from ...core.machine import Machine
from ...core.recipe import Config, Match, Recipe
from ...schedules.blocked import kernel as blocked

#: Recipes whose schedule ends in `blocked.schedule_tiles` and takes its `blocker`. `conv2d_transpose` is left out: its
#: schedule puts the result into another order, so that a candidate cannot be compared with the unscheduled kernel value
#: by value.
BLOCKED = frozenset({"conv2d_nchwc", "conv2d_winograd", "conv2d_grouped", "dense", "batch_matmul"})
#: Output blocks of the largest register tile of a design.
TILE_BLOCKS = (1, 2, 3, 4, 6, 8)
#: Pixels of a register tile, at most.
TILE_PIXELS = 28
#: Reduction steps that may be unrolled.
UNROLLED = (1, 2, 4)

Design = Callable[[Schedule], Schedule]
"""Schedules a kernel, sampling what is to be tuned."""


@dataclass(frozen=True)
class Structure:
    """What no sample decides.

    Attributes:
        shares: threads among problems of the batch, output blocks and pixels.
        tile_o, tile_p: output blocks and pixels of a register tile, at most.
    """

    shares: tuple[int, int, int]
    tile_o: int
    tile_p: int


def designs_of(recipe: Recipe, match: Match, config: Config, machine: Machine) -> list[Design]:
    """The designs of a kernel that `recipe` made for `config`; none if the recipe is not a blocked one."""
    if recipe.name not in BLOCKED:
        return []

    def design(structure: Structure) -> Design:
        def schedule(sch: Schedule) -> Schedule:
            def blocker(sch: Schedule, problem: blocked.Problem, config: Config, result: str) -> blocked.Blocking:
                return _sampled(sch, problem, config, result, structure)

            split: Callable[..., None] = recipe.schedule
            split(sch, match, config, machine, blocker=blocker)
            return sch

        return schedule

    tiles = [(o, _most_pixels(o, machine)) for o in TILE_BLOCKS]
    structures = itertools.product(_shares(machine.threads), tiles)
    return [design(Structure(shares, o, p)) for shares, (o, p) in structures if p]


def default_of(recipe: Recipe, match: Match, config: Config, machine: Machine) -> Design:
    """The schedule of a configuration, with nothing to sample."""

    def schedule(sch: Schedule) -> Schedule:
        recipe.schedule(sch, match, config, machine)
        return sch

    return schedule


@dataclass(frozen=True)
class Workload:
    """A kernel to tune.

    Attributes:
        function: unscheduled.
        designs: the spaces of its recipe; empty: MetaSchedule's own rules.
        weight: how much a second of it counts: the number of its calls.
        default: schedules it as a compile without tuning does; measured first, so that nothing slower is taken for it.
    """

    function: tirx.PrimFunc
    designs: tuple[Design, ...] = ()
    weight: float = 1.0
    default: Design | None = None

    @classmethod
    def of(
        cls, recipe: Recipe, match: Match, machine: Machine, config: Config | None = None,
        offered: Sequence[Layout] | None = None,
    ) -> Workload:  # fmt: skip
        """The kernel of a recipe, in its default configuration and on plain inputs if not told otherwise."""
        config = config or recipe.default(match, machine)
        offered = offered or [Layout.plain(len(p.shape)) for p in match.group.params]
        function = recipe.compute(match, config, recipe.layouts(match, config, offered))
        default = default_of(recipe, match, config, machine)
        return cls(function, tuple(designs_of(recipe, match, config, machine)), default=default)


def _most_pixels(tile_o: int, machine: Machine) -> int:
    """Pixels of the largest tile of so many output blocks that stays in registers; 0 if there is none."""
    tiles = ({"tile_o": tile_o, "tile_p": p} for p in range(1, TILE_PIXELS + 1))
    return sum(blocked.registers_used(tile) <= machine.registers for tile in tiles)


def _shares(threads: int) -> Iterator[tuple[int, int, int]]:
    """All ways to share threads among three loops."""
    for a in range(1, threads + 1):
        for b in range(1, threads // a + 1):
            if threads % (a * b) == 0:
                yield a, b, threads // (a * b)


class NoDesign(Exception):
    """A structure that a kernel does not have."""


def _sampled(
    sch: Schedule, problem: blocked.Problem, config: Config, result: str, structure: Structure
) -> blocked.Blocking:
    """The loops of `result`, split by sampled tile sizes.

    Raises:
        NoDesign: the padded extents do not divide so, or one thread does it all.
    """
    units = blocked.Units.of(problem, config)
    shares = structure.shares
    if config["threads"] == 1:
        if shares[:2] != (1, 1):
            raise NoDesign("one thread does all of it: there is nothing to share")
        shares = (1, 1, 1)
    extents = (problem.batch, units.padded_blocks, units.padded_pixels)
    if any(extent % share for extent, share in zip(extents, shares, strict=True)):
        raise NoDesign(f"{extents} do not divide among {shares} threads")
    if units.padded_blocks // shares[1] % structure.tile_o:
        raise NoDesign(f"{units.padded_blocks} output blocks among {shares[1]} threads: no tiles of {structure.tile_o}")
    _, pad_o, pad_q, *_ = sch.get_loops(sch.get_sblock("tile"))[-8:]
    _, left_o = sch.split(pad_o, [shares[1], None])
    _, left_q = sch.split(pad_q, [shares[2], None])
    outer_o, tile_o = sch.sample_perfect_tile(left_o, 2, structure.tile_o)
    parts, tiles_p, tile_p = sch.sample_perfect_tile(left_q, 3, structure.tile_p)
    n, o, q, j = sch.get_loops(sch.get_sblock(result))[-4:]
    tn, n = sch.split(n, [shares[0], None])
    to, oo, oi = sch.split(o, [shares[1], outer_o, tile_o])
    tq, qo, qb, qi = sch.split(q, [shares[2], parts, tiles_p, tile_p])
    sch.reorder(tn, to, tq, n, oo, qo, oi, qb, qi, j)
    thread = sch.fuse(tn, to, tq)
    if config["threads"] > 1:
        sch.parallel(thread)
    steps = [u for u in UNROLLED if problem.inner % u == 0]
    unroll = sch.sample_categorical(steps, [1 / len(steps)] * len(steps)) if len(steps) > 1 else None
    return blocked.Blocking(sch.fuse(n, oo, qo), tile_p, structure.tile_o >= structure.tile_p, unroll)
