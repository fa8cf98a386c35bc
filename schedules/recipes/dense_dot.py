"""Matmul of int8 or bfloat16 with a constant weight by dot-product instructions, packed at compile time.

    matmul(decode(x), decode(w)) -> +bias, relu, encode ...        x: (..., K), w: (K, N) as IO{i}i{o}o4i

It is the kernel of `dense` with words of 4 (int8) or 2 (bfloat16) elements of a row for steps
(:mod:`..dots.instructions`). Rows that are no whole words are copied, with zeros behind them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss

from ..blocked import kernel as blocked
from ..blocked.matmul import MatmulRecipe, result, schedule_matmul
from ..blocked.prefetch import weight_name
from ..dots.instructions import multiply
from ..dots.operands import AnchorValue, operands_of, schedule_shifts, weight_layout, words_of
from ..steps.epilogue import Epilogue, placeholders
from ..steps.indices import unflatten
from ..steps.loops import parallel_rows


class DenseDot(MatmulRecipe):
    """Packed matmul by `vpdpbusd` or `vdpbf16ps`, register-blocked over columns and rows.

    Args:
        plain: make the plain twin, without the instructions.
    """

    name = "dense_dot"
    anchors = frozenset({"relax.matmul"})

    def __init__(self, plain: bool = False) -> None:
        self._plain = plain

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        operands = operands_of(group, machine, output_axis=1, plain=self._plain)
        if isinstance(operands, Miss):
            return operands
        data, weight = group.operand(0), group.operand(1)
        assert data is not None and weight is not None
        if len(weight.shape) != 2 or len(data.shape) < 2:
            return Miss(f"{data.shape} by {weight.shape}: rows by a matrix are needed")
        (k, n), rows = weight.shape, math.prod(data.shape[:-1])
        if 0 in (k, n, rows):
            return Miss("an operand is empty")
        words, lanes = -(-k // operands.dot.group), machine.lanes
        inner = next(i for i in range(lanes, 0, -1) if words % i == 0)
        problem = blocked.Problem(1, n, rows, rows, words // inner, (1, 1), inner, lanes, instruction=operands.dot.rate)
        copied = k % operands.dot.group > 0
        dot = operands.copied_dot if copied else operands.dot
        facts = {
            "problem": blocked.with_residence(problem, group),
            "data": data,
            "weight": weight,
            "operands": operands,
        }
        return Match(group, {**facts, "copied": copied, "dot": dot})

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        weight = weight_layout(match, config)
        params = tuple(weight if q is match.weight else Layout.plain(len(q.shape)) for q in match.group.params)
        return Layouts(params, Layout.plain(len(match.group.shape)))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, problem, lead = match.group, match.problem, match.group.shape[:-1]
        tensors = placeholders(group, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        data = tensors[where[match.data.var]]
        rows = _copied(match, data) if match.copied else lambda q, k: data(*unflatten(q, lead), k)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any, rk: Any) -> Any:
            return rows(q, (block * problem.inner + ri) * match.dot.group + rk)

        weight = words_of(match, tensors[where[match.weight.var]])
        acc = blocked.reduce_tiles(problem, blocked.Units.of(problem, config), load, weight, dot=match.dot)
        epilogue, sums = Epilogue(group, tensors, layouts.params), AnchorValue(match, tensors, layouts.params, config)

        def value(n: Any, q: Any, c: Any, total: Any) -> Any:
            anchor = sums(total, tirx.floordiv(c, problem.lanes), tirx.floormod(c, problem.lanes))
            return epilogue((*unflatten(q, lead), c), anchor)

        return te.create_prim_func([*tensors, result(problem, acc, value)])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        if match.copied:
            parallel_rows(sch, sch.get_loops(sch.get_sblock("rows"))[:1], config["threads"])
        lead = match.group.shape[:-1]
        weight = weight_name(match)
        unit = schedule_matmul(sch, match.problem, config, lambda n, q, c: (*unflatten(q, lead), c), match.dot, weight)
        schedule_shifts(sch, match, unit)
        multiply(sch, match.dot)


def _copied(match: Match, data: te.Tensor) -> te.Tensor:
    """The rows in whole words: the stage "rows"."""
    lead, k = match.group.shape[:-1], match.weight.shape[0]
    words = match.problem.blocks * match.problem.inner * match.dot.group

    def value(q: Any, c: Any) -> Any:
        element = match.operands.copied(data(*unflatten(q, lead), c))
        return tirx.if_then_else(c < k, element, match.operands.border)

    return te.compute((match.problem.pixels, words), value, name="rows")
