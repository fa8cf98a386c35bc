"""The stages of a Winograd convolution around its matmuls: tiles in units, their input and their output transform.

    V[u a b, k, q] = B^T d B        d: the input tile of tile q of unit u, for input channel (or phase of one) k
    Y[u, o, q]     = A^T M A

Channels that stand in whole blocks are the vectors of the input transform. Where there are few of them (an image) the
vectors run over tile columns instead, from a copy of the image in which tiles stand side by side. It is made row by
row, padding first, so that LLVM transposes a whole row in registers:

    planar[n, c, row, t, column] = line[column * m * stride + t]        line: a row of x and its padding
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.layout import Layout

from ..steps.arguments import Arguments
from ..steps.loops import parallel_rows, unroll_and_vectorize
from ..steps.storage import Decoding, Reader
from ..steps.window import Window
from . import kernel as blocked
from .convolution import Conv2dMatch, free_extents, image_in_use
from .winograd import Transform, transformed


@dataclass(frozen=True)
class WinogradMatch(Conv2dMatch):
    """A square convolution of one group, whose `problem` is that of the direct one.

    Attributes:
        sizes: outputs along one side of a tile, the choices.
        levels: size -> the level of the memory hierarchy where a call finds weights transformed for it: those of a
            model that L3 holds as they are may be too many when each has four times as many elements.
    """

    sizes: tuple[int, ...]
    levels: Mapping[int, str]

    @property
    def behind(self) -> float | None:
        """What has to stand in memory behind an image of run-time size, as it is stored, so that it is read as zero;
        None if the size is known, or if that is a condition: in another order, or if only a call tells what is zero."""
        used = image_in_use(self.group, self.data)
        if all(isinstance(n, int) for n in used) or self.problem.inner != self.input_lanes:
            return None
        return Decoding.of(self.group, self.data).zero_point


@dataclass(frozen=True)
class WinogradShape:
    """What estimates of a Winograd convolution depend on: groups that differ in their epilogue share it.

    Attributes:
        problem, window, input_lanes, sizes, levels: of :class:`WinogradMatch`; the levels in the order of the sizes.
        free: whether images, rows and columns of the result have run-time extents.
    """

    problem: blocked.Problem
    window: Window
    input_lanes: int
    sizes: tuple[int, ...]
    levels: tuple[tuple[int, str], ...]
    free: tuple[bool, bool, bool]

    @staticmethod
    def of(match: WinogradMatch) -> WinogradShape:
        """That of a match."""
        levels, free = tuple(match.levels.items()), free_extents(match.group)
        return WinogradShape(match.problem, match.window, match.input_lanes, match.sizes, levels, free)

    def uncut(self, tiling: Tiling, height: int) -> int:
        """Tiles within which register tiles have to divide what there is; 1 if they are numbered through all."""
        if not tiling.planar:
            return 1
        images, rows, columns = self.free
        if columns or (rows and not height):
            return tiling.columns
        return tiling.rows * tiling.columns if images and not height else 1


@dataclass(frozen=True)
class Tiling:
    """Output tiles in units: unit u holds `height` tile rows, all images one below the other.

    Attributes:
        transform: F(m x m, r x r).
        stride: of the convolution.
        images: the batch.
        rows, columns: tiles of an image; `rows` is rounded up to whole units.
        height: tile rows of a unit.
        width: of the vectors of the input transform: channels of a block, or tile columns.
        planar: whether they are tile columns.
    """

    transform: Transform
    stride: int
    images: int
    rows: int
    columns: int
    height: int
    width: int
    planar: bool

    @staticmethod
    def of(match: WinogradMatch | WinogradShape, m: int, height: int) -> Tiling:
        """For a height of 0, all images are one unit."""
        rows, columns = (-(-d // m) for d in match.window.out_image)
        images, stride, lanes = match.window.images, match.window.strides[0], match.input_lanes
        transform = Transform.of(m, -(-match.window.kernel[0] // stride))
        height, rows = (height, -(-rows // height) * height) if height else (images * rows, rows)
        planar = match.problem.inner != lanes
        width = max(w for w in range(1, 2 * lanes + 1) if columns % w == 0) if planar else lanes
        return Tiling(transform, stride, images, rows, columns, height, width, planar)

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

    def numbered(self, match: WinogradMatch) -> list[Any] | None:
        """How tiles of a unit are numbered (:data:`.problem.NUMBERED`), where a call may have fewer; None if all calls
        have as many, or if vectors of the input transform are tile columns."""
        if self.planar or not any(free_extents(match.group)):
            return None
        return ["v", "product", self.rows if self.height > self.rows else 0, self.columns]

    def tile(self, unit: Any, q: Any) -> tuple[Any, Any, Any]:
        """(image, tile row, tile column) of tile q of a unit."""
        row = unit * self.height + tirx.floordiv(q, self.columns)
        return tirx.floordiv(row, self.rows), tirx.floormod(row, self.rows), tirx.floormod(q, self.columns)

    def where(self, image: Any, row: Any, column: Any) -> tuple[Any, Any]:
        """(unit, tile of the unit): the inverse."""
        row = image * self.rows + row
        return tirx.floordiv(row, self.height), tirx.floormod(row, self.height) * self.columns + column

    def problem(self, match: WinogradMatch | WinogradShape) -> blocked.Problem:
        """The matmuls of one unit: tiles are the pixels, phases times channels the reduction."""
        p: blocked.Problem = match.problem
        phases = self.stride**2
        blocks, inner = (1, p.blocks * p.inner * phases) if self.planar else (p.blocks * phases, p.inner)
        return blocked.Problem(
            self.products, p.outputs, self.pixels, self.pixels, blocks, (1, 1), inner, p.lanes, self.products,
            dict(match.levels)[self.transform.m], p.prefetched, free=p.free,
        )  # fmt: skip

    def vectors(self, problem: blocked.Problem) -> float:
        """Vector operations of both transforms of a unit, loads and stores included."""
        into, out = self.transform.additions
        moved = 2 * self.products + self.transform.m**2
        deep = problem.steps / problem.lanes
        return problem.pixels * (deep * (into + moved) + problem.output_blocks * (out + moved))


Element = Callable[[Any, Any, Any, Any, Any, Any], Any]
"""(unit, channel or block of channels, vector of tiles or tile, x, y, lane) -> the input value."""


def input_tiles(match: WinogradMatch, tiling: Tiling, args: Arguments) -> Callable[[Any, Any, Any, Any], Any]:
    """V as a function of (unit and product, block of channels, tile, step in the block)."""
    width, data, layout = tiling.width, args.reader(match.data), args.layout(match.data)
    if tiling.planar:
        channels = match.data.shape[1] * tiling.stride**2
        v = _transformed(tiling, _from_planes(match, tiling, data, layout), channels, tiling.pixels // width)
        return lambda n, block, q, ri: v(n, ri, tirx.floordiv(q, width), tirx.floormod(q, width))
    channels = match.data.shape[1] // width * tiling.stride**2
    v = _transformed(tiling, _from_blocks(match, tiling, data), channels, tiling.pixels)
    return lambda n, block, q, ri: v(n, block, q, ri)


def _from_blocks(match: WinogradMatch, tiling: Tiling, data: Reader) -> Element:
    """Tiles of a blocked input; padding is a condition on whole vectors, or what :attr:`WinogradMatch.behind` says."""
    ci = match.data.shape[1]
    h, w = image_in_use(match.group, match.data) if match.behind is None else match.data.shape[2:]
    stride, m, (top, left) = tiling.stride, tiling.transform.m, match.window.pads[:2]
    blocks = ci // tiling.width

    def element(u: Any, pc: Any, q: Any, x: Any, y: Any, i: Any) -> Any:
        image, row, column = tiling.tile(u, q)
        phase, c = tirx.floordiv(pc, blocks), tirx.floormod(pc, blocks)
        r = (row * m + x) * stride + tirx.floordiv(phase, stride) - top
        s = (column * m + y) * stride + tirx.floormod(phase, stride) - left
        inside = tirx.all(r >= 0, r < h, s >= 0, s < w)
        return tirx.if_then_else(inside, data(image, c, r, s, i), tirx.const(0, match.data.computed))

    return element


def _from_planes(match: WinogradMatch, tiling: Tiling, data: Reader, layout: Layout) -> Element:
    """Tiles of the planar copy: lanes are neighbouring tile columns."""
    n, ci, (h, w) = *match.data.shape[:2], image_in_use(match.group, match.data)
    stride, m, (top, left) = tiling.stride, tiling.transform.m, match.window.pads[:2]
    step, reach = m * stride, tiling.transform.alpha * stride
    rows, columns = tiling.rows * step + reach - step, tiling.columns + -(-reach // step) - 1

    def line(image: Any, c: Any, row: Any, x: Any) -> Any:
        r, s = row - top, x - left
        inside = tirx.all(r >= 0, r < h, s >= 0, s < w)
        return tirx.if_then_else(inside, data(*layout.index((image, c, r, s))), tirx.const(0, match.data.computed))

    lines = te.compute((n, ci, rows, columns * step), line, name="line")
    planar = te.compute((n, ci, rows, step, columns), lambda b, c, r, t, x: lines(b, c, r, x * step + t), name="planar")

    def element(u: Any, k: Any, q: Any, x: Any, y: Any, i: Any) -> Any:
        image, row, column = tiling.tile(u, q * tiling.width + i)
        phase, c = tirx.floordiv(k, ci), tirx.floormod(k, ci)
        r = (row * m + x) * stride + tirx.floordiv(phase, stride)
        t = y * stride + tirx.floormod(phase, stride)
        return planar(image, c, r, tirx.floormod(t, step), column + tirx.floordiv(t, step))

    return element


def _transformed(tiling: Tiling, element: Element, channels: int, vectors: int) -> te.Tensor:
    """V[u a b, k, q, l] = B^T d B of every vector of tiles q of unit u and every k."""
    bt, alpha, count, dtype = tiling.transform.bt, tiling.transform.alpha, tiling.products, "float32"
    shape = (tiling.units, channels, vectors, alpha, alpha, tiling.width)
    d = te.compute(shape, element, name="d")
    v1 = te.compute(
        shape,
        lambda u, c, q, a, y, i: transformed(bt, a, [d(u, c, q, x, y, i) for x in range(alpha)], dtype),
        name="v1",
    )

    def both(n: Any, c: Any, q: Any, i: Any) -> Any:
        unit, a, b = tirx.floordiv(n, count), tirx.floordiv(tirx.floormod(n, count), alpha), tirx.floormod(n, alpha)
        return transformed(bt, b, [v1(unit, c, q, a, y, i) for y in range(alpha)], dtype)

    return te.compute((tiling.units * count, *shape[1:3], tiling.width), both, name="v")


def output_tiles(tiling: Tiling, product: te.Tensor) -> te.Tensor:
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


def schedule_planes(sch: Schedule, tiling: Tiling, threads: int) -> None:
    """Rows of the planar copy among threads."""
    if tiling.planar:
        n, c, row, t, column = sch.get_loops(sch.get_sblock("planar"))
        row = parallel_rows(sch, [n, c, row], threads)
        sch.reorder(column, t)
        sch.unroll(t)
        sch.compute_at(sch.get_sblock("line"), row, preserve_unit_loops=True)
        sch.set_scope(sch.get_sblock("line"), 0, "local")


def schedule_input(sch: Schedule, tiling: Tiling, threads: int) -> None:
    """One tile and block of channels at a time; the row of each matrix is unrolled, the other axis a loop. Of phases
    all is unrolled: the code is as fast, and LLVM takes a third of the time for it."""
    v, v1, d = (sch.get_sblock(name) for name in ("v", "v1", "d"))
    n, c, q, lane = sch.get_loops(v)[-4:]
    a, b = sch.split(n, [None, tiling.transform.alpha])
    sch.reorder(c, q, a, b)
    tile = parallel_rows(sch, [c, q], threads)
    unroll_and_vectorize(sch, [b], lane)
    for block in (v1, d):
        sch.compute_at(block, tile, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
    row, y, lane = sch.get_loops(v1)[-3:]
    sch.reorder(y, row)
    unroll_and_vectorize(sch, [row], lane)
    *axes, lane = sch.get_loops(d)[-3:]
    unroll_and_vectorize(sch, [*axes, y, a] if tiling.stride > 1 else [], lane)


def schedule_output(sch: Schedule, tile: Any) -> None:
    """The output transform of one tile and block of outputs, at the loop over them."""
    y, y1 = sch.get_sblock("y"), sch.get_sblock("y1")
    for block in (y, y1):
        sch.compute_at(block, tile, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
    unroll_and_vectorize(sch, [sch.get_loops(y)[-2]], sch.get_loops(y)[-1])
    x, b, lane = sch.get_loops(y1)[-3:]
    sch.reorder(b, x)
    unroll_and_vectorize(sch, [x], lane)
