"""Matmul of int8 or bfloat16 with a constant weight by dot-product instructions, packed at compile time.

    matmul(decode(x), decode(w)) -> +bias, relu, encode ...        x: (..., K), w: (K, N) as IO{i}i{o}o4i

It is the kernel of `dense` with words of 4 (int8; 2 without VNNI) or 2 (bfloat16) elements of a row for steps
(:mod:`..dots.instructions`). Rows that are no whole words are copied, with zeros behind them; without VNNI all are, to
16 bits.
"""

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss

from ..blocked import kernel as blocked
from ..blocked.matmul import MatmulRecipe, matmul_kernel, result_index, schedule_matmul
from ..blocked.prefetch import buffer_name
from ..dots.instructions import multiply
from ..dots.operands import AnchorValue, DotMatch, operands_of, schedule_shifts, weight_layout, words_of
from ..steps.arguments import Arguments
from ..steps.indices import unflatten
from ..steps.loops import parallel_rows


class DenseDot(MatmulRecipe[DotMatch]):
    """Packed matmul by `vpdpbusd`, `vpmaddwd` or `vdpbf16ps`, register-blocked over columns and rows."""

    name = "dense_dot"
    anchors = frozenset({"relax.matmul"})

    def match(self, group: Group, machine: Machine) -> DotMatch | Miss:
        operands = operands_of(group, machine, output_axis=1)
        if isinstance(operands, Miss):
            return operands
        data, weight = group.operand(0), group.operand(1)
        assert data is not None and weight is not None
        if len(weight.shape) != 2 or len(data.shape) < 2:
            return Miss(f"{data.shape} by {weight.shape}: rows by a matrix are needed")
        (k, n), rows = weight.shape, math.prod(data.shape[:-1])
        if 0 in (k, n, rows):
            return Miss("an operand is empty")
        dot, lanes = operands.dot, machine.lanes
        words = -(-k // dot.group)
        inner = next(i for i in range(lanes, 0, -1) if words % i == 0)
        problem = blocked.Problem(
            1, n, rows, rows, words // inner, (1, 1), inner, lanes, weights_in=group.weights_in, instruction=dot.rate,
            word=dot.weight_bytes,
        )  # fmt: skip
        return DotMatch(group, data, weight, problem, operands, copied=k % dot.group > 0 or dot.widens)

    def instruction(self, match: DotMatch) -> str:
        return match.dot.instruction

    def layouts(self, match: DotMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        return Layouts.plain(match.group, {match.weight.var: weight_layout(match, config)})

    def compute(self, match: DotMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, lead = Arguments(match.group, layouts), match.problem, match.group.shape[:-1]
        data = args.tensor(match.data)
        rows = _copied(match, data) if match.copied else lambda q, k: data(*unflatten(q, lead), k)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any, rk: Any) -> Any:
            return rows(q, (block * problem.inner + ri) * match.dot.group + rk)

        weight = words_of(match, args.tensor(match.weight))
        acc = blocked.reduce_tiles(problem, blocked.Units.of(problem, config), load, weight, dot=match.dot)
        sums = AnchorValue(match, args, config)

        def value(total: Any, c: Any) -> Any:
            return sums(total, tirx.floordiv(c, problem.lanes), tirx.floormod(c, problem.lanes))

        return matmul_kernel(args, problem, acc, result_index(match.group.shape), value)

    def schedule(self, sch: Schedule, match: DotMatch, config: Config, machine: Machine) -> None:
        if match.copied:
            parallel_rows(sch, sch.get_loops(sch.get_sblock("rows"))[:1], config["threads"])
        index, weight = result_index(match.group.shape), buffer_name(match, match.weight)
        unit = schedule_matmul(sch, match.problem, config, index, match.dot, weight)
        schedule_shifts(sch, match, unit)
        multiply(sch, match.dot)


def _copied(match: DotMatch, data: te.Tensor) -> te.Tensor:
    """The rows in whole words: the stage "rows"."""
    lead, k = match.group.shape[:-1], match.weight.shape[0]
    words = match.problem.blocks * match.problem.inner * match.dot.group

    def value(q: Any, c: Any) -> Any:
        element = match.operands.copied(data(*unflatten(q, lead), c))
        return tirx.if_then_else(c < k, element, match.operands.border)

    return te.compute((match.problem.pixels, words), value, name="rows")
