"""Concatenation along any axis, as copies of whole vectors.

concat(x, y, axis=1)  ->  y[:, 0:4] = x;  y[:, 4:9] = y        NCHW{l}c stays if all but the last operand fill blocks
"""

from __future__ import annotations

import itertools

from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss

from ..steps.regions import Box, RegionMatch, RegionRecipe, source


class Concat(RegionRecipe):
    """One box an operand."""

    name = "concat"
    anchors = frozenset({"relax.concat"})

    def match(self, group: Group, machine: Machine) -> RegionMatch | Miss:
        call = group.call
        operands = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()  # type: ignore[union-attr]
        params = [p for o in operands if (p := group.param(o)) is not None]
        if not params or len(params) < len(operands):
            return Miss("an operand is no parameter of the group")
        if {p.computed for p in params} != {group.computed}:
            return Miss("operands and result are of several types")
        rank = len(group.shape)
        axis = int(group.attrs.axis or 0) % rank
        sizes = [p.shape[axis] for p in params]
        offsets = itertools.accumulate(sizes, initial=0)
        boxes = tuple(
            Box(source(group.params, p), p.shape, _at(axis, offset, rank), (0,) * rank, (1,) * rank)
            for p, offset in zip(params, offsets, strict=False)
            if 0 not in p.shape
        )
        if not boxes:
            return Miss("the result is empty")
        return RegionMatch(group, boxes)


def _at(axis: int, offset: int, rank: int) -> tuple[int, ...]:
    return tuple(offset if a == axis else 0 for a in range(rank))
