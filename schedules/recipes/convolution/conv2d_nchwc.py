"""Direct 2-d convolution on NCHW{lanes}c, any kernel size, stride and dilation, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, ...        x: NCHW or NCHW{l}c, w: OIHW{i}i{o}o, result: NCHW{l}c

Padding is written by the kernel itself into a workspace that its threads share; without padding there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout, PackedWeight
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss

from ...blocked import kernel as blocked
from ...blocked.convolution import channel_lanes, facts_of, inner_steps, padded, schedule_padding
from ...blocked.prefetch import weight_name
from ...steps.epilogue import Epilogue, blocked_layout, placeholders
from ...steps.widened import scale_layouts, scaled, widened


class Conv2dNCHWc(blocked.BlockedRecipe):
    """Direct convolution, register-blocked over output channels and pixels."""

    name = "conv2d_nchwc"
    anchors = frozenset({"relax.nn.conv2d"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        facts = facts_of(group)
        if isinstance(facts, Miss):
            return facts
        if facts["groups"] != 1:
            return Miss(f"groups={facts['groups']}: this recipe has no grouped convolution")
        co, ci, kh, kw = facts["weight"].shape
        oh, ow = facts["out_image"]
        inner, lanes = inner_steps(ci, machine.lanes), channel_lanes(co, machine)
        problem = blocked.Problem(group.shape[0], co, oh * ow, ow, ci // inner, (kh, kw), inner, lanes)
        return Match(group, {**facts, "problem": blocked.with_residence(problem, group), "input_lanes": machine.lanes})

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        p = match.problem
        result, scales = Layout.blocked(4, p.lanes), scale_layouts(match.group, match.weight, p.lanes)
        params: list[Layout] = []
        for param, given in zip(match.group.params, offered, strict=True):
            if param is match.weight:
                outer_o = blocked.Units.of(p, config).outer_o
                packed = PackedWeight.make(4, p.inner, p.lanes * config["tile_o"], outer_o)
                params.append(widened(match.group, param, packed))
            elif param is match.data:
                params.append(given if self._reads(match, given) else Layout.blocked(4, match.input_lanes))
            else:
                params.append(scales.get(param.var) or blocked_layout(param.shape, p.lanes))
        return Layouts(tuple(params), result)

    @staticmethod
    def _reads(match: Match, layout: Layout) -> bool:
        """Few channels are read where they are; otherwise steps that stand together must be in one block."""
        problem = match.problem
        if layout.block is None:
            return bool(problem.blocks * problem.inner <= 4)
        return layout == Layout.blocked(4, layout.block[1]) and layout.block[1] % problem.inner == 0

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, problem = match.group, match.problem
        tensors = placeholders(group, layouts.params)
        epilogue = Epilogue(group, tensors, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        image, layout = padded(match, tensors, layouts.params), layouts.params[where[match.data.var]]
        (sy, sx), (dy, dx), ow = match.strides, match.dilation, match.out_image[1]
        units = blocked.Units.of(problem, config)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            y = tirx.floordiv(q, ow) * sy + ry * dy
            x = tirx.floormod(q, ow) * sx + rx * dx
            return image(*layout.index((n, block * problem.inner + ri, y, x)))

        acc = blocked.reduce_tiles(problem, units, load, blocked.shared(tensors[where[match.weight.var]]))
        scale = scaled(group, tensors, layouts.params, match.weight)

        def value(n: Any, o: Any, q: Any, j: Any) -> Any:
            channel = o * problem.lanes + j
            at = (n, channel, tirx.floordiv(q, ow), tirx.floormod(q, ow))
            return epilogue(at, scale(acc(n, o, q, j), channel))

        shape = (problem.batch, problem.output_blocks, problem.pixels, problem.lanes)
        return te.create_prim_func([*tensors, te.compute(shape, value, name="out")])

    def schedule(
        self,
        sch: Schedule,
        match: Match,
        config: Config,
        machine: Machine,
        blocker: blocked.Blocker = blocked.configured,
    ) -> None:
        schedule_padding(sch, match, config["threads"])
        blocked.schedule_tiles(sch, match.problem, config, weight=weight_name(match), blocker=blocker)
        ow = match.out_image[1]
        sch.transform_layout(
            sch.get_sblock("out"),
            ("write", 0),
            lambda n, o, q, j: (n, o, tirx.floordiv(q, ow), tirx.floormod(q, ow), j),
        )
