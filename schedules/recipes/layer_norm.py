"""Layer norm and RMS norm over the last axes, a row at a time, with fused epilogue.

mean = sum(x) / n, variance = sum((x - mean)^2) / n            two passes over a row that stays in L1: sound even
layer_norm(x) = (x - mean) / sqrt(variance + eps) * g + b      where the mean is much larger than the deviation
rms_norm(x) = x / sqrt(sum(x^2) / n + eps) * g
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import vector_seconds
from tvm_ext.core.cost.sharing import Sharing
from tvm_ext.core.graph.relax_graph import scalar_of
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe

from ..steps import row_reduction
from ..steps.epilogue import Epilogue, placeholders
from ..steps.indices import unflatten
from ..steps.loops import parallel_rows, thread_choices, vectorize_all
from ..steps.storage import Reader, reader, why_not_float32

#: Work an element takes, in units of loading or storing one: three passes over the first level of cache.
_OPERATIONS = 4


class LayerNorm(Recipe):
    """Normalization of rows to mean 0 and variance 1, or to mean square 1."""

    name = "layer_norm"
    anchors = frozenset({"relax.nn.layer_norm", "relax.nn.rms_norm"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        data = group.operand(0)
        operands = [group.operand(i) for i in range(len(group.call.args))]  # type: ignore[union-attr]
        if data is None:
            return Miss("the operand is computed inside the group")
        if why := why_not_float32(group, *(p for p in operands if p)):
            return Miss(why)
        rank = len(data.shape)
        axes = sorted(int(a) % rank for a in group.call.attrs.axes)  # type: ignore[union-attr]
        if axes != list(range(rank - len(axes), rank)):
            return Miss(f"axes {axes} are not the last ones")
        if 0 in data.shape:
            return Miss("the input is empty")
        lead, row = data.shape[: rank - len(axes)], data.shape[rank - len(axes) :]
        return Match(group, {"data": data, "lead": lead, "row": row, "lanes": machine.lanes})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return {
            "threads": thread_choices(math.prod(match.data.shape) * _OPERATIONS, machine, self.shared(match, machine))
        }

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return vector_seconds(math.prod(match.data.shape) * _OPERATIONS, machine, self.sharing(match, config, machine))

    def sharing(self, match: Match, config: Config, machine: Machine) -> Sharing:
        """Rows that are normalized."""
        return Sharing.of_rows(math.prod(match.lead), config["threads"])

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        params = tuple(Layout.plain(len(p.shape)) for p in match.group.params)
        return Layouts(params, Layout.plain(len(match.group.shape)))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, row = match.group, match.row
        tensors = placeholders(group, layouts.params)
        read = [reader(group, tensors, layouts.params, p) for p in group.params]
        lead = match.lead or (1,)
        element = _elements(match, read[group.params.index(match.data)])
        attrs, count = group.call.attrs, tirx.const(1.0 / math.prod(row), "float32")  # type: ignore[union-attr]
        centered = _centered(match, lead, element)
        sums = _sum("square", match, lead, lambda *i: centered(*i) * centered(*i))
        epsilon = tirx.const(float(attrs.epsilon), "float32")
        scale = te.compute(
            (*lead, 1), lambda *i: tirx.const(1.0, "float32") / tirx.sqrt(sums(*i) * count + epsilon), name="scale"
        )
        epilogue = Epilogue(group, tensors, layouts.params)

        def value(*index: Any) -> Any:
            outer, inner = index[: len(match.lead)] or (0,), index[len(match.lead) :]
            flat: Any = 0
            for i, d in zip(inner, row, strict=True):
                flat = flat * d + i
            return epilogue(index, _affine(match, read, inner, centered(*outer, flat) * scale(*outer, 0)))

        return te.create_prim_func([*tensors, te.compute(group.shape, value, name="out")])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        out = sch.get_sblock("out")
        loops = sch.get_loops(out)
        rows, inner = loops[: len(match.lead)], loops[len(match.lead) :]
        column = sch.fuse(*inner) if len(inner) > 1 else inner[0]
        if not rows:
            rows = [sch.add_unit_loop(column)]
        row = parallel_rows(sch, rows, config["threads"])
        sch.compute_at(sch.get_sblock("scale"), row, preserve_unit_loops=True)
        row_reduction.place(sch, "square", row)
        if not _is_rms(match):
            sch.compute_at(sch.get_sblock("mean"), row, preserve_unit_loops=True)
            row_reduction.place(sch, "total", row)
            row_reduction.vectorize(sch, "total")
        row_reduction.vectorize(sch, "square")
        vectorize_all(sch, column, machine.lanes)


def _is_rms(match: Match) -> bool:
    return bool(match.group.anchor == "relax.nn.rms_norm")


def _sum(name: str, match: Match, lead: Sequence[int], term: Callable[..., Any]) -> te.Tensor:
    return row_reduction.compute(name, "sum", lead, math.prod(match.row), match.lanes, term)


def _elements(match: Match, data: Reader) -> Callable[..., Any]:
    """Element k of a row, the axes of a row being one."""
    return lambda *i: data(*i[: len(match.lead)], *unflatten(i[-1], match.row))


def _centered(match: Match, lead: Sequence[int], element: Callable[..., Any]) -> Callable[..., Any]:
    """An element less the mean of its row; of RMS norm, the element."""
    if _is_rms(match):
        return element
    total = _sum("total", match, lead, element)
    count = tirx.const(float(math.prod(match.row)), "float32")  # divided by, the mean of a constant is that constant
    mean = te.compute((*lead, 1), lambda *i: total(*i) / count, name="mean")
    return lambda *i: element(*i) - mean(*i[:-1], 0)


def _affine(match: Match, read: Sequence[Reader], index: Sequence[Any], value: Any) -> Any:
    """value * g + b, those of them that the operator has."""
    group, call = match.group, match.group.call
    assert call is not None

    def operand(position: int) -> Any:
        param = group.operand(position)
        return (
            read[group.params.index(param)](*index) if param else tirx.const(scalar_of(call.args[position]), "float32")
        )

    if _is_rms(match):
        return value * operand(1)
    if bool(call.attrs.scale):
        value = value * operand(1)
    return value + operand(2) if bool(call.attrs.center) else value
