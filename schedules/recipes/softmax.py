"""Softmax and log-softmax, a row at a time, with fused epilogue.

    top = max(x), e = exp(x - top), total = sum(e)         three passes over a row, which stays in L1 or L2
    softmax(x) = e * (1 / total)                           one division a row
    log_softmax(x) = x - top - log(total)

The axis is the innermost one: a tensor whose axis is another one is asked for in the layout that has it last.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Match, Miss, Param, Recipe, VectorWork
from tvm_ext.ops.scalars import vector_math

from ..steps import row_reduction
from ..steps.arguments import Arguments
from ..steps.loops import parallel_rows, vectorize_all
from ..steps.storage import float32_operand

#: Work an element takes, in units of loading or storing one: an exponential, and loads, stores and additions.
_OPERATIONS = 10


@dataclass(frozen=True)
class SoftmaxMatch(Match):
    """A softmax.

    Attributes:
        data: the input.
        axis: of the rows.
        lanes: f32 lanes of the machine.
    """

    data: Param
    axis: int
    lanes: int

    @property
    def row(self) -> int:
        """Elements of a row."""
        return self.data.shape[self.axis]

    def in_use(self, kind: str, element: Callable[..., Any]) -> tuple[Callable[..., Any], Any]:
        """The elements of a row as a reduction takes them, and where they end (:func:`..steps.row_reduction.compute`).

        Args:
            kind: of the reduction.
            element: physical index -> an element.
        """
        end = self.group.extent(self.data, self.axis)
        if isinstance(end, int):
            return element, None
        return lambda *i: row_reduction.in_use(kind, i[-1] < end, element(*i)), end


class Softmax(Recipe[SoftmaxMatch]):
    """Numerically stable softmax of rows."""

    name = "softmax"
    anchors = frozenset({"relax.nn.softmax", "relax.nn.log_softmax"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> SoftmaxMatch | Miss:
        if isinstance(data := float32_operand(group, 0), Miss):
            return data
        return SoftmaxMatch(group, data, int(group.attrs.axis) % len(data.shape), machine.lanes)

    def work(self, match: SoftmaxMatch, machine: Machine) -> VectorWork:
        elements = math.prod(match.group.shape)
        return VectorWork(elements * _OPERATIONS, elements // match.row)

    def layouts(self, match: SoftmaxMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        rank = len(match.group.shape)
        rows = Layout((*(a for a in range(rank) if a != match.axis), match.axis))
        params = (rows if p.shape == match.group.shape else Layout.plain(len(p.shape)) for p in match.group.params)
        return Layouts(tuple(params), rows)

    def compute(self, match: SoftmaxMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, row = Arguments(match.group, layouts), match.row
        data, shape = args.reader(match.data), layouts.output.physical_shape(match.group.shape)
        lead = shape[:-1]
        top = row_reduction.compute("top", "max_number", lead, row, match.lanes, *match.in_use("max_number", data))
        exp = te.compute(shape, lambda *i: vector_math.exp_flushed(data(*i) - top(*i[:-1], 0)), name="exp")
        softmax, (term, end) = match.group.anchor == "relax.nn.softmax", match.in_use("sum", exp)
        # Only the sum reads the exponentials of log-softmax: their stage has its length, which must be known.
        total = row_reduction.compute("total", "sum", lead, row, match.lanes, term, end if softmax else None)
        final = te.compute(
            (*lead, 1),
            lambda *i: tirx.const(1.0, "float32") / total(*i) if softmax else vector_math.log(total(*i)),
            name="final",
        )

        def value(*i: Any) -> Any:
            last = final(*i[:-1], 0)
            return exp(*i) * last if softmax else data(*i) - top(*i[:-1], 0) - last

        return args.kernel(value)

    def schedule(self, sch: Schedule, match: SoftmaxMatch, config: Config, machine: Machine) -> None:
        out = sch.get_sblock("out")
        if len(sch.get_loops(out)) == 1:
            sch.add_unit_loop(out)
        *rows, column = sch.get_loops(out)
        row = parallel_rows(sch, rows, config["threads"])
        sch.compute_at(sch.get_sblock("final"), row, preserve_unit_loops=True)
        row_reduction.place(sch, "total", row)
        sch.compute_at(sch.get_sblock("exp"), row, preserve_unit_loops=True)
        row_reduction.place(sch, "top", row)
        row_reduction.vectorize(sch, "top")
        row_reduction.vectorize(sch, "total")
        vectorize_all(sch, sch.get_loops(sch.get_sblock("exp"))[-1], machine.lanes)
        vectorize_all(sch, column, machine.lanes)
