"""Concatenation along any axis, as copies of whole vectors.

concat(x, y, axis=1)  ->  y[:, 0:4] = x;  y[:, 4:9] = y        NCHW{l}c stays if all but the last operand fill blocks
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tvm import relax, tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.recipe import Config, Group, Layouts, Machine, Miss, Param, Recipe

from ..steps.arguments import Arguments, building
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
        offsets = itertools.accumulate([p.shape[axis] for p in params], initial=0)
        boxes = tuple(
            Box(source(group.params, p), p.shape, _at(axis, offset, rank), (0,) * rank, (1,) * rank)
            for p, offset in zip(params, offsets, strict=False)
            if 0 not in p.shape
        )
        if not boxes:
            return Miss("the result is empty")
        return RegionMatch(group, boxes)


class ConcatAnySize(Recipe[RegionMatch]):
    """One copy an operand, in order; each begins where the extents of those before it say.

    Where the first one lies in the memory of the result already, as a state that grows does, `update-states` takes its
    copy out.
    """

    name = "concat_any_size"
    anchors = Concat.anchors
    any_size = True

    def match(self, group: Group, machine: Machine) -> RegionMatch | Miss:
        match = Concat().match(group, machine)
        if isinstance(match, Miss) or all(isinstance(_extent(group, match, box), int) for box in match.boxes):
            return match if isinstance(match, Miss) else Miss("all sizes along the axis are known")
        return match

    def space(self, match: RegionMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Threads share what stands before the axis."""
        return {"threads": [machine.threads], "lanes": [math.gcd(match.group.shape[-1], machine.lanes)]}

    def compute(self, match: RegionMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, offset = match.group, 0
        with building(group, layouts) as (builder, args, out), T.sblock("root"):
            for box in match.boxes:
                _copy(args, out, group.params[box.source or 0], offset, config)
                offset = offset + _extent(group, match, box)
        return builder.get()

    def schedule(self, sch: Schedule, match: RegionMatch, config: Config, machine: Machine) -> None:
        """Operands begin at run-time indices, which no schedule primitive takes: loops stand already."""


def _axis(group: Group) -> int:
    return int(group.attrs.axis or 0) % len(group.shape)


def _extent(group: Group, match: RegionMatch, box: Box) -> Any:
    """Run-time size of an operand along the axis."""
    return group.extent(group.params[box.source or 0], _axis(group))


def _copy(args: Arguments, out: Any, param: Param, offset: Any, config: Config) -> None:
    """out[.., offset + i, ..] = param[.., i, ..], in vectors of the last axis where its size is known."""
    group, axis, rank = args.group, _axis(args.group), len(param.shape)
    extents = [group.extent(param, a) for a in range(rank)]
    lanes = config["lanes"] if axis < rank - 1 and isinstance(extents[-1], int) else 1
    outer = math.prod(param.shape[:axis]) if all(isinstance(e, int) for e in extents[:axis]) else 1
    threads = next(t for t in range(config["threads"], 0, -1) if outer % t == 0)
    with ExitStack() as stack:
        index: list[Any] = []
        if threads > 1:
            thread = stack.enter_context(T.parallel(threads))
            place = thread * (outer // threads) + stack.enter_context(T.serial(outer // threads))
            index = [place // math.prod(param.shape[a + 1 : axis]) % param.shape[a] for a in range(axis)]
        index += [stack.enter_context(T.serial(e)) for e in extents[len(index) : rank - (lanes > 1)]]
        if lanes > 1:
            vector = stack.enter_context(T.serial(extents[-1] // lanes))
            index.append(vector * lanes + stack.enter_context(T.vectorized(lanes)))
        target = [i + offset if a == axis else i for a, i in enumerate(index)]
        T.buffer_store(out, args.epilogue(target, args.reader(param)(*args.layout(param).index(index))), target)


def _at(axis: int, offset: int, rank: int) -> tuple[int, ...]:
    return tuple(offset if a == axis else 0 for a in range(rank))
