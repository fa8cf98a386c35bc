"""What all convolution recipes read of a group, and the stage that writes the padding of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.graph.relax_graph import attrs_of
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Match, Miss

from ..steps.loops import parallel_rows
from ..steps.storage import reader, why_not_float32
from ..steps.widened import why_not_widened

_LAYOUTS = ("data_layout", "kernel_layout", "out_layout")
_ATTRIBUTES = ("strides", "padding", "dilation", "groups", *_LAYOUTS)


def facts_of(group: Group, kernel_layout: str = "OIHW", any_type: bool = False) -> dict[str, Any] | Miss:
    """Operands and attributes of an NCHW convolution in float32 with a constant weight; or why it is none.

    Args:
        any_type: whether the recipe looks at the types of operands itself.

    Returns:
        `data`, `weight` (parameters), `image` and `out_image` (height, width), `strides`, `dilation`, `groups`, and
        `pads` (top, left, bottom, right).
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
    return {
        "data": data, "weight": weight, "image": data.shape[2:], "out_image": group.shape[2:],
        "strides": a["strides"], "dilation": a["dilation"], "groups": a["groups"], "pads": tuple(pads),
    }  # fmt: skip


def channel_lanes(channels: int, machine: Machine) -> int:
    """Lanes of a block of channels: the machine's, or half of them where that computes a fifth less."""
    lanes, half = machine.lanes, machine.lanes // 2
    narrow = -(-channels // half) / machine.fma_at(half) if half >= 4 else math.inf
    return half if narrow <= 0.8 * -(-channels // lanes) / machine.fma_at(lanes) else lanes


def inner_steps(channels: int, lanes: int) -> int:
    """Input channels that stand together whatever block of `lanes` or fewer they lie in: few of them, or a divisor."""
    return channels if channels < lanes and channels <= 4 else math.gcd(channels, lanes)


def schedule_padding(sch: Schedule, match: Match, threads: int) -> None:
    """The stage of :func:`padded`, if there is one: rows among threads, blocks of channels in vectors."""
    if _copied(match):
        *rows, last = sch.get_loops(sch.get_sblock("pad"))
        parallel_rows(sch, rows[:3], threads)
        if len(rows) == 4:
            sch.vectorize(last)


def _copied(match: Match) -> bool:
    """Whether the image is copied: with zeros around it, or because its elements are read many times decoded."""
    return any(match.pads) or bool(match.data.decode)


def padded(match: Match, tensors: Sequence[te.Tensor], layouts: Sequence[Layout]) -> te.Tensor:
    """The image with `match.pads` rows and columns of zeros around it, in float32.

    A stage "pad" in the image's own layout; the image itself if it has no pads and needs no decoding.

    Args:
        match: of a convolution.
        tensors, layouts: of the parameters of its group, in order.
    """
    data, at = reader(match.group, tensors, layouts, match.data), match.group.params.index(match.data)
    if not _copied(match):
        return tensors[at]
    layout, (top, left, bottom, right) = layouts[at], match.pads
    h, w = match.image
    n, c = match.data.shape[:2]

    def value(*index: Any) -> Any:
        b, ch, y, x = layout.logical(index)
        inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        return tirx.if_then_else(
            inside, data(*layout.index((b, ch, y - top, x - left))), tirx.const(0, match.data.computed)
        )

    return te.compute(layout.physical_shape((n, c, h + top + bottom, w + left + right)), value, name="pad")
