"""What all convolution recipes read of a group, and the stage that writes the padding of an image."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.graph.relax_graph import attrs_of
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss, Param

from ..steps.arguments import Arguments
from ..steps.epilogue import blocked_layouts
from ..steps.loops import parallel_rows
from ..steps.storage import why_not_float32
from ..steps.widened import scale_layouts, why_not_widened, widened
from ..steps.window import Window
from .kernel import BlockedMatch, annotate_pixels
from .problem import Problem, TapRows

_LAYOUTS = ("data_layout", "kernel_layout", "out_layout")
_ATTRIBUTES = ("strides", "padding", "dilation", "groups", *_LAYOUTS)


@dataclass(frozen=True)
class Convolution:
    """An NCHW convolution with a constant weight.

    Attributes:
        data, weight: parameters of its group.
        window: its geometry.
    """

    data: Param
    weight: Param
    window: Window


@dataclass(frozen=True)
class Conv2dMatch(BlockedMatch):
    """A convolution of one group.

    Attributes:
        window: its geometry.
        input_lanes: channels of a block of the data, where it has no blocks yet.
    """

    window: Window
    input_lanes: int


def convolution_of(group: Group, kernel_layout: str = "OIHW", any_type: bool = False) -> Convolution | Miss:
    """The convolution that is the anchor of a group, in float32; or why it is none.

    Args:
        any_type: whether the recipe looks at the types of operands itself.
    """
    a = attrs_of(group.call, _ATTRIBUTES) if group.call is not None else {}
    data, weight = group.operand(0), group.operand(1)
    if data is None or weight is None:
        return Miss("data or weight is computed inside the group")
    if tuple(a[k] for k in _LAYOUTS) != ("NCHW", kernel_layout, "NCHW"):
        return Miss(f"layouts {a['data_layout']}/{a['kernel_layout']} are not NCHW/{kernel_layout}")
    if not any_type and (why := why_not_float32(group, data, weight)):
        return Miss(why)
    if not any_type and (why := why_not_widened(group, weight, kernel_layout.index("O"))):
        return Miss(why)
    if not weight.constant:
        return Miss("the weight is not a constant, so it cannot be packed")
    pads = a["padding"] if len(a["padding"]) == 4 else a["padding"] * 2
    (n, channels, h, w), (_, outputs, oh, ow), (kh, kw) = data.shape, group.shape, weight.shape[2:]
    sizes = a["strides"], a["dilation"], tuple(pads), a["groups"]
    return Convolution(data, weight, Window(n, channels, outputs, (h, w), (oh, ow), (kh, kw), *sizes))


def image_in_use(group: Group, data: Param) -> tuple[Any, Any]:
    """Rows and columns of an image that are in use: numbers, or expressions. What is beyond is padding."""
    return group.extent(data, 2), group.extent(data, 3)


def free_extents(group: Group) -> tuple[bool, bool, bool]:
    """Whether the images, rows and columns of a result have run-time extents."""
    images, rows, columns = (not isinstance(group.extent(None, axis), int) for axis in (0, 2, 3))
    return images, rows, columns


def channel_lanes(channels: int, machine: Machine) -> int:
    """Lanes of a block of channels: the machine's, or half of them where that computes a fifth less."""
    lanes, half = machine.lanes, machine.lanes // 2
    narrow = -(-channels // half) / machine.fma_at(half) if half >= 4 else math.inf
    return half if narrow <= 0.8 * -(-channels // lanes) / machine.fma_at(lanes) else lanes


def inner_steps(channels: int, lanes: int) -> int:
    """Input channels that stand together whatever block of `lanes` or fewer they lie in: few of them, or a divisor."""
    return channels if channels < lanes and channels <= 4 else math.gcd(channels, lanes)


def schedule_padding(sch: Schedule, data: Param, window: Window, threads: int, own: bool = False) -> None:
    """The stage of :func:`padded`, if there is one: rows among threads, blocks of channels in vectors.

    Args:
        own: whether each thread copies the rows that its outputs read, of which it wrote most itself; the loops of the
            stage "out" are scheduled then.
    """
    if _is_copied(data, window):
        pad = sch.get_sblock("pad")
        blocked = len(sch.get_loops(pad)) == 5
        if own:
            sch.compute_at(pad, sch.get_loops(sch.get_sblock("out"))[0], preserve_unit_loops=True)
        else:
            parallel_rows(sch, sch.get_loops(pad)[:3], threads)
        if blocked:
            sch.vectorize(sch.get_loops(pad)[-1])


def _is_copied(data: Param, window: Window) -> bool:
    """Whether the image is copied: with zeros around it, or because its elements are read many times decoded."""
    return any(window.pads) or bool(data.decode)


def reads_pixels(data: Param, window: Window) -> bool:
    """Whether a convolution reads each pixel of its input where it lies, once for each block of outputs."""
    return not _is_copied(data, window) and window.kernel == (1, 1) and window.strides == (1, 1)


def tap_rows(window: Window) -> TapRows | None:
    """The rows that a window's taps read of the image of :func:`padded`; None if none of them is of the padding."""
    top, _, bottom, _ = window.pads
    return TapRows(window.strides[0], window.dilation[0], top, top + window.image[0]) if top or bottom else None


def padded(args: Arguments, data: Param, window: Window) -> Any:
    """The image with the pads of the window, rows and columns of zeros, around it, in float32.

    A stage "pad" in the image's own layout; the image itself if it has no pads and needs no decoding.
    """
    if not _is_copied(data, window):
        return args.tensor(data)
    read, layout, (top, left, bottom, right) = args.reader(data), args.layout(data), window.pads
    (h, w), used = window.image, image_in_use(args.group, data)

    def value(*index: Any) -> Any:
        n, c, y, x = layout.logical(index)
        element = read(*layout.index((n, c, y - top, x - left)))
        return tirx.if_then_else(window.inside(y, x, used), element, tirx.const(0, data.computed))

    shape = layout.physical_shape((*data.shape[:2], h + top + bottom, w + left + right))
    return te.compute(shape, value, name="pad")


def image_layouts(group: Group, lanes: int, data: tuple[Param, Layout], weight: tuple[Param, Layout]) -> Layouts:
    """The result in blocks of `lanes` channels, and what is added to it alike.

    Args:
        data, weight: the operands, and the layouts that the kernel reads: of the weight, that of its numbers.
    """
    (image, own), (constant, packed) = data, weight
    scales, numbers = scale_layouts(group, constant, lanes), widened(group, constant, packed)
    return blocked_layouts(group, lanes, {**scales, image.var: own, constant.var: numbers})


def image_kernel(
    args: Arguments, problem: Problem, window: Window, anchor: Callable[..., Any], groups: int = 1
) -> tirx.PrimFunc:
    """The kernel whose stage "out" runs over (problem of the batch, block of outputs, pixel, lane).

    Args:
        anchor: of these four indices and the output channel, the anchor's value.
        groups: problems of the batch that are groups of the channels of one image.
    """

    def value(b: Any, o: Any, q: Any, j: Any) -> Any:
        channel = tirx.floormod(b, groups) * problem.outputs + o * problem.lanes + j
        return args.epilogue((tirx.floordiv(b, groups), channel, *window.pixel(q)), anchor(b, o, q, j, channel))

    shape = (problem.batch, problem.output_blocks, problem.pixels, problem.lanes)
    return args.function(te.compute(shape, value, name="out"))


def schedule_image(
    sch: Schedule, problem: Problem, window: Window, config: Config, groups: int = 1
) -> None:  # fmt: skip
    """The last step of the stage "out" of :func:`image_kernel`: the result is an image in blocks of channels."""
    blocks, out = problem.output_blocks, sch.get_sblock("out")

    def place(b: Any, o: Any, q: Any, j: Any) -> tuple[Any, ...]:
        return tirx.floordiv(b, groups), tirx.floormod(b, groups) * blocks + o, *window.pixel(q), j

    sch.transform_layout(out, ("write", 0), place)
    annotate_pixels(sch, out, problem, config)
