"""Direct 2-d convolution of int8 or bfloat16 by dot-product instructions, any kernel size, stride and dilation.

    conv2d(decode(x), decode(w)) -> +bias, +residual, relu, encode ...        x: NCHW{l}c, w: OIHW{i}i{o}o4i

It is the kernel of `conv2d_nchwc` with words of 4 (int8) or 2 (bfloat16) input channels for steps
(:mod:`...dots.instructions`). Around the image stands what decodes to zero. The kernel writes that border itself, into
a workspace that its threads share; there it also makes signed inputs unsigned, and puts few channels side by side
(:mod:`...dots.image`). A row of the kernel is one run of numbers then, and is read in words that cross pixels where
these are fewer: 6 for 7 pixels of 3 channels, not 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.numbers.dot_weight import DotWeight
from tvm_ext.core.recipe import Config, Layouts, Match, Miss

from ...blocked import kernel as blocked
from ...blocked.convolution import facts_of
from ...blocked.prefetch import weight_name
from ...dots.image import ReadWord, copied_blocks, copied_rows, in_blocks, schedule_copy
from ...dots.instructions import multiply
from ...dots.operands import AnchorValue, Operands, operands_of, schedule_shifts, weight_layout, words_of
from ...steps.epilogue import Epilogue, blocked_layout, placeholders

#: So many channels are read of a plain image.
_FEW = 4


class Conv2dDot(blocked.BlockedRecipe):
    """Direct convolution by `vpdpbusd` or `vdpbf16ps`, register-blocked over output channels and pixels.

    Args:
        plain: make the plain twin, without the instructions.
    """

    name = "conv2d_dot"
    anchors = frozenset({"relax.nn.conv2d"})

    def __init__(self, plain: bool = False) -> None:
        self._plain = plain

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        facts = facts_of(group, any_type=True)
        if isinstance(facts, Miss):
            return facts
        if facts["groups"] != 1:
            return Miss(f"groups={facts['groups']}: this recipe has no grouped convolution")
        operands = operands_of(group, machine, output_axis=0, plain=self._plain)
        if isinstance(operands, Miss):
            return operands
        ci, few = facts["weight"].shape[1], facts["weight"].shape[1] <= _FEW
        merged = _merges(facts, operands)
        problem = blocked.with_residence(_problem(group, facts, operands, machine.lanes, merged), group)
        # A channel beyond the last one, in a word with the last one, may hold NaN: it is read as zero.
        odd = operands.kind == "widen" and ci % operands.dot.group > 0
        copied = any(facts["pads"]) or few or odd or operands.dot.widens
        dot = operands.copied_dot if copied else operands.dot
        more = {"problem": problem, "operands": operands, "few": few, "merged": merged, "copied": copied, "dot": dot}
        return Match(group, {**facts, **more, "depth": ci if merged else problem.inner * dot.group})

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        lanes = match.problem.lanes
        params: list[Layout] = []
        for param, given in zip(match.group.params, offered, strict=True):
            if param is match.weight:
                params.append(_weight_layout(match, config))
            elif param is match.data:
                params.append(given if _reads(match, given) else _preferred(match))
            elif param is match.operands.weight_scale and param.shape not in ((), (1,)):
                params.append(Layout.blocked(1, lanes, 0))
            else:
                params.append(blocked_layout(param.shape, lanes))
        return Layouts(tuple(params), Layout.blocked(4, lanes))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, problem = match.group, match.problem
        tensors = placeholders(group, layouts.params)
        epilogue = Epilogue(group, tensors, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        at = where[match.data.var]
        data, layout = tensors[at], layouts.params[at]
        (sy, sx), (dy, dx), ow = match.strides, match.dilation, match.out_image[1]
        units, read = blocked.Units.of(problem, config), _reader(match, data, layout)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any, rk: Any) -> Any:
            y = tirx.floordiv(q, ow) * sy + ry * dy
            x = tirx.floormod(q, ow) * sx + rx * dx
            return read(n, y, x, block * problem.inner + ri, rk)

        weight = words_of(match, tensors[where[match.weight.var]])
        acc = blocked.reduce_tiles(problem, units, load, weight, dot=match.dot)
        value = AnchorValue(match, tensors, layouts.params, config)
        out = te.compute(
            (problem.batch, problem.output_blocks, problem.pixels, problem.lanes),
            lambda n, o, q, j: epilogue(
                (n, o * problem.lanes + j, tirx.floordiv(q, ow), tirx.floormod(q, ow)), value(acc(n, o, q, j), o, j)
            ),
            name="out",
        )
        return te.create_prim_func([*tensors, out])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        unit = blocked.schedule_tiles(sch, match.problem, config, dot=match.dot, weight=weight_name(match))
        schedule_shifts(sch, match, unit)
        if match.copied:
            schedule_copy(sch, match, config)
        multiply(sch, match.dot)
        ow = match.out_image[1]
        sch.transform_layout(
            sch.get_sblock("out"),
            ("write", 0),
            lambda n, o, q, j: (n, o, tirx.floordiv(q, ow), tirx.floormod(q, ow), j),
        )


def _merges(facts: Mapping[str, Any], operands: Operands) -> bool:
    """Whether words run over the channels of neighbouring pixels, because a row of the kernel has fewer of them so.

    The last word of a row may reach into pixels beside the kernel, whose weights are zero: a NaN of bfloat16 would
    spread from there, so that bfloat16 rows must be whole words.
    """
    (_, ci, _, kw), group = facts["weight"].shape, operands.dot.group
    fewer = -(-kw * ci // group) < kw * -(-ci // group)
    exact = operands.kind != "widen" or kw * ci % group == 0
    return ci <= _FEW and fewer and exact and facts["dilation"][1] == 1


def _problem(group: Group, facts: Mapping[str, Any], operands: Operands, lanes: int, merged: bool) -> blocked.Problem:
    (co, ci, kh, kw), (oh, ow) = facts["weight"].shape, facts["out_image"]
    words: dict[str, Any] = {"instruction": operands.dot.rate, "word": operands.dot.weight_bytes}
    if merged:
        inner = -(-kw * ci // operands.dot.group)
        return blocked.Problem(group.shape[0], co, oh * ow, ow, 1, (kh, 1), inner, lanes, **words)
    channels = -(-ci // operands.dot.group)
    inner = math.gcd(channels, lanes // operands.dot.group)
    return blocked.Problem(group.shape[0], co, oh * ow, ow, channels // inner, (kh, kw), inner, lanes, **words)


def _weight_layout(match: Match, config: Config) -> DotWeight:
    return replace(weight_layout(match, config), rows=match.merged)


def _preferred(match: Match) -> Layout:
    return Layout.plain(4) if match.few else Layout.blocked(4, match.problem.lanes)


def _reads(match: Match, layout: Layout) -> bool:
    """Few channels are read where they are; otherwise words that stand together must be in one block."""
    if layout.block is None:
        return layout == _preferred(match)
    lanes, together = layout.block[1], match.problem.inner * match.dot.group
    return layout == Layout.blocked(4, lanes) and (match.few or lanes % together == 0)


def _reader(match: Match, data: te.Tensor, layout: Layout) -> ReadWord:
    if match.few:
        return copied_rows(match, data, layout)
    if match.copied:
        return copied_blocks(match, data, layout)
    return in_blocks(match, data, layout.physical_shape(match.data.shape)[-1] // match.dot.group)
