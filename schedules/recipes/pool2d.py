"""Max and average pooling on NCHW{lanes}c (or NCHW), with fused epilogue.

    max_pool2d(x), avg_pool2d(x)        x: NCHW{l}c, result: NCHW{l}c

A window that leaves the image reads the nearest pixel of the image instead. For a maximum that pixel is in the window
already, so nothing changes and no condition is left; for an average it is multiplied by zero. An image ends at its
run-time extents.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.graph.relax_graph import attrs_of
from tvm_ext.core.numbers.precision import NARROW_FLOATS
from tvm_ext.core.numbers.storage import STORED
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Match, Miss, Param, Recipe, Sharing, VectorWork

from ..steps.arguments import Arguments
from ..steps.epilogue import blocked_layouts
from ..steps.loops import image_sharing, parallel_image, parallel_rows, unroll_and_vectorize
from ..steps.row_reduction import COMBINE
from ..steps.storage import why_not_float32
from ..steps.window import Window

_ATTRIBUTES = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad", "layout")


@dataclass(frozen=True)
class PoolMatch(Match):
    """A pooling.

    Attributes:
        data: the input.
        window: its geometry.
        counts_padding: whether pixels of the padding count in an average.
    """

    data: Param
    window: Window
    counts_padding: bool

    @property
    def image(self) -> tuple[Any, Any]:
        """Rows and columns of the image that are in use; where no window leaves it, those that it may have."""
        extent, padded = self.group.extent, any(self.window.pads)
        return (extent(self.data, 2), extent(self.data, 3)) if padded else self.window.image

    @property
    def is_average(self) -> bool:
        """Whether it is an average, and not a maximum."""
        return self.group.anchor == "relax.nn.avg_pool2d"


class Pool2d(Recipe[PoolMatch]):
    """Pooling: one vector of channels a pixel."""

    name = "pool2d"
    anchors = frozenset({"relax.nn.max_pool2d", "relax.nn.avg_pool2d"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> PoolMatch | Miss:
        a = attrs_of(group.call, _ATTRIBUTES)
        data = group.operand(0)
        if data is None:
            return Miss("the operand is computed inside the group")
        average = group.anchor == "relax.nn.avg_pool2d"
        if (why := why_not_float32(group, data)) and (average or data.computed not in STORED):
            return Miss(why)
        if a["layout"] != "NCHW":
            return Miss(f"layout {a['layout']} is not NCHW")
        if any(p >= k for p, k in zip(a["padding"], a["pool_size"] * 2, strict=True)):
            return Miss(f"padding {a['padding']} reaches a whole window of {a['pool_size']}")
        if average and a["ceil_mode"]:
            return Miss("average pooling in ceil mode divides by clipped windows")
        if a["ceil_mode"] and not all(isinstance(group.extent(data, axis), int) for axis in (2, 3)):
            return Miss("in ceil mode, which windows leave the image is only known at run time")
        (n, channels, h, w), (oh, ow) = data.shape, group.shape[2:]
        sizes = a["pool_size"], a["strides"], a["dilation"], a["padding"]
        window = Window(n, channels, channels, (h, w), (oh, ow), *sizes, channels)
        if not average and _leaves_image(window):
            return Miss("a window of ceil mode or dilation lies outside the image")
        return PoolMatch(group, data, window, bool(a["count_include_pad"]))

    def work(self, match: PoolMatch, machine: Machine) -> VectorWork:
        n, c, h, _ = match.group.shape
        rows = n * -(-c // machine.lanes) * h  # of blocks of channels
        return VectorWork(math.prod(match.group.shape) * math.prod(match.window.kernel), rows)

    def sharing(self, match: PoolMatch, config: Config, machine: Machine) -> Sharing:
        """Rows of an image in blocks of channels, as convolutions before it have them."""
        n, c, h, _ = match.group.shape
        return image_sharing(n, -(-c // machine.lanes), h, config["threads"])

    def layouts(self, match: PoolMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        layout = offered[match.group.params.index(match.data)]
        if layout.block is None or layout != Layout.blocked(4, layout.block[1]):
            return Layouts.plain(match.group)
        return blocked_layouts(match.group, layout.block[1], {match.data.var: layout})

    def compute(self, match: PoolMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, computed = Arguments(match.group, layouts), match.data.computed
        shape = layouts.output.physical_shape(match.group.shape)
        if match.is_average:
            mean = te.compute(shape, _average(match, args), name="pool")
            return args.kernel(lambda *i: _divide(match, layouts.output.logical(i), mean(*i)))
        if computed in NARROW_FLOATS:
            ends = te.compute(shape, _maximum_of_bits(match, args), name="pool")
            return args.kernel(lambda *i: _float_of_bits(computed, *(end(*i) for end in ends)))
        if computed == "float32":
            parts = te.compute(shape, _maximum_and_squares(match, args), name="pool")
            return args.kernel(lambda *i: _maximum_or_nan(*(part(*i) for part in parts)))
        pooled = te.compute(shape, _maximum(match, args), name="pool")
        return args.kernel(lambda *i: pooled(*i))

    def schedule(self, sch: Schedule, match: PoolMatch, config: Config, machine: Machine) -> None:
        pool, out = sch.get_sblock("pool"), sch.get_sblock("out")
        n, c, y, *rest = sch.get_loops(out)
        if len(rest) == 1:
            parallel_rows(sch, [n, c, y], config["threads"])
            return
        parallel_image(sch, n, c, y, config["threads"])
        sch.vectorize(rest[-1])
        sch.compute_at(pool, sch.get_loops(out)[-2], preserve_unit_loops=True)
        for part in range(len(sch.get(pool).writes)):  # two or three at once
            sch.set_scope(pool, part, "local")
        lanes, ry, rx = sch.get_loops(pool)[-3:]
        sch.reorder(ry, rx, lanes)
        unroll_and_vectorize(sch, [ry, rx], lanes)
        sch.vectorize(sch.get_loops(sch.decompose_reduction(pool, ry))[-1])


def _leaves_image(w: Window) -> bool:
    """Whether some window has no pixel of the image, or leaves it and may skip its border pixel because of dilation."""
    axes = list(zip(w.strides, w.pads[:2], w.kernel, w.dilation, w.image, w.out_image, strict=True))
    beyond = any((o - 1) * s - p + (k - 1) * dilation >= size for s, p, k, dilation, size, o in axes)
    if w.dilation != (1, 1) and (any(w.pads) or beyond):
        return True
    return any((o - 1) * s - p >= size for s, p, _, _, size, o in axes)


def _taps(window: Window) -> tuple[tirx.IterVar, tirx.IterVar]:
    ky, kx = window.kernel
    return te.reduce_axis((0, ky), name="ry"), te.reduce_axis((0, kx), name="rx")


def _tap(match: PoolMatch, index: Sequence[Any], layout: Layout, ry: Any, rx: Any) -> tuple[Any, Any, Any]:
    """Physical index of a tap, clamped to the image, and the unclamped (y, x)."""
    n, c, y, x = layout.logical(index)
    window, (h, w), (top, left) = match.window, match.image, match.window.pads[:2]
    iy, ix = window.tap(y, x, ry, rx)
    iy, ix = iy - top, ix - left
    clamped = (n, c, tirx.max(0, tirx.min(iy, h - 1)), tirx.max(0, tirx.min(ix, w - 1)))
    return layout.index(clamped), iy, ix


def _maximum(match: PoolMatch, args: Arguments) -> Callable[..., Any]:
    (ry, rx), data, layout = _taps(match.window), args.reader(match.data), args.layout(match.data)
    over = COMBINE["max_number"][0]
    return lambda *index: over(data(*_tap(match, index, layout, ry, rx)[0]), axis=[ry, rx])


def _maximum_and_squares(match: PoolMatch, args: Arguments) -> Callable[..., Any]:
    """The largest float32 of a window and, beside it, 1 + the sum of the squares: NaN where the window holds NaN, and
    nowhere else; an addition a tap, where a comparison for NaN in each step of the maximum takes four times as long."""
    (ry, rx), data, layout = _taps(match.window), args.reader(match.data), args.layout(match.data)

    def value(*index: Any) -> Any:
        x = data(*_tap(match, index, layout, ry, rx)[0])
        return _MAXIMUM_AND_SQUARES((x, x), axis=[ry, rx])

    return value


def _maximum_or_nan(largest: Any, squares: Any) -> Any:
    return tirx.Select(tirx.isnan(squares), squares, largest)


#: From 1, so that no square of a small number makes a subnormal sum.
_MAXIMUM_AND_SQUARES = te.comm_reducer(
    lambda a, b: (tirx.max(a[0], b[0]), a[1] + b[1] * b[1]),
    lambda *dtypes: (tirx.const(-math.inf, dtypes[0]), tirx.const(1.0, dtypes[1])),
)


def _maximum_of_bits(match: PoolMatch, args: Arguments) -> Callable[..., Any]:
    """Ends of a window's floats of 16 bits, taken for whole numbers: twice the lanes of float32, and nothing to widen.
    :func:`_float_of_bits` makes the maximum of them."""
    (ry, rx), data, layout = _taps(match.window), args.reader(match.data), args.layout(match.data)

    def value(*index: Any) -> Any:
        x = data(*_tap(match, index, layout, ry, rx)[0])
        bits = tirx.reinterpret("int16", x)
        return _ENDS((bits, bits, tirx.reinterpret("uint16", x)), axis=[ry, rx])

    return value


def _float_of_bits(dtype: str, most: Any, least: Any, unsigned: Any) -> Any:
    """As int16, floats are in order where one of them is not negative, and in the reverse order where all are negative.
    A NaN is beyond the infinity of its sign: the largest int16, or the largest uint16."""
    infinity = 0x7C00 if dtype == "float16" else 0x7F80
    largest = tirx.Select(most >= tirx.const(0, "int16"), most, least)
    negative = unsigned > tirx.const(infinity + 0x8000, "uint16")
    return tirx.reinterpret(dtype, tirx.Select(negative, tirx.reinterpret("int16", unsigned), largest))


#: The largest and the least, and the largest without a sign, at once.
_ENDS = te.comm_reducer(
    lambda a, b: (tirx.max(a[0], b[0]), tirx.min(a[1], b[1]), tirx.max(a[2], b[2])),
    lambda *dtypes: (tirx.min_value(dtypes[0]), tirx.max_value(dtypes[1]), tirx.min_value(dtypes[2])),
)


def _average(match: PoolMatch, args: Arguments) -> Callable[..., Any]:
    (ry, rx), data, layout = _taps(match.window), args.reader(match.data), args.layout(match.data)
    h, w = match.image

    def value(*index: Any) -> Any:
        at, iy, ix = _tap(match, index, layout, ry, rx)
        inside = tirx.all(iy >= 0, iy < h, ix >= 0, ix < w)
        return te.sum(tirx.Select(inside, data(*at), tirx.const(0, "float32")), axis=[ry, rx])

    return value


def _divide(match: PoolMatch, index: Sequence[Any], pooled: Any) -> Any:
    """The sum of a window over the number of pixels that count, at a logical index."""
    ky, kx = match.window.kernel
    if match.counts_padding or not any(match.window.pads):
        return pooled / tirx.const(float(ky * kx), "float32")
    _, _, y, x = index
    (sy, sx), (dy, dx), (top, left) = match.window.strides, match.window.dilation, match.window.pads[:2]
    h, w = match.image
    rows = sum(_counts(y * sy + k * dy - top, h) for k in range(ky))
    columns = sum(_counts(x * sx + k * dx - left, w) for k in range(kx))
    return pooled / (rows * columns).astype("float32")


def _counts(at: Any, size: Any) -> Any:
    return tirx.Select(tirx.all(at >= 0, at < size), tirx.const(1, "int32"), tirx.const(0, "int32"))
