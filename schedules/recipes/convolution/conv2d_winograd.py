"""Square convolution of stride 1 or 2 by Winograd's F(m x m, r x r) on NCHW{lanes}c, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, ...      x: NCHW{l}c, or any of up to 4 channels; w: G g G^T

Three stages in one kernel, for each unit of tile rows:

    V[a b, c, q, l] = B^T d B      input tiles; padding is read as zero
    M[a b, o, q, l] = U V          alpha^2 blocked matmuls over the input channels
    out             = A^T M A      output tiles, then the epilogue

With `rows` > 0 a unit is so many tile rows of an image, one thread does all of it, and V and M stay in its L2; each
unit streams all weights. With `rows` = 0 there is one unit, and each stage is shared by all threads: weights are
streamed once, for small images of many channels.
"""

import functools
import heapq
import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import Stream, launch_seconds, level_of, seconds
from tvm_ext.core.cost.residence import level_of_expanded
from tvm_ext.core.cost.sharing import Sharing
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Miss, Recipe

from ...blocked import kernel as blocked
from ...blocked.convolution import image_layouts
from ...blocked.prefetch import buffer_name
from ...blocked.winograd import TILES, Transform, WinogradWeight
from ...blocked.winograd_stages import (
    Tiling,
    WinogradMatch,
    WinogradShape,
    input_tiles,
    output_tiles,
    schedule_input,
    schedule_output,
    schedule_planes,
)
from ...steps.arguments import Arguments
from ...steps.loops import parallel_loops, parallel_rows, unroll_and_vectorize
from ...steps.widened import scaled
from .conv2d_nchwc import Conv2dNCHWc

#: Vector operations of the transforms a core does in a cycle, loads and stores included.
_OPERATIONS = 0.8
#: How often V and M, which are written once and read once, cost what a read costs: transforms hide part of it in L2;
#: beyond it lines that are written leave the cache, too, and in a model other kernels took their place there since (64
#: channels at 56x56 by all threads on a Zen 4: 0.32 ms alone, 0.36 to 0.39 in ResNet-18; by units in L2 0.31 in both).
_MOVED, _MOVED_OUT = 0.7, 2.5
#: Register tiles of a tile size and height that are compared at other sizes.
_TILES = 6
#: Input channels up to which tile columns are the vectors of the input transform.
_FEW = 4


