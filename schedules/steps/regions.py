"""Kernels that only move data: boxes of the result, each a copy of a box of an operand, or one value.

    concat(x, y): y[:, 0:4] = x;  y[:, 4:9] = y          pad(x): y[1:5, 1:5] = x;  y[0:1, :] = 0;  ...

A box is one block of the kernel, scheduled as an elementwise one. Boxes are physical: in a layout whose blocks they do
not cut, they are copied block by block and the layout stays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.cost.estimate import vector_threads
from tvm_ext.core.recipe import Config, Layout, Layouts, Machine, Match, Param, Recipe, VectorWork

from .arguments import Arguments, building
from .epilogue import operand_layouts
from .loops import flat_map


@dataclass(frozen=True)
class Box:
    """A box of the result, in logical indices.

    Attributes:
        source: position of the operand among the group's parameters; None for a constant.
        shape: extents of the box.
        target: first index in the result.
        start, step: first index in the operand, and distance of two elements.
    """

    source: int | None
    shape: tuple[int, ...]
    target: tuple[int, ...]
    start: tuple[int, ...] = ()
    step: tuple[int, ...] = ()


@dataclass(frozen=True)
class RegionMatch(Match):
    """A kernel that moves data.

    Attributes:
        boxes: of the result, which they cover.
        value: what boxes of no operand hold; None if there are none.
    """

    boxes: tuple[Box, ...]
    value: Any = None

    @property
    def sources(self) -> list[int]:
        """Positions of the operands among the group's parameters, each once."""
        return list(dict.fromkeys(box.source for box in self.boxes if box.source is not None))


class RegionRecipe(Recipe[RegionMatch]):
    """What concat, slice and pad share."""

    def work(self, match: RegionMatch, machine: Machine) -> VectorWork:
        return VectorWork(2 * math.prod(match.group.shape))

    def layouts(self, match: RegionMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        """The layout of the largest operand whose blocks no box cuts, or as ONNX has it."""
        params = match.group.params
        largest = sorted(match.sources, key=lambda i: -math.prod(params[i].shape))
        whole = (offered[i] for i in largest if all(_keeps_blocks(b, offered[i], match) for b in match.boxes))
        result = next(whole, Layout.plain(len(match.group.shape)))
        rest = operand_layouts(params, match.group.shape, result)
        return Layouts(tuple(result if i in match.sources else rest[i] for i in range(len(params))), result)

    def compute(self, match: RegionMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        with building(match.group, layouts) as (builder, args, out):
            for number, box in enumerate(match.boxes):
                _copy(_Physical(box, layouts.output), f"box{number}", args, out, match.value)
        return builder.get()

    def schedule(self, sch: Schedule, match: RegionMatch, config: Config, machine: Machine) -> None:
        for block in sch.get_child_blocks(sch.get_sblock("root")):
            elements = math.prod(int(sch.get(loop).extent) for loop in sch.get_loops(block))
            flat_map(sch, block, min(config["threads"], vector_threads(2 * elements, machine)), machine.lanes)


def _keeps_blocks(box: Box, layout: Layout, match: RegionMatch) -> bool:
    """Whether a box consists of whole blocks, in the result and in its operand."""
    if len(layout.order) != len(match.group.shape):
        return False
    if layout.block is None:
        return True
    axis, lanes = layout.block
    ends = box.target[axis] + box.shape[axis] == match.group.shape[axis]
    if box.target[axis] % lanes or (box.shape[axis] % lanes and not ends):
        return False
    return box.source is None or (box.start[axis] % lanes == 0 and box.step[axis] == 1)


class _Physical:
    """A box in physical indices: whole blocks are counted, and all their lanes are copied."""

    def __init__(self, box: Box, layout: Layout) -> None:
        self.source, self.layout = box.source, layout
        self.shape = layout.physical_shape(box.shape)
        self.target = self._blocks(box.target)
        self.start = self._blocks(box.start) if box.start else self.target
        self.step = (*(box.step[a] for a in layout.order), *([1] if layout.block else [])) if box.step else ()

    def _blocks(self, index: Sequence[int]) -> tuple[int, ...]:
        """Physical index of a logical one that begins a block."""
        return tuple(int(i) for i in self.layout.index(index))


def _copy(box: _Physical, name: str, args: Arguments, out: Any, value: Any) -> None:
    with T.grid(*box.shape) as loops, T.sblock(name):
        loops = [loops] if isinstance(loops, tirx.Var) else list(loops)
        at = T.axis.remap("S" * len(loops), loops)
        at = [at] if isinstance(at, tirx.Var) else list(at)
        index = [_shifted(v, t) for v, t in zip(at, box.target, strict=True)]
        if box.source is not None:
            where = [_shifted(v * s if s != 1 else v, t) for v, s, t in zip(at, box.step, box.start, strict=True)]
            value = args.reader(args.group.params[box.source])(*where)
        T.buffer_store(out, args.epilogue(box.layout.logical(index), value), index)


def _shifted(index: Any, by: int) -> Any:
    return index + by if by else index


def source(params: Sequence[Param], param: Param) -> int:
    """Position of an operand among the parameters."""
    return next(i for i, p in enumerate(params) if p is param)
