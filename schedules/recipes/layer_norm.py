"""Layer norm and RMS norm over the last axes, a row at a time, with fused epilogue.

mean = sum(x) / n, variance = sum((x - mean)^2) / n            two passes over a row that stays in L1: sound even
layer_norm(x) = (x - mean) / sqrt(variance + eps) * g + b      where the mean is much larger than the deviation
rms_norm(x) = x / sqrt(sum(x^2) / n + eps) * g
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.graph.relax_graph import scalar_of
from tvm_ext.core.recipe import Config, Group, Layouts, Machine, Match, Miss, Param, Recipe, VectorWork
from tvm_ext.ops.scalars.strict_floats import times

from ..steps import row_reduction
from ..steps.arguments import Arguments
from ..steps.indices import flatten, unflatten
from ..steps.loops import parallel_rows, vectorize_all
from ..steps.storage import Reader, why_not_float32

#: Work an element takes, in units of loading or storing one: three passes over the first level of cache.
_OPERATIONS = 4


@dataclass(frozen=True)
class LayerNormMatch(Match):
    """A normalization.

    Attributes:
        data: the input.
        lead, row: its shape, up to the axes of a row, and those.
        lanes: f32 lanes of the machine.
    """

    data: Param
    lead: tuple[int, ...]
    row: tuple[int, ...]
    lanes: int

    @property
    def is_rms(self) -> bool:
        """Whether rows are brought to mean square 1, and not to mean 0 and variance 1."""
        return self.group.anchor == "relax.nn.rms_norm"


class LayerNorm(Recipe[LayerNormMatch]):
    """Normalization of rows to mean 0 and variance 1, or to mean square 1."""

    name = "layer_norm"
    anchors = frozenset({"relax.nn.layer_norm", "relax.nn.rms_norm"})

    def match(self, group: Group, machine: Machine) -> LayerNormMatch | Miss:
        data = group.operand(0)
        operands = [group.operand(i) for i in range(len(group.call.args))]  # type: ignore[union-attr]
        if data is None:
            return Miss("the operand is computed inside the group")
        if why := why_not_float32(group, *(p for p in operands if p)):
            return Miss(why)
        rank = len(data.shape)
        axes = sorted(int(a) % rank for a in group.attrs.axes)
        if axes != list(range(rank - len(axes), rank)):
            return Miss(f"axes {axes} are not the last ones")
        if 0 in data.shape:
            return Miss("the input is empty")
        lead, row = data.shape[: rank - len(axes)], data.shape[rank - len(axes) :]
        return LayerNormMatch(group, data, lead, row, machine.lanes)

    def work(self, match: LayerNormMatch, machine: Machine) -> VectorWork:
        return VectorWork(math.prod(match.data.shape) * _OPERATIONS, math.prod(match.lead))

    def compute(self, match: LayerNormMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, row, lead = Arguments(match.group, layouts), match.row, match.lead or (1,)
        element = _elements(match, args.reader(match.data))
        count = tirx.const(1.0 / math.prod(row), "float32")
        centered = _centered(match, lead, element)
        sums = _sum("square", match, lead, lambda *i: centered(*i) * centered(*i))
        epsilon = tirx.const(float(match.group.attrs.epsilon), "float32")
        one = tirx.const(1.0, "float32")
        scale = te.compute((*lead, 1), lambda *i: one / tirx.sqrt(sums(*i) * count + epsilon), name="scale")

        def value(*index: Any) -> Any:
            outer, inner = index[: len(match.lead)] or (0,), index[len(match.lead) :]
            return _affine(match, args, inner, centered(*outer, flatten(inner, row)) * scale(*outer, 0))

        return args.kernel(value)

    def schedule(self, sch: Schedule, match: LayerNormMatch, config: Config, machine: Machine) -> None:
        loops = sch.get_loops(sch.get_sblock("out"))
        rows, inner = loops[: len(match.lead)], loops[len(match.lead) :]
        column = sch.fuse(*inner) if len(inner) > 1 else inner[0]
        if not rows:
            rows = [sch.add_unit_loop(column)]
        row = parallel_rows(sch, rows, config["threads"])
        sch.compute_at(sch.get_sblock("scale"), row, preserve_unit_loops=True)
        row_reduction.place(sch, "square", row)
        if not match.is_rms:
            sch.compute_at(sch.get_sblock("mean"), row, preserve_unit_loops=True)
            row_reduction.place(sch, "total", row)
            row_reduction.vectorize(sch, "total")
        row_reduction.vectorize(sch, "square")
        vectorize_all(sch, column, machine.lanes)


def _sum(name: str, match: LayerNormMatch, lead: Sequence[int], term: Callable[..., Any]) -> te.Tensor:
    return row_reduction.compute(name, "sum", lead, math.prod(match.row), match.lanes, term)


def _elements(match: LayerNormMatch, data: Reader) -> Callable[..., Any]:
    """Element k of a row, the axes of a row being one."""
    return lambda *i: data(*i[: len(match.lead)], *unflatten(i[-1], match.row))


def _centered(match: LayerNormMatch, lead: Sequence[int], element: Callable[..., Any]) -> Callable[..., Any]:
    """An element less the mean of its row; of RMS norm, the element."""
    if match.is_rms:
        return element
    total = _sum("total", match, lead, element)
    count = tirx.const(float(math.prod(match.row)), "float32")  # divided by, the mean of a constant is that constant
    mean = te.compute((*lead, 1), lambda *i: total(*i) / count, name="mean")
    return lambda *i: element(*i) - mean(*i[:-1], 0)


def _affine(match: LayerNormMatch, args: Arguments, index: Sequence[Any], value: Any) -> Any:
    """value * g + b, those of them that the operator has."""
    group, call = match.group, match.group.call
    assert call is not None

    def operand(position: int) -> Any:
        param = group.operand(position)
        return args.reader(param)(*index) if param else tirx.const(scalar_of(call.args[position]), "float32")

    if match.is_rms:
        return times(value, operand(1))
    if bool(call.attrs.scale):
        value = times(value, operand(1))
    return value + operand(2) if bool(call.attrs.center) else value
