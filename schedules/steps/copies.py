"""A copy from one layout to another, as the fewest axes that describe it, each with its strides in both tensors.

(1, 64, 56, 56), NCHW -> NCHW16c    axis   extent   stride in the source   stride in the target
                                    c      64       3136                   50176 from block to block of 16, 1 within
                                    hw     3136     1                      16
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm_ext.core.layout import Layout


@dataclass(frozen=True)
class Place:
    """Where the elements of an axis lie in one tensor.

    Attributes:
        stride: elements from one to the next; from one block to the next if there are blocks.
        lanes: elements of a block, which lie side by side; 0 if the axis is in no blocks.
    """

    stride: int
    lanes: int = 0

    def offset(self, index: Any) -> Any:
        """Elements before the one at `index`; works on ints and on TIR expressions."""
        if self.lanes:
            return index // self.lanes * self.stride + index % self.lanes
        return index * self.stride

    @property
    def contiguous(self) -> bool:
        """Whether neighbours lie side by side, in a block at least."""
        return self.stride == 1 or self.lanes > 0


@dataclass(frozen=True)
class Axis:
    """An axis of a copy: its extent, and its place in the source and in the target."""

    extent: int
    source: Place
    target: Place

    @property
    def blocked(self) -> bool:
        return self.source.lanes > 0 or self.target.lanes > 0


def axes_of(shape: Sequence[int], source: Layout, target: Layout) -> list[Axis]:
    """The axes of a copy, the one of the largest stride in the target first; at least one.

    Neighbours in both tensors are one axis. An axis of one element is none, unless it has lanes: they are contiguous.
    """
    places = zip(shape, _places(shape, source), _places(shape, target), strict=True)
    blocked = {layout.block[0] for layout in (source, target) if layout.block}
    axes = [Axis(*axis) for i, axis in enumerate(places) if shape[i] > 1 or i in blocked]
    axes.sort(key=lambda a: (-a.target.stride, -a.source.stride))
    merged: list[Axis] = []
    for axis in axes:
        if merged and _is_one_axis(merged[-1], axis):
            axis = replace(axis, extent=merged.pop().extent * axis.extent)
        merged.append(axis)
    return merged or [Axis(math.prod(shape), Place(1), Place(1))]


def _places(shape: Sequence[int], layout: Layout) -> list[Place]:
    blocked, lanes = layout.block or (-1, 1)
    places, step = {}, lanes
    for axis in reversed(layout.order):
        # Blocks with nothing between them are no blocks.
        places[axis] = Place(step, lanes) if axis == blocked and step > lanes else Place(1 if axis == blocked else step)
        step *= -(-shape[axis] // lanes) if axis == blocked else shape[axis]
    return [places[axis] for axis in range(len(shape))]


def _is_one_axis(outer: Axis, inner: Axis) -> bool:
    """Whether two axes are walked as one, in both tensors."""
    if outer.blocked or inner.blocked:
        return False
    pairs = (outer.source, inner.source), (outer.target, inner.target)
    return all(o.stride == i.stride * inner.extent for o, i in pairs)