class Conv2dWinograd(Recipe[WinogradMatch]):
    """Winograd convolution; the tile size and the tile rows of a unit are knobs."""

    name = "conv2d_winograd"
    version = 2
    anchors = frozenset({"relax.nn.conv2d"})
    any_size = True
    exact = False

    def match(self, group: Group, machine: Machine) -> WinogradMatch | Miss:
        direct = Conv2dNCHWc().match(group, machine)
        if isinstance(direct, Miss):
            return direct
        window = direct.window
        (kh, kw), (sy, sx) = window.kernel, window.strides
        if kh != kw or sy != sx or sy > 2 or window.dilation != (1, 1):
            return Miss("Winograd takes square kernels of stride 1 or 2 and dilation 1")
        if -(-kh // sy) not in TILES:
            return Miss(f"Winograd takes 2 to 5 taps a phase: a {kh}x{kw} kernel of stride {sy} has {-(-kh // sy)}")
        if direct.problem.inner != machine.lanes and window.channels > _FEW:
            return Miss(f"{window.channels} input channels: more than {_FEW}, and no multiple of {machine.lanes} lanes")
        sizes = TILES[-(-kh // sy)]
        elements = {m: (sy * Transform.of(m, -(-kh // sy)).alpha) ** 2 for m in sizes}
        levels = {m: level_of_expanded(group, count / kh**2, machine) for m, count in elements.items()}
        return WinogradMatch(**vars(direct), sizes=sizes, levels=levels)

    def border(self, match: WinogradMatch) -> Mapping[int, float]:
        return {} if match.behind is None else {match.group.params.index(match.data): match.behind}

    def space(self, match: WinogradMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        spaces = [
            blocked.space(Tiling.of(match, m, height).problem(match), machine)
            for m in match.sizes
            for height in _heights(match, m)
        ]
        merged = {k: sorted({v for s in spaces for v in s[k]}) for k in spaces[0]}
        heights = sorted({h for m in match.sizes for h in _heights(match, m)})
        return {"m": match.sizes, "rows": heights, **merged, "threads": blocked.counts_for(match.problem, machine)}

    def default(self, match: WinogradMatch, machine: Machine) -> Config:
        best: Config = {}
        cost = math.inf
        for m, threads in itertools.product(match.sizes, reversed(blocked.counts_for(match.problem, machine))):
            if blocked.least_seconds(Tiling.of(match, m, 0).problem(match), machine, threads) >= cost:
                continue
            for config in self._by_height(match, machine, m, threads):
                own = self.cost(match, config, machine)
                if not best or own < cost:
                    best, cost = config, own
        return best

    def cuts(self, match: WinogradMatch, config: Config) -> bool:
        """Tiles are numbered through what a call has. Where their columns are vectors, register tiles begin where rows
        of tiles do, if those have run-time extents, else where images do; no partial sums of all tiles are kept."""
        tiling = Tiling.of(match, config["m"], config["rows"])
        row = WinogradShape.of(match).uncut(tiling, config["rows"])
        return row == 1 or (row % config["tile_p"] == 0 and config["chunk"] == tiling.problem(match).blocks)

    def points_of_any_size(self, match: WinogradMatch, machine: Machine) -> Iterator[Config]:
        return (config for config, _ in self.costs_of_any_size(match, machine))

    def costs_of_any_size(self, match: WinogradMatch, machine: Machine) -> Iterator[tuple[Config, float]]:
        return ((dict(config), cost) for config, cost in _costs_of_any_size(WinogradShape.of(match), machine))

    def default_of_any_size(self, match: WinogradMatch, machine: Machine) -> Config:
        """The point of least cost of those that cut; :meth:`default`, which looks at all others too, is asked first
        where fewer threads may be best."""
        points = () if len(blocked.counts_for(match.problem, machine)) > 1 else self.costs_of_any_size(match, machine)
        best = min(points, key=lambda point: point[1], default=None)
        return super().default_of_any_size(match, machine) if best is None else best[0]

    def candidates(self, match: WinogradMatch, machine: Machine) -> Iterator[Config]:
        """For each tile size and height, the configuration with the best register tile, on the default's threads."""
        threads = self.default(match, machine)["threads"]
        for m in match.sizes:
            yield from self._by_height(match, machine, m, threads)

    def _by_height(self, match: WinogradMatch, machine: Machine, m: int, threads: int) -> Iterator[Config]:
        """For each height, the configuration with the best register tile."""
        for height in _heights(match, m):
            tiling = Tiling.of(match, m, height)
            # A unit of some rows is one thread's, whatever the machine has: one search serves all numbers of threads.
            alone = machine.with_threads(1) if height else machine
            config = blocked.default(tiling.problem(match), alone, 1 if height else threads, tiling.units)
            yield {"m": m, "rows": height, **config, "threads": threads}

    def cost(self, match: WinogradMatch, config: Config, machine: Machine) -> float:
        tiling = Tiling.of(match, config["m"], config["rows"])
        problem, threads = tiling.problem(match), config["threads"]
        if config["tile_p"] > problem.pixels or problem.blocks % config["chunk"]:
            return math.inf
        if config["rows"] and tiling.units % threads:
            return math.inf
        extra = _transform_seconds(tiling, problem, config, machine)
        return extra + blocked.cost(problem, config, machine, units=tiling.units, apart=bool(config["rows"]))

    def cost_cut(self, match: WinogradMatch, config: Config, machine: Machine) -> float:
        """Rows of tiles whose columns are vectors are computed in whole register tiles; threads need not have as many
        units each."""
        tiling, threads = Tiling.of(match, config["m"], config["rows"]), config["threads"]
        if tiling.planar:
            tiling = replace(tiling, columns=-(-tiling.columns // config["tile_p"]) * config["tile_p"])
        problem, apart = tiling.problem(match), config["rows"] > 0
        units = -(-tiling.units // threads) * threads if apart else tiling.units
        extra = _transform_seconds(tiling, problem, config, machine)
        return extra + blocked.cost(problem, config, machine, units=units, apart=apart)

    def sharing(self, match: WinogradMatch, config: Config, machine: Machine) -> Sharing:
        """Tiles by blocks of outputs; what a tile reaches beyond the image is part of the algorithm."""
        tiling, threads = Tiling.of(match, config["m"], config["rows"]), config["threads"]
        problem = tiling.problem(match)
        alone = blocked.Units.of(problem, _inside(config)).sharing(problem, threads)
        tiles = Tiling.of(match, config["m"], 0).pixels * problem.batch * problem.output_blocks
        return replace(alone, real=tiles, busiest=alone.busiest * tiling.units)

    def layouts(self, match: WinogradMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        tiling = Tiling.of(match, config["m"], config["rows"])
        problem = tiling.problem(match)
        outer_o = blocked.Units.of(problem, _inside(config)).outer_o
        weight = WinogradWeight.make(
            config["m"], tiling.stride, problem.inner, problem.lanes * config["tile_o"], outer_o
        )
        data = offered[match.group.params.index(match.data)] if tiling.planar else Layout.blocked(4, match.input_lanes)
        if tiling.planar and data.block is not None:
            data = Layout.plain(4)
        return image_layouts(match.group, problem.lanes, (match.data, data), (match.weight, weight))

    def compute(self, match: WinogradMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, tiling = Arguments(match.group, layouts), Tiling.of(match, config["m"], config["rows"])
        problem, count, weight = tiling.problem(match), tiling.products, args.tensor(match.weight)
        v = input_tiles(match, tiling, args)
        acc = blocked.reduce_tiles(
            problem,
            blocked.Units.of(problem, _inside(config)),
            lambda n, q, block, ry, rx, ri: v(n, block, q, ri),
            lambda n, o, block, ry, rx, ri, j: weight(tirx.floormod(n, count), o, block, ri, j),
            tiling.units * count,
        )
        shape = (tiling.units * count, problem.output_blocks, problem.pixels, problem.lanes)
        product = te.compute(shape, lambda n, o, q, j: acc(n, o, q, j), name="product")
        m, y, scale = tiling.transform.m, output_tiles(tiling, product), scaled(args, match.weight)

        def value(n: Any, o: Any, r: Any, c: Any, j: Any) -> Any:
            unit, q = tiling.where(n, tirx.floordiv(r, m), tirx.floordiv(c, m))
            element = y(unit, o, q, tirx.floormod(r, m), tirx.floormod(c, m), j)
            return scale(element, o * problem.lanes + j)

        return args.kernel(value)

    def schedule(
        self, sch: Schedule, match: WinogradMatch, config: Config, machine: Machine,
        blocker: blocked.Blocker = blocked.configured,
    ) -> None:  # fmt: skip
        tiling = Tiling.of(match, config["m"], config["rows"])
        threads = config["threads"]
        unit = _schedule_result(sch, tiling, config)
        if unit is not None:
            sch.compute_at(sch.get_sblock("product"), unit, preserve_unit_loops=True)
        problem, weight = tiling.problem(match), buffer_name(match, match.weight)
        blocked.schedule_tiles(
            sch, problem, _inside(config), "product", weight=weight, blocker=blocker,
            data=None if tiling.planar else "v", numbered=tiling.numbered(match),
        )  # fmt: skip
        if unit is not None:
            sch.compute_at(sch.get_sblock("v"), unit, preserve_unit_loops=True)
        schedule_input(sch, tiling, 1 if config["rows"] else threads)
        schedule_planes(sch, tiling, threads)


def _heights(match: WinogradMatch | WinogradShape, m: int) -> list[int]:
    rows = -(-match.window.out_image[0] // m)
    return [0, *sorted({h for h in (1, 2, 3, 4, 6, 8, 14, 28, rows) if h <= rows})]


@functools.lru_cache(maxsize=16)
def _costs_of_any_size(shape: WinogradShape, machine: Machine) -> tuple[tuple[Mapping[str, Any], float], ...]:
    """Legal points at which the loops of a kernel end where run-time extents do, on most threads, and their costs: of
    each tile size and height the register tiles of least cost, so that none crowds out the others."""
    out: list[tuple[Mapping[str, Any], float]] = []
    threads = blocked.counts_for(shape.problem, machine)[-1]
    for m, height in ((m, height) for m in shape.sizes for height in _heights(shape, m)):  # noqa: B020
        tiling = Tiling.of(shape, m, height)
        if height and tiling.units % threads:
            continue
        problem, row = tiling.problem(shape), shape.uncut(tiling, height)
        knobs = {**blocked.tile_space(problem, machine, threads), "threads": [threads]}
        knobs["chunk"] = [problem.blocks] if row > 1 else knobs["chunk"]
        knobs["tile_p"] = [p for p in knobs["tile_p"] if row % p == 0 or row == 1]
        extra = _transform_seconds(tiling, problem, {"rows": height, "threads": threads}, machine)
        tiles = itertools.product(knobs.pop("tile_o"), knobs.pop("tile_p"))
        legal = [t for t in ({"tile_o": o, "tile_p": p} for o, p in tiles) if blocked.tile_fits(problem, t, machine)]
        price = functools.partial(_priced, problem, machine, tiling.units, extra)
        fixed = {"parts": 1, "chunk": problem.blocks, "threads": threads}
        whole = [price({"m": m, "rows": height, **tile, **fixed}) for tile in legal]
        rest = [dict(zip(knobs, values, strict=True)) for values in itertools.product(*knobs.values())]
        for config, _ in heapq.nsmallest(_TILES, whole, key=operator.itemgetter(1)):
            out.append(min((price({**config, **others}) for others in rest), key=operator.itemgetter(1)))
    return tuple(out)


def _priced(
    problem: blocked.Problem, machine: Machine, units: int, extra: float, config: Config
) -> tuple[Config, float]:
    """A configuration, and its cost beside `extra` seconds."""
    return config, extra + blocked.cost(problem, config, machine, units, apart=config["rows"] > 0)


def _transform_seconds(tiling: Tiling, problem: blocked.Problem, config: Config, machine: Machine) -> float:
    """Both transforms, and what they move; register tiles are no part of it."""
    threads = config["threads"]
    transforms = tiling.units * tiling.vectors(problem) / _OPERATIONS / threads
    extra = seconds(transforms, _moved(tiling, problem, config, machine), machine, 1)
    return extra + (0 if config["rows"] else 2) * launch_seconds(machine, threads)


def _moved(tiling: Tiling, problem: blocked.Problem, config: Config, machine: Machine) -> list[Stream]:
    """V and M of a thread, written once and read once. In a unit of some rows half of the weights pass through L2
    between both. Of a unit that all threads share, what others wrote comes out of their caches, where those hold it."""
    threads, held = config["threads"], problem.products_bytes
    level = level_of(held + problem.weight_bytes // 2 if config["rows"] else held // threads, machine)
    in_own_cache = level in ("l1", "l2")
    moved = Stream((_MOVED if in_own_cache else _MOVED_OUT) * tiling.units * held / threads, level, 1.0)
    exchanged = held / threads * (1 - 1 / threads) if in_own_cache and not config["rows"] else 0.0
    return [moved, Stream(exchanged, "foreign", 1.0)]


def _inside(config: Config) -> Config:
    """The configuration of the matmuls: a unit of some rows is one thread's."""
    return {**config, "threads": 1} if config["rows"] else config


def _schedule_result(sch: Schedule, tiling: Tiling, config: Config) -> Any:
    """One tile and block of outputs at a time, likewise; returns the loop over units, None if there is one unit."""
    m, threads = tiling.transform.m, config["threads"]
    n, o, r, c, lane = sch.get_loops(sch.get_sblock("out"))
    unit = None
    if config["rows"]:
        unit, r = sch.split(r, [None, m * tiling.height])
    r0, r1 = sch.split(r, [None, m])
    c0, c1 = sch.split(c, [None, m])
    if unit is None:
        sch.reorder(n, o, r0, c0, r1, c1, lane)
        tile = parallel_rows(sch, [n, o, r0, c0], threads)
    else:
        sch.reorder(n, unit, o, r0, c0, r1, c1, lane)
        _, unit = parallel_loops(sch, [n, unit], threads)
        tile = sch.fuse(o, r0, c0)
    unroll_and_vectorize(sch, [c1], lane)
    schedule_output(sch, tile)
    return unit
