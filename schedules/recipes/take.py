"""Rows picked by index, such as embeddings, with fused epilogue.

take(table[V, H], indices[B, S], axis=0)  ->  for b, s: row = indices[b, s] mod V; for h in vectors: out = table[row, h]

An index is wrapped or clipped first, so that no load leaves the table; a whole row is copied in vectors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.graph.relax_graph import scalar_of, shape_of
from tvm_ext.core.recipe import Config, Group, Layouts, Machine, Match, Miss, Param, Recipe, VectorWork

from ..steps.arguments import Arguments
from ..steps.loops import parallel_rows, vectorize_all

#: Vector operations a row takes before its first element: load the index, divide it, compute the address.
_ROW = 40


@dataclass(frozen=True)
class TakeMatch(Match):
    """Rows that are picked.

    Attributes:
        data: the table.
        indices: the indices; None if there is one that is known, `fixed`.
        picked: dimensions of the indices.
        mode: what an index out of bounds means, "wrap" or "clip".
        axis: of the table.
    """

    data: Param
    indices: Param | None
    fixed: float | None
    picked: int
    mode: str
    axis: int

    @property
    def row(self) -> int:
        """Elements of the last dimension that one index picks; 1 if the last dimension is one of the indices."""
        return self.data.shape[-1] if self.axis < len(self.data.shape) - 1 else 1


class Take(Recipe[TakeMatch]):
    """Gather along one axis of a tensor of any dtype."""

    name = "take"
    anchors = frozenset({"relax.take"})

    def match(self, group: Group, machine: Machine) -> TakeMatch | Miss:
        call, data, indices = group.call, group.operand(0), group.operand(1)
        fixed = scalar_of(call.args[1])  # type: ignore[union-attr]
        if data is None or (indices is None and fixed is None):
            return Miss("the table or the indices are computed inside the group")
        if data.computed != group.computed:
            return Miss(f"the table is {data.computed}, the result {group.computed}")
        mode, axis = str(call.attrs.mode), call.attrs.axis  # type: ignore[union-attr]
        if mode not in ("wrap", "clip"):
            return Miss(f"mode {mode!r} reads foreign memory where an index is out of bounds; 'wrap' and 'clip' do not")
        if 0 in data.shape or 0 in group.shape:
            return Miss("the table or the result is empty")
        shape = shape_of(call.args[1])  # type: ignore[union-attr]
        axis = int(axis or 0) % len(data.shape)  # no axis: one dimension
        return TakeMatch(group, data, indices, fixed, len(shape or ()), mode, axis)

    def work(self, match: TakeMatch, machine: Machine) -> VectorWork:
        elements = math.prod(match.group.shape)
        return VectorWork(elements * len(match.group.bindings) + elements / match.row * _ROW * machine.lanes)

    def compute(self, match: TakeMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, axis, picked = Arguments(match.group, layouts), match.axis, match.picked
        data = args.reader(match.data)

        def picks(index: Sequence[Any]) -> Any:
            if match.indices is None:
                return tirx.const(int(match.fixed or 0), "int64")
            return args.tensor(match.indices)(*index)

        def value(*index: Any) -> Any:
            row = _inside(picks(index[axis : axis + picked]), match.data.shape[axis], match.mode)
            return data(*index[:axis], row, *index[axis + picked :])

        return args.kernel(value)

    def schedule(self, sch: Schedule, match: TakeMatch, config: Config, machine: Machine) -> None:
        block = sch.get_sblock("out")
        loops = sch.get_loops(block)
        if not loops:
            return
        if match.row == 1:  # single elements: a vector of indices is no vector of elements
            parallel_rows(sch, loops, config["threads"])
            return
        if len(loops) == 1:
            sch.add_unit_loop(block)
        *rows, column = sch.get_loops(block)
        parallel_rows(sch, rows, config["threads"])
        vectorize_all(sch, column, machine.lanes)


def _inside(index: Any, rows: int, mode: str) -> Any:
    """The row an index means: -1 is the last one where it wraps around."""
    extent, zero = tirx.const(rows, index.ty.dtype), tirx.const(0, index.ty.dtype)
    if mode == "wrap":
        return tirx.floormod(index, extent)
    return tirx.max(tirx.min(index, extent - 1), zero)
