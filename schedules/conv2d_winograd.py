"""Square convolution of stride 1 or 2 by Winograd's F(m x m, r x r) on NCHW{lanes}c, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, ...      x: NCHW{l}c, w: G g G^T, result: NCHW{l}c

Three stages in one kernel, for each unit of tile rows:

    V[a b, c, q, l] = B^T d B      input tiles; padding is read as zero
    M[a b, o, q, l] = U V          alpha^2 blocked matmuls over the input channels
    out             = A^T M A      output tiles, then the epilogue

With `rows` > 0 a unit is so many tile rows of an image, one thread does all of it, and V and M stay in its L2; each
unit streams all weights. With `rows` = 0 there is one unit, and each stage is shared by all threads: weights are
streamed once, for small images of many channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe

from . import blocked
from .conv2d_nchwc import Conv2dNCHWc
from .epilogue import Epilogue, blocked_layout, placeholders
from .steps import parallel_rows, unroll_and_vectorize
from .winograd import TILES, Transform, WinogradWeight, transformed

#: Vector operations of the transforms a core does in a cycle, loads and stores included.
_OPERATIONS = 0.8


@dataclass(frozen=True)
class Tiling:
    """Output tiles in units: unit u holds `height` tile rows, all images one below the other.

    Attributes:
        transform: F(m x m, r x r).
        stride: of the convolution.
        images: the batch.
        rows, columns: tiles of an image; `rows` is rounded up to whole units.
        height: tile rows of a unit.
    """

    transform: Transform
    stride: int
    images: int
    rows: int
    columns: int
    height: int

    @staticmethod
    def of(match: Match, m: int, height: int) -> Tiling:
        """For a height of 0, all images are one unit."""
        rows, columns = (-(-d // m) for d in match.out_image)
        images, stride = match.data.shape[0], match.strides[0]
        transform = Transform.of(m, -(-match.weight.shape[2] // stride))
        height, rows = (height, -(-rows // height) * height) if height else (images * rows, rows)
        return Tiling(transform, stride, images, rows, columns, height)

    @property
    def units(self) -> int:
        return self.images * self.rows // self.height

    @property
    def products(self) -> int:
        """Independent matmuls of a unit."""
        return self.transform.alpha**2

    @property
    def pixels(self) -> int:
        """Tiles of a unit."""
        return self.height * self.columns

    def tile(self, unit: Any, q: Any) -> tuple[Any, Any, Any]:
        """(image, tile row, tile column) of tile q of a unit."""
        row = unit * self.height + tirx.floordiv(q, self.columns)
        return tirx.floordiv(row, self.rows), tirx.floormod(row, self.rows), tirx.floormod(q, self.columns)

    def where(self, image: Any, row: Any, column: Any) -> tuple[Any, Any]:
        """(unit, tile of the unit): the inverse."""
        row = image * self.rows + row
        return tirx.floordiv(row, self.height), tirx.floormod(row, self.height) * self.columns + column

    def problem(self, match: Match) -> blocked.Problem:
        """The matmuls of one unit: tiles are the pixels."""
        p: blocked.Problem = match.problem
        blocks = p.blocks * self.stride**2
        return blocked.Problem(
            self.products, p.outputs, self.pixels, self.pixels, blocks, (1, 1), p.inner, p.lanes, self.products
        )


class Conv2dWinograd(Recipe):
    """Winograd convolution; the tile size and the tile rows of a unit are knobs."""

    name = "conv2d_winograd"
    version = 2
    anchors = frozenset({"relax.nn.conv2d"})
    exact = False

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        direct = Conv2dNCHWc().match(group, machine)
        if isinstance(direct, Miss):
            return direct
        f = direct.facts
        (kh, kw), (sy, sx) = f["weight"].shape[2:], f["strides"]
        if kh != kw or sy != sx or sy > 2 or f["dilation"] != (1, 1):
            return Miss("Winograd takes square kernels of stride 1 or 2 and dilation 1")
        if -(-kh // sy) not in TILES:
            return Miss(f"Winograd takes 2 to 5 taps a phase: a {kh}x{kw} kernel of stride {sy} has {-(-kh // sy)}")
        if f["problem"].inner != machine.lanes:
            return Miss(f"{f['data'].shape[1]} input channels are no multiple of {machine.lanes} lanes")
        return Match(group, {**f, "lanes": machine.lanes, "sizes": TILES[-(-kh // sy)]})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        spaces = [
            blocked.space(Tiling.of(match, m, height).problem(match), machine)
            for m in match.sizes
            for height in self._heights(match, m)
        ]
        merged = {k: sorted({v for s in spaces for v in s[k]}) for k in spaces[0]}
        heights = sorted({h for m in match.sizes for h in self._heights(match, m)})
        return {"m": match.sizes, "rows": heights, **merged, "threads": self._threads(match, machine)}

    @staticmethod
    def _threads(match: Match, machine: Machine) -> Sequence[int]:
        """As the direct convolution's: all if the work is worth waking them."""
        return blocked.space(match.problem, machine)["threads"]

    @staticmethod
    def _heights(match: Match, m: int) -> list[int]:
        rows = -(-match.out_image[0] // m)
        return [0, *sorted({h for h in (1, 2, 3, 4, 6, 8, 14, 28, rows) if h <= rows})]

    def default(self, match: Match, machine: Machine) -> Config:
        return min(self.candidates(match, machine), key=lambda config: self.cost(match, config, machine))

    def candidates(self, match: Match, machine: Machine) -> Iterator[Config]:
        """For each tile size and height, the configuration with the best register tile."""
        (threads,) = self._threads(match, machine)
        for m in match.sizes:
            for height in self._heights(match, m):
                sharing = machine.with_threads(1 if height else threads)
                config = blocked.default(Tiling.of(match, m, height).problem(match), sharing)
                yield {"m": m, "rows": height, **config, "threads": threads}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        tiling = Tiling.of(match, config["m"], config["rows"])
        problem, threads = tiling.problem(match), config["threads"]
        if config["tile_p"] > problem.pixels or problem.blocks % config["chunk"]:
            return math.inf
        if config["rows"] and tiling.units % threads:
            return math.inf
        into, out = tiling.transform.additions
        moved = 2 * tiling.products + tiling.transform.m**2
        vectors = problem.pixels * (problem.blocks * (into + moved) + problem.output_blocks * (out + moved))
        held = problem.products_bytes
        sharing = threads if not config["rows"] else 1
        traffic = 0.7 * held / blocked.stream(held // sharing, machine)
        extra = tiling.units * (vectors / _OPERATIONS + traffic) / threads / blocked.CLOCK
        return extra + blocked.cost(problem, config, machine, units=tiling.units, apart=bool(config["rows"]))

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        tiling = Tiling.of(match, config["m"], config["rows"])
        problem = tiling.problem(match)
        outer_o = blocked.Units.of(problem, _inside(config)).outer_o
        weight = WinogradWeight.make(
            config["m"], tiling.stride, problem.inner, problem.lanes * config["tile_o"], outer_o
        )
        result = Layout.blocked(4, problem.lanes)
        own = {match.data.var: result, match.weight.var: weight}
        params = [own.get(p.var) or blocked_layout(p.shape, problem.lanes) for p in match.group.params]
        return Layouts(tuple(params), result)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, tiling = match.group, Tiling.of(match, config["m"], config["rows"])
        problem, count = tiling.problem(match), tiling.products
        tensors = placeholders(group, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        weight = tensors[where[match.weight.var]]
        v = _input_tiles(match, tiling, tensors[where[match.data.var]])
        acc = blocked.reduce_tiles(
            problem,
            blocked.Units.of(problem, _inside(config)),
            lambda n, q, block, ry, rx, ri: v(n, block, q, ri),
            lambda n, o, block, ry, rx, ri, j: weight(tirx.floormod(n, count), o, block, ri, j),
            tiling.units * count,
        )
        shape = (tiling.units * count, problem.output_blocks, problem.pixels, problem.lanes)
        product = te.compute(shape, lambda n, o, q, j: acc(n, o, q, j), name="product")
        epilogue, m, lanes = Epilogue(group, tensors, layouts.params), tiling.transform.m, problem.lanes
        y = _output_tiles(tiling, product)

        def value(n: Any, o: Any, r: Any, c: Any, j: Any) -> Any:
            unit, q = tiling.where(n, tirx.floordiv(r, m), tirx.floordiv(c, m))
            return epilogue((n, o * lanes + j, r, c), y(unit, o, q, tirx.floormod(r, m), tirx.floormod(c, m), j))

        out = te.compute(layouts.output.physical_shape(group.shape), value, name="out")
        return te.create_prim_func([*tensors, out])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        tiling = Tiling.of(match, config["m"], config["rows"])
        alpha, threads = tiling.transform.alpha, config["threads"]
        unit = _schedule_output(sch, tiling, config)
        if unit is not None:
            sch.compute_at(sch.get_sblock("product"), unit, preserve_unit_loops=True)
        blocked.schedule_tiles(sch, tiling.problem(match), _inside(config), "product")
        if unit is not None:
            sch.compute_at(sch.get_sblock("v"), unit, preserve_unit_loops=True)
        _schedule_input(sch, alpha, 1 if config["rows"] else threads)


def _inside(config: Config) -> Config:
    """The configuration of the matmuls: a unit of some rows is one thread's."""
    return {**config, "threads": 1} if config["rows"] else config


def _input_tiles(match: Match, tiling: Tiling, data: te.Tensor) -> te.Tensor:
    """V[u a b, (phase, c), q, l] = B^T d B of every tile q of unit u, phase and block of channels c."""
    _, ci, h, w = match.data.shape
    transform, stride, lanes, dtype = tiling.transform, tiling.stride, match.lanes, match.data.dtype
    alpha, m, (top, left) = transform.alpha, transform.m, match.pads[:2]
    blocks, count, tiles = ci // lanes, tiling.products, tiling.pixels
    shape = (tiling.units, stride**2 * blocks, tiles, alpha, alpha, lanes)

    def element(u: Any, pc: Any, q: Any, x: Any, y: Any, i: Any) -> Any:
        image, row, column = tiling.tile(u, q)
        phase, c = tirx.floordiv(pc, blocks), tirx.floormod(pc, blocks)
        r = (row * m + x) * stride + tirx.floordiv(phase, stride) - top
        s = (column * m + y) * stride + tirx.floormod(phase, stride) - left
        inside = tirx.all(r >= 0, r < h, s >= 0, s < w)
        return tirx.if_then_else(inside, data(image, c, r, s, i), tirx.const(0, dtype))

    d = te.compute(shape, element, name="d")
    v1 = te.compute(
        shape,
        lambda u, c, q, a, y, i: transformed(transform.bt, a, [d(u, c, q, x, y, i) for x in range(alpha)], dtype),
        name="v1",
    )

    def both(n: Any, c: Any, q: Any, i: Any) -> Any:
        unit, a, b = tirx.floordiv(n, count), tirx.floordiv(tirx.floormod(n, count), alpha), tirx.floormod(n, alpha)
        return transformed(transform.bt, b, [v1(unit, c, q, a, y, i) for y in range(alpha)], dtype)

    return te.compute((tiling.units * count, *shape[1:3], lanes), both, name="v")


def _output_tiles(tiling: Tiling, product: te.Tensor) -> te.Tensor:
    """Y[u, o, q, x, y, l] = A^T M A."""
    at, m, alpha, count = tiling.transform.at, tiling.transform.m, tiling.transform.alpha, tiling.products
    _, blocks, tiles, lanes = (int(d) for d in product.shape)
    dtype = product.dtype
    y1 = te.compute(
        (tiling.units, blocks, tiles, m, alpha, lanes),
        lambda u, o, q, x, b, j: transformed(
            at, x, [product(u * count + a * alpha + b, o, q, j) for a in range(alpha)], dtype
        ),
        name="y1",
    )
    return te.compute(
        (tiling.units, blocks, tiles, m, m, lanes),
        lambda u, o, q, x, y, j: transformed(at, y, [y1(u, o, q, x, b, j) for b in range(alpha)], dtype),
        name="y",
    )


def _schedule_input(sch: Schedule, alpha: int, threads: int) -> None:
    """One tile and block of channels at a time; the row of each matrix is unrolled, the other axis a loop."""
    v, v1, d = (sch.get_sblock(name) for name in ("v", "v1", "d"))
    n, c, q, lane = sch.get_loops(v)[-4:]
    a, b = sch.split(n, [None, alpha])
    sch.reorder(c, q, a, b)
    tile = parallel_rows(sch, [c, q], threads)
    unroll_and_vectorize(sch, [b], lane)
    for block in (v1, d):
        sch.compute_at(block, tile, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
    a, y, lane = sch.get_loops(v1)[-3:]
    sch.reorder(y, a)
    unroll_and_vectorize(sch, [a], lane)
    sch.vectorize(sch.get_loops(d)[-1])


def _schedule_output(sch: Schedule, tiling: Tiling, config: Config) -> Any:
    """One tile and block of outputs at a time, likewise; returns the loop over units, None if there is one unit."""
    out, y, y1 = (sch.get_sblock(name) for name in ("out", "y", "y1"))
    m, threads = tiling.transform.m, config["threads"]
    n, o, r, c, lane = sch.get_loops(out)
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
        unit = _share(sch, n, unit, threads)
        tile = sch.fuse(o, r0, c0)
    unroll_and_vectorize(sch, [c1], lane)
    for block in (y, y1):
        sch.compute_at(block, tile, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
    unroll_and_vectorize(sch, [sch.get_loops(y)[-2]], sch.get_loops(y)[-1])
    x, b, lane = sch.get_loops(y1)[-3:]
    sch.reorder(b, x)
    unroll_and_vectorize(sch, [x], lane)
    return unit


def _share(sch: Schedule, n: Any, unit: Any, threads: int) -> Any:
    """Threads over images, else over the units of an image; the loop over units stays the innermost."""
    images = math.gcd(int(sch.get(n).extent), threads)
    units = math.gcd(int(sch.get(unit).extent), threads // images)
    shared = []
    if images > 1:
        first, n = sch.split(n, [images, None])
        shared.append(first)
    if units > 1:
        first, unit = sch.split(unit, [units, None])
        shared.append(first)
    if shared:
        sch.reorder(*shared, n, unit)
        sch.parallel(sch.fuse(*shared) if len(shared) > 1 else shared[0])
    return unit
