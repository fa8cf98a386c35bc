"""A slice of a tensor, as a copy of whole vectors where its step is one.

strided_slice(x, axes=[1], begin=[16], end=[48])  ->  y = x[:, 16:48]     NCHW{l}c stays if the slice begins a block
"""

from typing import Any

from tvm import relax
from tvm.tirx import IntImm

from tvm_ext.core.recipe import Group, Machine, Miss

from ..steps.regions import Box, RegionMatch, RegionRecipe, source


class StridedSlice(RegionRecipe):
    """One box, with a start and a step in its operand."""

    name = "strided_slice"
    anchors = frozenset({"relax.strided_slice"})

    def match(self, group: Group, machine: Machine) -> RegionMatch | Miss:
        data = group.operand(0)
        if data is None or data.computed != group.computed:
            return Miss("the operand is no parameter of the group, or operand and result are of several types")
        axes, begin, _, *more = (_integers(a) for a in group.call.args[1:])  # type: ignore[union-attr]
        steps = more[0] if more else [1] * len(axes or ())
        if axes is None or begin is None or steps is None:
            return Miss("a bound of the slice is only known at run time")
        if 0 in group.shape:
            return Miss("the result is empty")
        rank = len(data.shape)
        start, step = [0] * rank, [1] * rank
        for axis, first, stride in zip(axes, begin, steps, strict=True):
            size = data.shape[axis]
            first = first + size if first < 0 else first
            start[axis % rank] = min(max(first, 0), size - 1)
            step[axis % rank] = stride
        box = Box(source(group.params, data), group.shape, (0,) * rank, tuple(start), tuple(step))
        return RegionMatch(group, (box,))


def _integers(expr: Any) -> list[int] | None:
    """The values of a tuple of integers; None if one is not constant."""
    values = [getattr(f, "value", f) for f in expr.fields] if isinstance(expr, relax.Tuple) else []
    values = [v.value if isinstance(v, IntImm) else v for v in values]
    return values if all(isinstance(v, int) for v in values) else None
