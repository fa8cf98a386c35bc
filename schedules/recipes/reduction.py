"""Sum, mean, maximum and minimum over any axes in any layout, with fused epilogue; global pooling is one of them.

mean(x, axis=[2, 3])  x: NCHW{l}c     each lane has a channel; several vectors of channels side by side
sum(x, axis=[0])      x: (R, C)       each lane has a column
sum(x, axis=[-1])     x: (R, C)       vectors of partial results a row, then one (row_reduction.py)
sum(x, axis=[0, 2])   x: (R, M, C)    first the rows, then over R

Loops over a reduced axis with a run-time extent end at it. In rows, and in blocks of that axis, vectors take what the
reduction starts from in the place of elements behind the extent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Match, Miss, Param, Recipe, VectorWork

from ..steps import row_reduction
from ..steps.arguments import Arguments
from ..steps.indices import flatten, unflatten
from ..steps.loops import flat_map, parallel_rows, unroll_and_vectorize
from ..steps.storage import Reader, why_not_float32

_KINDS = {"relax.mean": "sum", "relax.sum": "sum", "relax.max": "max", "relax.min": "min"}
#: Vectors of results that are summed side by side: they fill the latency of an addition.
_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class ReductionMatch(Match):
    """A reduction.

    Attributes:
        data: the input.
        axes: that are reduced, in order.
        keepdims: whether the result has them, of one element.
        lanes: f32 lanes of the machine.
    """

    data: Param
    axes: tuple[int, ...]
    keepdims: bool
    lanes: int

    @property
    def kind(self) -> str:
        """What is computed, a key of :data:`..steps.row_reduction.COMBINE`."""
        return _KINDS[self.group.anchor]


class Reduction(Recipe[ReductionMatch]):
    """Reduction over any axes, in float32."""

    name = "reduction"
    anchors = frozenset(_KINDS)
    any_size = True

    def match(self, group: Group, machine: Machine) -> ReductionMatch | Miss:
        data = group.operand(0)
        if data is None:
            return Miss("the operand is computed inside the group")
        if why := why_not_float32(group, data):
            return Miss(why)
        axis, rank = group.attrs.axis, len(data.shape)
        axes = range(rank) if axis is None else sorted({int(a) % rank for a in axis})
        if not axes or 0 in data.shape:
            return Miss("nothing is reduced, or the input is empty")
        return ReductionMatch(group, data, tuple(axes), bool(group.attrs.keepdims), machine.lanes)

    def work(self, match: ReductionMatch, machine: Machine) -> VectorWork:
        return VectorWork(math.prod(match.data.shape))

    def layouts(self, match: ReductionMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        layout, shape = offered[match.group.params.index(match.data)], match.data.shape
        # Lanes beyond the last channel hold no value: they must not be summed.
        if layout.block and layout.block[0] in match.axes and shape[layout.block[0]] % layout.block[1]:
            layout = Layout.plain(len(shape))
        return Layouts.plain(match.group, {match.data.var: layout})

    def compute(self, match: ReductionMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args = Arguments(match.group, layouts)
        layout = args.layout(match.data)
        reduced = _Physical(match, layout)
        result = reduced.compute(args.reader(match.data))

        def value(*index: Any) -> Any:
            full = list(index) if match.keepdims else _insert(index, match.axes)
            at = layout.index(full)
            element = result(*reduced.index(at))
            return _mean(match, element) if match.group.anchor == "relax.mean" else element

        return args.kernel(value)

    def schedule(self, sch: Schedule, match: ReductionMatch, config: Config, machine: Machine) -> None:
        names = {str(sch.get(b).name_hint) for b in sch.get_child_blocks(sch.get_sblock("root"))}
        if "rows" in names:
            _schedule_rows(sch, config["threads"])
        if "reduce" in names:
            _schedule_columns(sch, config["threads"], machine.lanes)
        flat_map(sch, sch.get_sblock("out"), 1, machine.lanes)


class _Physical:
    """The reduction in terms of physical dimensions: kept and reduced ones in turn.

    Attributes:
        row: extents of the innermost dimensions, if these are reduced.
        outer: the other reduced dimensions.
        used: run-time extents of all dimensions: numbers, or expressions.
        masked: reduced axes of which a loop over dimensions reaches elements behind the run-time extent.
        lead, run: kept dimensions; those of the run lie together, innermost of all that are kept.
    """

    def __init__(self, match: ReductionMatch, layout: Layout) -> None:
        self.match, self.layout = match, layout
        self.shape = layout.physical_shape(match.data.shape)
        axes = [*layout.order, *([layout.block[0]] if layout.block else [])]
        kept = [d for d, a in enumerate(axes) if a not in match.axes]
        last = max(kept, default=-1) + 1
        self.row = self.shape[last:]
        self.outer = [d for d in range(last) if d not in kept]
        extents, block = [match.group.extent(match.data, a) for a in range(len(layout.order))], layout.block or (-1, 1)
        self.used = [(extents[a] + block[1] - 1) // block[1] if a == block[0] else extents[a] for a in layout.order]
        self.used += self.shape[len(layout.order) :]
        inside = {axes[d] for d in range(last, len(axes))} | {block[0]}
        self.masked = {a: n for a, n in enumerate(extents) if not isinstance(n, int) and a in inside & {*match.axes}}
        start = max(self.outer, default=-1) + 1
        self.lead, self.run = [d for d in kept if d < start], [d for d in kept if d >= start]

    def index(self, at: Sequence[Any]) -> tuple[Any, ...]:
        """Index of the result, at a physical index of the data."""
        run = flatten([at[d] for d in self.run], self._extents(self.run))
        return (*(at[d] for d in self.lead), run)

    def compute(self, data: Reader) -> te.Tensor:
        """Rows first, if the innermost dimension is reduced; then what is reduced further out."""
        inner = self._rows(data) if self.row else lambda *i: self._element(data, *i)
        axes = {d: te.reduce_axis((0, self.used[d]), name=f"r{d}") for d in self.outer}
        shape, over = self._extents(self.run), row_reduction.COMBINE[self.match.kind][0]

        def value(*index: Any) -> Any:
            run = unflatten(index[-1], shape) if shape else ()
            at = {**dict(zip([*self.lead, *self.run], [*index[:-1], *run], strict=True)), **axes}
            element = inner(*(at[d] for d in sorted(at)))
            return over(element, axis=list(axes.values())) if axes else element

        return te.compute([*self._extents(self.lead), math.prod(shape)], value, name="reduce" if axes else "rows")

    def _element(self, data: Reader, *at: Any) -> Any:
        """The element at a physical index; behind a run-time extent, what changes no result."""
        index = self.layout.logical(at)
        inside = [index[a] < extent for a, extent in self.masked.items()]
        return row_reduction.in_use(self.match.kind, tirx.all(*inside), data(*at)) if inside else data(*at)

    def _rows(self, data: Reader) -> Any:
        lead = self.shape[: len(self.shape) - len(self.row)]

        def term(*i: Any) -> Any:
            return self._element(data, *i[: len(lead)], *unflatten(i[-1], self.row))

        kind, length, first = self.match.kind, math.prod(self.row), self.used[len(lead)]
        end = None if isinstance(first, int) else first * math.prod(self.row[1:])
        rows = row_reduction.compute("row", kind, lead or (1,), length, self.match.lanes, term, end)
        if not self.outer:
            return lambda *i: rows(*(i or (0,)), 0)
        return te.compute(lead, lambda *i: rows(*i, 0), name="rows")

    def _extents(self, dimensions: Sequence[int]) -> list[int]:
        return [self.shape[d] for d in dimensions]


def _mean(match: ReductionMatch, total: Any) -> Any:
    """A sum over the number of its elements."""
    count = math.prod((match.group.extent(match.data, a) for a in match.axes), start=1)
    divisor = tirx.const(float(count), "float32") if isinstance(count, int) else count.astype("float32")
    return total / divisor  # the mean of a constant is that constant, as times the reciprocal of 61 it is not


def _schedule_rows(sch: Schedule, threads: int) -> None:
    block = sch.get_sblock("rows")
    loops = sch.get_loops(block)
    rows = [int(sch.get(loop).extent) for loop in loops]
    if len(loops) == 1 and rows[0] % threads == 0 and not _cuts_one(sch.get(block), rows[0] // threads):
        outer, row = sch.split(loops[0], [None, rows[0] // threads + 1])  # a share with a condition has any index
        sch.parallel(outer)
    else:
        row = parallel_rows(sch, loops, threads)
    row_reduction.place(sch, "row", row)
    row_reduction.vectorize(sch, "row")


def _cuts_one(block: Any, each: int) -> bool:
    """Whether shares of so many rows cut one of the data's dimensions evenly: then their indices are affine."""
    inner, row = 1, int(block.iter_vars[0].dom.extent)
    dims = [int(d) for d in block.reads[0].source.shape]
    kept = next(dims[:k] for k in range(len(dims) + 1) if math.prod(dims[:k]) == row)
    for dim in reversed(kept):
        if each % inner == 0 and dim % (each // inner or dim + 1) == 0:
            return True
        inner *= dim
    return False


def _schedule_columns(sch: Schedule, threads: int, lanes: int) -> None:
    """for row in parallel: for tile: for r in reduced: for v in unroll: for lane in vectorized: ..."""
    block = sch.get_sblock("reduce")
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    loops = sch.get_loops(block)
    *rows, column = loops[: kinds.count(0)]
    extent, beside = int(sch.get(column).extent), []
    if rows and extent <= lanes:
        *rows, last = rows
        last, vectors = sch.split(last, [None, _divisor(int(sch.get(last).extent))])
        rows, beside = [*rows, last], [vectors]
        sch.reorder(*rows, *loops[kinds.count(0) :], vectors, column)
    if math.prod(int(sch.get(row).extent) for row in rows) >= threads > 1:
        parallel_rows(sch, rows, threads)
        threads = 1
    if extent <= lanes:
        _accumulate(sch, block, loops[kinds.count(0) :], beside, column)
        return
    whole = extent - extent % lanes
    for part in sch.loop_partition(column, [whole, None]) if whole < extent else [column]:
        _column_part(sch, part, threads, lanes)


def _column_part(sch: Schedule, column: Any, threads: int, lanes: int) -> None:
    """Some whole vectors, or one of any width."""
    (block,) = sch.get_child_blocks(column)
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    reduced = sch.get_loops(block)[-kinds.count(2) :]
    extent, beside = int(sch.get(column).extent), []
    if extent > lanes:
        tile, vectors, column = sch.split(column, [None, _divisor(extent // lanes), lanes])
        beside = [vectors]
        parallel_rows(sch, [tile], threads)
    _accumulate(sch, block, reduced, beside, column)


def _accumulate(sch: Schedule, block: Any, reduced: Sequence[Any], beside: Sequence[Any], lane: Any) -> None:
    """Vectors side by side that stay in registers while the reduced loops run."""
    sch.reorder(*reduced, *beside, lane)
    unroll_and_vectorize(sch, beside, lane)
    loops = sch.get_loops(sch.decompose_reduction(block, reduced[0]))[-1 - len(beside) :]
    unroll_and_vectorize(sch, loops[:-1], loops[-1])


def _divisor(extent: int) -> int:
    return max(v for v in range(1, _SIDE_BY_SIDE + 1) if extent % v == 0)


def _insert(index: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    full = list(index)
    for a in axes:
        full.insert(a, 0)
    return full
