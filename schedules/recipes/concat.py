"""Concatenation along any axis, as copies of whole vectors.

concat(x, y, axis=1)  ->  y[:, 0:4] = x;  y[:, 4:9] = y        NCHW{l}c stays if all but the last operand fill blocks
"""

from __future__ import annotations

import itertools

from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Match, Miss

from ..steps.regions import Box, RegionRecipe, source


class Concat(RegionRecipe):
    """One box an operand."""

    name = "concat"
    anchors = frozenset({"relax.concat"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        call = group.call
        operands = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()  # type: ignore[union-attr]
        params = [group.param(o) for o in operands]
        found = [p for p in params if p is not None]
        if not found or len(found) < len(params):
            return Miss("an operand is no parameter of the group")
        if {p.computed for p in found} != {group.computed}:
            return Miss("operands and result are of several types")
        given, rank = call.attrs.axis, len(group.shape)  # type: ignore[union-attr]
        axis = int(given) % rank if given is not None else 0
        sizes = [p.shape[axis] for p in found]
        offsets = itertools.accumulate(sizes, initial=0)
        boxes = tuple(
            Box(source(group.params, p), p.shape, _at(axis, offset, rank), (0,) * rank, (1,) * rank)
            for p, offset in zip(found, offsets, strict=False)
            if 0 not in p.shape
        )
        if not boxes:
            return Miss("the result is empty")
        return Match(group, {"boxes": boxes, "sources": tuple(dict.fromkeys(b.source for b in boxes)), "value": None})


def _at(axis: int, offset: int, rank: int) -> tuple[int, ...]:
    return tuple(offset if a == axis else 0 for a in range(rank))
