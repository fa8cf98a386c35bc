"""A 1x1 convolution and the depthwise convolution behind it in one kernel: an inverted residual's first two layers.

    conv2d(x, w1) -> bias, clip -> conv2d(.., w2, groups=C) -> bias, clip      on NCHW{l}c

What stands between is several times larger than what goes in or out, and is never stored whole:

    for strip of `strip` output rows in parallel(...): for `tile_o` blocks of channels:
        mid = epilogue1(conv1x1(rows of x that the strip's windows reach))      # stays in L2
        out[strip] = epilogue2(depthwise(mid))

Rows where two strips meet are computed twice. Of an image of any size, zeros stand between where it has ended: there
the depthwise convolution has its padding. After Sandler et al., "MobileNetV2", CVPR 2018, section 5.1, which
splits the channels of the block for the same end.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import seconds, thread_counts
from tvm_ext.core.graph.relax_graph import op_name
from tvm_ext.core.group import CONSTANTS, GROUP
from tvm_ext.core.layout import PackedWeight
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Match, Miss, Recipe, Sharing
from tvm_ext.core.sizes import INSIDE
from tvm_ext.ops.table import of

from ...blocked.convolution import Conv2dMatch, image_in_use
from ...blocked.cost import registers_used, step_cycles
from ...blocked.prefetch import buffer_name
from ...steps.arguments import Arguments
from ...steps.epilogue import Epilogue, blocked_layouts
from ...steps.loops import parallel_units, unroll_and_vectorize
from .conv2d_depthwise import Conv2dDepthwise, DepthwiseMatch, beyond_l2, depthwise_cycles, schedule_window, window_sums
from .conv2d_nchwc import Conv2dNCHWc


@dataclass(frozen=True)
class ExpandMatch(Match):
    """Two convolutions.

    Attributes:
        expand: the pointwise one.
        depthwise: the one behind it.
        lanes: channels of a block.
        inner: steps of the pointwise reduction that stand together.
    """

    expand: Conv2dMatch
    depthwise: DepthwiseMatch
    lanes: int
    inner: int


class ExpandDepthwise(Recipe[ExpandMatch]):
    """A pointwise convolution fused with the depthwise convolution that alone reads it."""

    name = "expand_depthwise"
    anchors = frozenset({"expand_depthwise"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> ExpandMatch | Miss:
        if any(of(op_name(b.value)).is_conversion for b in group.bindings):
            return Miss("a tensor of it is stored in another type than float32")
        expand, depthwise = _parts(group)
        if isinstance(inner := Conv2dNCHWc().match(expand, machine), Miss):
            return inner
        if isinstance(outer := Conv2dDepthwise().match(depthwise, machine), Miss):
            return outer
        if inner.window.kernel != (1, 1) or not inner.window.in_place:
            return Miss("the first convolution is not pointwise")
        if outer.multiplier != 1:
            return Miss("the depthwise convolution has a channel multiplier")
        channels = inner.data.shape[1]
        steps = next(i for i in range(machine.lanes, 0, -1) if channels % i == 0 and machine.lanes % i == 0)
        return ExpandMatch(group, inner, outer, machine.lanes, steps)

    def space(self, match: ExpandMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        blocks, rows = -(-match.group.shape[1] // match.lanes), match.group.shape[2]
        width = match.expand.window.image[1]
        work = math.prod(match.expand.group.shape) * match.expand.data.shape[1]
        return {
            "tile_o": [t for t in (1, 2, 3, 4) if blocks % t == 0],
            "tile_p": [t for t in (1, 2, 4, 6, 7, 8, 12, 14, 28) if t <= width],
            "window_p": list(Conv2dDepthwise().space(match.depthwise, machine)["tile_p"]),
            "strip": [s for s in range(1, rows + 1) if rows % s == 0],
            "threads": thread_counts(work / machine.lanes / machine.fma_per_cycle, machine),
        }

    def points(self, match: ExpandMatch, machine: Machine) -> Iterator[Config]:
        """The tile of the window is chosen by itself: it depends on no other knob."""
        knobs = dict(self.space(match, machine))
        tiles = [{"tile_p": t, "threads": 1} for t in knobs["window_p"]]
        best = min(tiles, key=lambda c: Conv2dDepthwise().cost(match.depthwise, c, machine))
        knobs["window_p"] = [best["tile_p"]]
        for values in itertools.product(*knobs.values()):
            yield dict(zip(knobs, values, strict=True))

    def cost(self, match: ExpandMatch, config: Config, machine: Machine) -> float:
        if _leaves_image(match, config["strip"]):
            return math.inf
        loops = _units(match, config)
        busy = _busy_threads(loops, config["threads"])
        return _seconds(match, config, machine, math.prod(loops) // busy, busy)

    def cost_cut(self, match: ExpandMatch, config: Config, machine: Machine) -> float:
        """Strips need not divide the rows, nor threads the strips."""
        units = math.prod(_units(match, config))
        busy = min(units, config["threads"])
        return _seconds(match, config, machine, -(-units // busy), busy)

    def sharing(self, match: ExpandMatch, config: Config, machine: Machine) -> Sharing:
        """Multiply-adds of vectors: rows that two strips reach are computed twice, rows of both are whole tiles."""
        n, c, h, w = match.group.shape
        to, tp, wp, strip = (config[k] for k in ("tile_o", "tile_p", "window_p", "strip"))
        blocks, channels, taps = -(-c // match.lanes), match.expand.data.shape[1], _taps(match)
        height, width = match.expand.window.image
        tiled, windows = -(-width // tp) * tp, -(-w // wp) * wp
        unit = to * (min(height, _reached(match, strip)) * tiled * channels + strip * windows * taps)
        loops = n, h // strip, blocks // to
        busy = _busy_threads(loops, config["threads"])
        real = n * blocks * (height * width * channels + h * w * taps)
        return Sharing(busy, real, math.prod(loops) * unit / busy)

    def layouts(self, match: ExpandMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        width = match.lanes * config["tile_o"]
        data = offered[match.group.params.index(match.expand.data)]
        own = {
            match.expand.data.var: data if self._reads(match, data) else Layout.blocked(4, match.lanes),
            match.expand.weight.var: PackedWeight.make(4, match.inner, width, -(-match.group.shape[1] // width)),
            match.depthwise.weight.var: Layout.blocked(4, match.lanes, axis=0),
        }
        return blocked_layouts(match.group, match.lanes, own)

    @staticmethod
    def _reads(match: ExpandMatch, layout: Layout) -> bool:
        """Blocks of any width that holds whole steps of the reduction."""
        lanes = layout.block[1] if layout.block else 0
        return lanes > 0 and layout == Layout.blocked(4, lanes) and lanes % match.inner == 0

    def compute(self, match: ExpandMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args = Arguments(match.group, layouts)
        of = {p.var: (args.tensor(p), args.layout(p)) for p in match.group.params}
        mid = _expanded(match, config, of)
        depthwise = match.depthwise.group
        of[match.depthwise.data.var] = (mid, layouts.output)
        epilogue = _epilogue(depthwise, of)
        n, blocks, h, w, lanes = layouts.output.physical_shape(match.group.shape)
        whole_tiles = -(-w // config["window_p"]) * config["window_p"]
        sums = window_sums(match.depthwise, mid, of[match.depthwise.weight.var][0], layouts.output)
        conv = te.compute((n, blocks, h, whole_tiles, lanes), sums, name="conv")
        out = te.compute((n, blocks, h, w, lanes), lambda *i: epilogue(layouts.output.logical(i), conv(*i)), name="out")
        return args.function(out)

    def schedule(self, sch: Schedule, match: ExpandMatch, config: Config, machine: Machine) -> None:
        conv, mid, tile, out = (sch.get_sblock(name) for name in ("conv", "mid", "tile", "out"))
        n, c, y, x, lane = sch.get_loops(out)
        c, ci = sch.split(c, [None, config["tile_o"]])
        y, yi = sch.split(y, [None, config["strip"]])
        x, xi = sch.split(x, [None, config["window_p"]])
        sch.reorder(n, y, c, ci, yi, x, xi, lane)
        unit = parallel_units(sch, [n, y, c], config["threads"])
        unroll_and_vectorize(sch, [xi], lane)
        schedule_window(sch, conv, x)
        sch.compute_at(mid, unit, preserve_unit_loops=True)
        c, y, x, lane = sch.get_loops(mid)[-4:]
        x, xi = sch.split(x, [None, config["tile_p"]])
        if _is_filled(match):
            sch.annotate(x, INSIDE, buffer_name(match, match.expand.data))
        sch.reorder(y, x, c, xi, lane)
        unroll_and_vectorize(sch, [c, xi], lane)
        _schedule_tile(sch, tile, x, wide=config["tile_o"] >= config["tile_p"])


def _schedule_tile(sch: Schedule, tile: Any, at: Any, wide: bool) -> None:
    """The register tile of the pointwise convolution; operands of the smaller side stay in registers."""
    sch.compute_at(tile, at, preserve_unit_loops=True)
    sch.set_scope(tile, 0, "local")
    c, _, xi, lane, rc, ri = sch.get_loops(tile)[-6:]
    inner = [c, xi] if wide else [xi, c]
    sch.reorder(rc, ri, *inner, lane)
    unroll_and_vectorize(sch, inner, lane)
    *_, first, second, lane = sch.get_loops(sch.decompose_reduction(tile, rc))
    unroll_and_vectorize(sch, [first, second], lane)


def _expanded(match: ExpandMatch, config: Config, of: Mapping[Any, Any]) -> te.Tensor:
    """The first convolution with its epilogue: stages "tile" and "mid"."""
    (data, layout), (weight, _) = of[match.expand.data.var], of[match.expand.weight.var]
    n, channels, h, w = match.expand.data.shape
    lanes, to, inner = match.lanes, config["tile_o"], match.inner
    blocks, whole_tiles = -(-match.group.shape[1] // lanes), -(-w // config["tile_p"]) * config["tile_p"]
    rc, ri = te.reduce_axis((0, channels // inner), name="rc"), te.reduce_axis((0, inner), name="ri")

    def sums(b: Any, c: Any, y: Any, x: Any, j: Any) -> Any:
        value = data(*layout.index((b, rc * inner + ri, y, tirx.min(x, w - 1))))
        return te.sum(value * weight(c // to, rc, 0, 0, ri, c % to * lanes + j), axis=[rc, ri])

    tile = te.compute((n, blocks, h, whole_tiles, lanes), sums, name="tile")
    epilogue, used = _epilogue(match.expand.group, of), image_in_use(match.group, match.expand.data)
    filled = _is_filled(match)

    def value(b: Any, c: Any, y: Any, x: Any, j: Any) -> Any:
        element = epilogue((b, c * lanes + j, y, x), tile(b, c, y, x, j))
        if not filled:
            return element
        return tirx.Select(tirx.all(y < used[0], x < used[1]), element, tirx.const(0, "float32"))

    return te.compute((n, blocks, h, w, lanes), value, name="mid")


def _epilogue(group: Group, of: Mapping[Any, Any]) -> Epilogue:
    return Epilogue(group, *zip(*(of[p.var] for p in group.params), strict=True))


def _units(match: ExpandMatch, config: Config) -> tuple[int, int, int]:
    """What threads share: images, strips, tiles of blocks of channels."""
    n, c, h, _ = match.group.shape
    return n, -(-h // config["strip"]), -(-c // match.lanes) // config["tile_o"]


def _seconds(match: ExpandMatch, config: Config, machine: Machine, units: int, busy: int) -> float:
    """Seconds of so many units on each of the threads that have any; infinite if registers or L2 do not hold one."""
    to, tp = config["tile_o"], config["tile_p"]
    (n, c, h, w), (height, width) = match.group.shape, match.expand.window.image
    strip, channels = min(config["strip"], h), match.expand.data.shape[1]
    reached = min(height, _reached(match, strip))
    if registers_used(config) > machine.registers or 4 * match.lanes * to * reached * width > machine.l2 // 2:
        return math.inf
    tile = channels * step_cycles(to, tp, machine.fma_per_cycle) + 10 + 2.0 * to * tp
    window = depthwise_cycles(match.depthwise, config["window_p"], machine)
    unit = reached * -(-width // tp) * tile + to * strip * window
    moved = 4 * n * (channels * height * width + c * h * w)
    return seconds(units * unit, beyond_l2(moved, machine, busy), machine, busy)


def _is_filled(match: ExpandMatch) -> bool:
    """Whether zeros are stored between where an image has ended: the padding of the depthwise convolution."""
    used = image_in_use(match.group, match.expand.data)
    return any(match.depthwise.window.pads) and not all(isinstance(extent, int) for extent in used)


def _taps(match: ExpandMatch) -> int:
    return math.prod(match.depthwise.window.kernel)


def _leaves_image(match: ExpandMatch, strip: int) -> bool:
    """Whether the windows of a strip lie in the padding altogether: then it has no rows of the middle to compute."""
    window, rows = match.depthwise.window, match.group.shape[2]
    stride, top = window.strides[0], window.pads[0]
    first, last = -top + _reached(match, strip) - 1, (rows - strip) * stride - top
    return first < 0 or last >= match.expand.window.image[0]


def _reached(match: ExpandMatch, strip: int) -> int:
    """Rows of the middle that the windows of a strip reach."""
    window = match.depthwise.window
    return (strip - 1) * window.strides[0] + (window.kernel[0] - 1) * window.dilation[0] + 1


def _busy_threads(loops: Sequence[int], threads: int) -> int:
    """Threads among which :func:`parallel_units` shares these loops."""
    left = threads
    for extent in loops:
        left //= math.gcd(extent, left)
    return threads // left


def _parts(group: Group) -> tuple[Group, Group]:
    """The group as two: up to the value between the convolutions, and from it on."""
    second = [i for i, b in enumerate(group.bindings) if op_name(b.value) == "relax.nn.conv2d"][1]
    middle = group.bindings[second - 1].var
    first, rest = group.bindings[:second], group.bindings[second:]
    return _part(group, first, middle, ()), _part(group, rest, group.result, (middle,))


def _part(group: Group, bindings: Sequence[relax.VarBinding], result: Any, inputs: Sequence[Any]) -> Group:
    read = [a for b in bindings for a in b.value.args]
    params = [*inputs, *(p.var for p in group.params if any(p.var.same_as(a) for a in read))]
    constant = [i for i, v in enumerate(params) if any(p.constant and p.var.same_as(v) for p in group.params)]
    body = relax.SeqExpr([relax.DataflowBlock(list(bindings))], result)
    function = relax.Function(params, body, result.ty)
    return Group(group.name, function.with_attr({GROUP: "relax.nn.conv2d", CONSTANTS: constant}))
