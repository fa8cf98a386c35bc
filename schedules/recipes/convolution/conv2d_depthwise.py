"""Depthwise 2-d convolution on NCHW{lanes}c, any kernel size, stride, padding and dilation, with fused epilogue.

    conv2d(x, w, groups=C) -> +bias, clip, ...       x: NCHW{l}c, w: OIHW{l}o, result: NCHW{l}c

One vector of channels by a tile of `tile_p` pixels of a row is held in registers over the window:

    for n, c, y in parallel(...): for x in tiles:
        for ry:                                     # a loop: its iterations share one body
            for rx, xi: acc[xi] += x[y + ry, x + rx + xi] * w[ry, rx]
        out[tile] = epilogue(acc)

No padding is written. A tap outside the image adds nothing: the condition is one branch a row, and at the taps of a
tile that can leave the image by their column; it is proved away for all others. Each input vector is read as the
memory operand of its multiply-adds, and the next taps find it in L1, so that the kernel runs at the speed of its
multiply-adds: a copy with the padding in it would cost half of that again. So would conditions on run-time extents:
where an image ends before its buffer does, the padding is written there (:meth:`Conv2dDepthwise.border`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import Stream, level_of, seconds, thread_counts, vector_cycles
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Match, Miss, Param, Recipe, Sharing

from ...blocked.convolution import convolution_of, image_in_use, image_layouts
from ...steps.arguments import Arguments
from ...steps.loops import image_sharing, parallel_image, unroll_and_vectorize
from ...steps.storage import Decoding, Reader
from ...steps.widened import scaled
from ...steps.window import Window

#: Cycles a tile takes besides its multiply-adds: loop control, conditions, the latency of the first and the last.
_TILE_CYCLES = 8.0
_LATENCY = 4.0


@dataclass(frozen=True)
class DepthwiseMatch(Match):
    """A depthwise convolution.

    Attributes:
        data, weight: its operands.
        window: its geometry.
        lanes: channels of a block.
        multiplier: outputs of a channel.
    """

    data: Param
    weight: Param
    window: Window
    lanes: int
    multiplier: int

    @property
    def needs_border(self) -> bool:
        """Whether the padding begins where only a run-time extent says."""
        used = image_in_use(self.group, self.data)
        return any(self.window.pads) and not all(isinstance(n, int) for n in used)


class Conv2dDepthwise(Recipe[DepthwiseMatch]):
    """Depthwise convolution; with a channel multiplier, outputs gather their inputs."""

    name = "conv2d_depthwise"
    anchors = frozenset({"relax.nn.conv2d"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> DepthwiseMatch | Miss:
        if isinstance(conv := convolution_of(group), Miss):
            return conv
        window, channels = conv.window, conv.window.channels
        if window.groups != channels or channels == 1:
            return Miss(f"groups={window.groups} of {channels} channels: not depthwise")
        match = DepthwiseMatch(group, conv.data, conv.weight, window, machine.lanes, window.outputs // channels)
        if match.needs_border and Decoding.of(group, conv.data).zero_point is None:
            return Miss("what stands for zero behind an image of any size is only known at run time")
        return match

    def space(self, match: DepthwiseMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        most = min(match.window.out_image[1], machine.registers // 2, 8)
        work = math.prod(match.group.shape) * math.prod(match.window.kernel)
        counts, tile = thread_counts(vector_cycles(work, machine), machine), {"tile_p": most}
        threads = min(counts, key=lambda t: self.cost(match, {**tile, "threads": t}, machine))
        return {"tile_p": list(range(1, most + 1)), "threads": [threads]}

    def cost(self, match: DepthwiseMatch, config: Config, machine: Machine) -> float:
        n, c, h, w = match.group.shape
        blocks, threads = -(-c // match.lanes), config["threads"]
        rows = image_sharing(n, blocks, h, threads)
        cycles = rows.busiest * depthwise_cycles(match, config["tile_p"], machine)
        moved = 4 * match.lanes * n * blocks * (math.prod(match.window.image) + h * w)
        return seconds(cycles, beyond_l2(moved, machine, threads), machine, rows.threads)

    def sharing(self, match: DepthwiseMatch, config: Config, machine: Machine) -> Sharing:
        """Pixels of rows of blocks of channels, in whole tiles."""
        n, c, h, w = match.group.shape
        rows, tile = image_sharing(n, -(-c // match.lanes), h, config["threads"]), config["tile_p"]
        return Sharing(rows.threads, rows.real * w, rows.busiest * -(-w // tile) * tile)

    def border(self, match: DepthwiseMatch) -> Mapping[int, float]:
        zero = Decoding.of(match.group, match.data).zero_point
        return {match.group.params.index(match.data): zero or 0} if match.needs_border else {}

    def layouts(self, match: DepthwiseMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        data, weight = Layout.blocked(4, match.lanes), Layout.blocked(4, match.lanes, axis=0)
        return image_layouts(match.group, match.lanes, (match.data, data), (match.weight, weight))

    def compute(self, match: DepthwiseMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args = Arguments(match.group, layouts)
        n, blocks, h, w, lanes = layouts.output.physical_shape(match.group.shape)
        whole_tiles = -(-w // config["tile_p"]) * config["tile_p"]
        sums = window_sums(match, args.reader(match.data), args.tensor(match.weight), args.layout(match.data))
        conv, scale = te.compute((n, blocks, h, whole_tiles, lanes), sums, name="conv"), scaled(args, match.weight)
        return args.kernel(lambda *i: scale(conv(*i), layouts.output.logical(i)[1]))

    def schedule(self, sch: Schedule, match: DepthwiseMatch, config: Config, machine: Machine) -> None:
        conv, out = sch.get_sblock("conv"), sch.get_sblock("out")
        n, c, y, x, lane = sch.get_loops(out)
        x, xi = sch.split(x, [None, config["tile_p"]])
        parallel_image(sch, n, c, y, config["threads"])
        unroll_and_vectorize(sch, [xi], lane)
        schedule_window(sch, conv, x)


def schedule_window(sch: Schedule, conv: Any, at: Any) -> None:
    """The block of the sums, for one tile of pixels at a time: under the loop `at` over the tiles of a row."""
    sch.compute_at(conv, at, preserve_unit_loops=True)
    sch.set_scope(conv, 0, "local")
    xi, lane, ry, rx = sch.get_loops(conv)[-4:]
    sch.reorder(ry, rx, xi, lane)
    unroll_and_vectorize(sch, [rx, xi], lane)
    *_, xi, lane = sch.get_loops(sch.decompose_reduction(conv, ry))
    unroll_and_vectorize(sch, [xi], lane)


def beyond_l2(moved: int, machine: Machine, threads: int) -> list[Stream]:
    """What each thread moves beyond its own caches, of so many bytes that all move; nothing if these hold them."""
    each = moved / threads
    return [Stream(each, level_of(each, machine, threads), 1.0)] if each > machine.l2 else []


def depthwise_cycles(match: DepthwiseMatch, tile: int, machine: Machine) -> float:
    """Cycles of one row of one block of channels, its operands in cache."""
    taps, tiles = math.prod(match.window.kernel), -(-match.window.out_image[1] // tile)
    cycles = taps * max(tile / machine.fma_per_cycle, _LATENCY) + _TILE_CYCLES
    if match.multiplier > 1:  # one lane is loaded at a time
        cycles += taps * tile * match.lanes
    return float(tiles * cycles)


def window_sums(match: DepthwiseMatch, data: Reader, weight: te.Tensor, layout: Layout) -> Any:
    """The sum over the window as a function of a physical index; taps outside the image add nothing."""
    window, (h, w), (kh, kw), (top, left) = match.window, match.window.image, match.window.kernel, match.window.pads[:2]
    ry, rx = te.reduce_axis((0, kh), name="ry"), te.reduce_axis((0, kw), name="rx")

    def value(n: Any, c: Any, y: Any, x: Any, lane: Any) -> Any:
        iy, ix = window.tap(y, x, ry, rx)
        iy, ix = iy - top, ix - left
        channel = tirx.floordiv(c * match.lanes + lane, match.multiplier)
        inside = tirx.all(iy >= 0, iy < h, ix >= 0, ix < w)
        tap = tirx.if_then_else(inside, data(*layout.index((n, channel, iy, ix))), tirx.const(0, "float32"))
        return te.sum(tap * weight(c, 0, ry, rx, lane), axis=[ry, rx])

    return value
