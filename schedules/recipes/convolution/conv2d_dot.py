"""Direct 2-d convolution of int8 or bfloat16 by dot-product instructions, any kernel size, stride and dilation.

    conv2d(decode(x), decode(w)) -> +bias, +residual, relu, encode ...        x: NCHW{l}c, w: OIHW{i}i{o}o4i

It is the kernel of `conv2d_nchwc` with words of 4 (int8; 2 without VNNI) or 2 (bfloat16) input channels for steps
(:mod:`...dots.instructions`). Around the image stands what decodes to zero. The kernel writes that border itself, into
a workspace that its threads share; there it also makes signed inputs unsigned, or without VNNI all inputs 16 bits wide,
and puts few channels side by side (:mod:`...dots.image`). A row of the kernel is one run of numbers then, and is read
in words that cross pixels where these are fewer: of 4, 6 for 7 pixels of 3 channels, not 7.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss

from ...blocked import kernel as blocked
from ...blocked.convolution import convolution_of, free_extents, image_kernel, schedule_image
from ...blocked.prefetch import buffer_name
from ...dots.image import DotImageMatch, ReadWord, copied_blocks, copied_rows, in_blocks, schedule_copy
from ...dots.instructions import multiply
from ...dots.operands import AnchorValue, Operands, operands_of, schedule_shifts, weight_layout, words_of
from ...steps.arguments import Arguments
from ...steps.epilogue import blocked_layouts
from ...steps.widened import scale_layouts
from ...steps.window import Window

#: So many channels are read of a plain image.
_FEW = 4


class Conv2dDot(blocked.BlockedRecipe[DotImageMatch]):
    """Direct convolution by `vpdpbusd`, `vpmaddwd` or `vdpbf16ps`, register-blocked over output channels and pixels."""

    name = "conv2d_dot"
    anchors = frozenset({"relax.nn.conv2d"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> DotImageMatch | Miss:
        if isinstance(conv := convolution_of(group, any_type=True), Miss):
            return conv
        window = conv.window
        if window.groups != 1:
            return Miss(f"groups={window.groups}: this recipe has no grouped convolution")
        operands = operands_of(group, machine, output_axis=0)
        if isinstance(operands, Miss):
            return operands
        ci, few = window.channels, window.channels <= _FEW
        merged = _merges(window, operands)
        problem = _problem(window, operands, machine.lanes, merged)
        problem = replace(problem, weights_in=group.weights_in, free=any(free_extents(group)))
        # A channel beyond the last one, in a word with the last one, may hold NaN: it is read as zero.
        odd = operands.kind == "widen" and ci % operands.dot.group > 0
        copied = any(window.pads) or few or odd or operands.dot.widens
        return DotImageMatch(group, conv.data, conv.weight, problem, operands, copied, window, few, merged)

    def instruction(self, match: DotImageMatch) -> str:
        return match.dot.instruction

    def layouts(self, match: DotImageMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        lanes, data = match.problem.lanes, offered[match.group.params.index(match.data)]
        own = {
            **scale_layouts(match.group, match.weight, lanes),
            match.weight.var: replace(weight_layout(match, config), rows=match.merged),
            match.data.var: data if _reads(match, data) else _preferred(match),
        }
        return blocked_layouts(match.group, lanes, own)

    def compute(self, match: DotImageMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, window = Arguments(match.group, layouts), match.problem, match.window
        units = blocked.Units.of(problem, config)
        read = _reader(match, args.tensor(match.data), args.layout(match.data))

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any, rk: Any) -> Any:
            return read(n, *window.tap(*window.pixel(q), ry, rx), block * problem.inner + ri, rk)

        weight = words_of(match, args.tensor(match.weight))
        acc = blocked.reduce_tiles(problem, units, load, weight, dot=match.dot)
        value = AnchorValue(match, args, config)
        return image_kernel(args, problem, window, lambda n, o, q, j, channel: value(acc(n, o, q, j), o, j))

    def schedule(self, sch: Schedule, match: DotImageMatch, config: Config, machine: Machine) -> None:
        unit = blocked.schedule_tiles(
            sch, match.problem, config, dot=match.dot, weight=buffer_name(match, match.weight)
        )
        schedule_shifts(sch, match, unit)
        if match.copied:
            schedule_copy(sch, match, config)
        multiply(sch, match.dot)
        schedule_image(sch, match.problem, match.window, config)


def _merges(window: Window, operands: Operands) -> bool:
    """Whether words run over the channels of neighbouring pixels, because a row of the kernel has fewer of them so.

    The last word of a row may reach into pixels beside the kernel, whose weights are zero: a NaN of bfloat16 would
    spread from there, so that bfloat16 rows must be whole words.
    """
    ci, kw, group = window.channels, window.kernel[1], operands.dot.group
    fewer = -(-kw * ci // group) < kw * -(-ci // group)
    exact = operands.kind != "widen" or kw * ci % group == 0
    return ci <= _FEW and fewer and exact and window.dilation[1] == 1


def _problem(window: Window, operands: Operands, lanes: int, merged: bool) -> blocked.Problem:
    (kh, kw), (oh, ow), dot, group = window.kernel, window.out_image, operands.dot, operands.dot.group
    if merged:
        blocks, taps, inner = 1, (kh, 1), -(-kw * window.channels // group)
    else:
        words, taps = -(-window.channels // group), (kh, kw)
        inner = math.gcd(words, lanes // group)
        blocks = words // inner
    sizes = (window.images, window.outputs, oh * ow, ow, blocks, taps, inner, lanes)
    return blocked.Problem(*sizes, instruction=dot.rate, word=dot.weight_bytes, image=window.pixels_read)


def _preferred(match: DotImageMatch) -> Layout:
    return Layout.plain(4) if match.few else Layout.blocked(4, match.problem.lanes)


def _reads(match: DotImageMatch, layout: Layout) -> bool:
    """Few channels are read where they are; otherwise words that stand together must be in one block."""
    if layout.block is None:
        return layout == _preferred(match)
    lanes, together = layout.block[1], match.problem.inner * match.dot.group
    return layout == Layout.blocked(4, lanes) and (match.few or lanes % together == 0)


def _reader(match: DotImageMatch, data: te.Tensor, layout: Layout) -> ReadWord:
    if match.few:
        return copied_rows(match, data, layout)
    if match.copied:
        return copied_blocks(match, data, layout)
    return in_blocks(match, data, layout.physical_shape(match.data.shape)[-1] // match.dot.group)
