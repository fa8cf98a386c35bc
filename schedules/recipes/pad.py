"""Padding with a constant: the inside is copied, the borders are filled.

pad(x, [0, 0, 1, 1])  ->  y[:, 1:5] = x;  y[:, 0:1] = 0;  y[:, 5:6] = 0        NCHW{l}c stays if no channel is padded
"""

import itertools
from collections.abc import Iterator

from tvm import tirx

from tvm_ext.core.recipe import Group, Machine, Miss

from ..steps.regions import Box, RegionMatch, RegionRecipe, source


class Pad(RegionRecipe):
    """One box inside, and two for each padded axis."""

    name = "pad"
    anchors = frozenset({"relax.nn.pad"})

    def match(self, group: Group, machine: Machine) -> RegionMatch | Miss:
        data, attrs = group.operand(0), group.attrs
        if data is None or data.computed != group.computed:
            return Miss("the operand is no parameter of the group, or operand and result are of several types")
        widths = [int(w) for w in attrs.pad_width]
        if attrs.pad_mode != "constant":
            return Miss(f"padding mode {attrs.pad_mode} is not constant")
        if any(w < 0 for w in widths) or 0 in group.shape or 0 in data.shape:
            return Miss("a padding is negative, or a tensor is empty")
        before, rank = tuple(widths[0::2]), len(data.shape)
        inside = Box(source(group.params, data), data.shape, before, (0,) * rank, (1,) * rank)
        boxes = (inside, *_borders(data.shape, before, group.shape))
        value = tirx.const(getattr(attrs.pad_value, "value", attrs.pad_value), group.computed)
        return RegionMatch(group, boxes, value)


def _borders(inside: tuple[int, ...], before: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Box]:
    """The rest of the result in boxes that do not overlap: what lies before and after the inside along each axis, whole
    along later axes, and only beside the inside along earlier ones."""
    for axis, (size, first, whole) in enumerate(zip(inside, before, shape, strict=True)):
        for start, extent in ((0, first), (first + size, whole - first - size)):
            if extent:
                target = (*before[:axis], start, *itertools.repeat(0, len(shape) - axis - 1))
                yield Box(None, (*inside[:axis], extent, *shape[axis + 1 :]), target)
