"""Direct 2-d convolution on NCHW{lanes}c, any kernel size, stride and dilation, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, ...        x: NCHW or NCHW{l}c, w: OIHW{i}i{o}o, result: NCHW{l}c

Padding is written by the kernel itself into a workspace that its threads share; without padding there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout, PackedWeight
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss
from tvm_ext.core.relax_graph import attrs_of

from . import blocked
from .epilogue import Epilogue, blocked_layout, placeholders
from .steps import parallel_rows

_ATTRIBUTES = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")


class Conv2dNCHWc(blocked.BlockedRecipe):
    """Direct convolution, register-blocked over output channels and pixels."""

    name = "conv2d_nchwc"
    anchors = frozenset({"relax.nn.conv2d"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        a = attrs_of(group.call, _ATTRIBUTES)
        data, weight = group.operand(0), group.operand(1)
        if data is None or weight is None:
            return Miss("data or weight is computed inside the group")
        if (a["data_layout"], a["kernel_layout"], a["out_layout"]) != ("NCHW", "OIHW", "NCHW"):
            return Miss(f"layouts {a['data_layout']}/{a['kernel_layout']} are not NCHW/OIHW")
        if a["groups"] != 1:
            return Miss(f"groups={a['groups']}: this recipe has no grouped convolution")
        if {data.dtype, weight.dtype, group.dtype} != {"float32"}:
            return Miss(f"dtype {data.dtype}: this recipe computes float32")
        if not weight.constant:
            return Miss("the weight is not a constant, so it cannot be packed")
        return Match(group, self._facts(group, a, machine))

    @staticmethod
    def _facts(group: Group, a: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
        data, weight = group.operand(0), group.operand(1)
        assert data is not None and weight is not None
        n, ci, h, w = data.shape
        co, _, kh, kw = weight.shape
        _, _, oh, ow = group.shape
        inner = next(i for i in range(min(ci, machine.lanes), 0, -1) if ci % i == 0)
        problem = blocked.Problem(n, co, oh * ow, ow, ci // inner, (kh, kw), inner, machine.lanes)
        pads = tuple(a["padding"]) if len(a["padding"]) == 4 else tuple(a["padding"]) * 2
        return {
            "problem": problem, "data": data, "weight": weight, "image": (h, w), "out_image": (oh, ow),
            "strides": a["strides"], "dilation": a["dilation"], "pads": pads,
        }  # fmt: skip

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        p = match.problem
        result = Layout.blocked(4, p.lanes)
        params: list[Layout] = []
        for param, given in zip(match.group.params, offered, strict=True):
            if param is match.weight:
                outer_o = blocked.Units.of(p, config).outer_o
                params.append(PackedWeight.make(4, p.inner, p.lanes * config["tile_o"], outer_o))
            elif param is match.data:
                params.append(given if self._reads(match, given) else Layout.blocked(4, p.lanes))
            else:
                params.append(blocked_layout(param.shape, p.lanes))
        return Layouts(tuple(params), result)

    @staticmethod
    def _reads(match: Match, layout: Layout) -> bool:
        """Few channels are read where they are; otherwise a block of channels must stand together."""
        problem = match.problem
        few = layout.block is None and problem.blocks * problem.inner <= 4
        return few or layout == Layout.blocked(4, problem.lanes)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, problem = match.group, match.problem
        tensors = placeholders(group, layouts.params)
        epilogue = Epilogue(group, tensors, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        data, layout = tensors[where[match.data.var]], layouts.params[where[match.data.var]]
        padded = self._pad(match, data, layout)
        (sy, sx), (dy, dx), ow = match.strides, match.dilation, match.out_image[1]
        units = blocked.Units.of(problem, config)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            y = tirx.floordiv(q, ow) * sy + ry * dy
            x = tirx.floormod(q, ow) * sx + rx * dx
            return padded(*layout.index((n, block * problem.inner + ri, y, x)))

        acc = blocked.reduce_tiles(problem, units, load, blocked.shared(tensors[where[match.weight.var]]))
        out = te.compute(
            (problem.batch, problem.output_blocks, problem.pixels, problem.lanes),
            lambda n, o, q, j: epilogue(
                (n, o * problem.lanes + j, tirx.floordiv(q, ow), tirx.floormod(q, ow)), acc(n, o, q, j)
            ),
            name="out",
        )
        return te.create_prim_func([*tensors, out])

    @staticmethod
    def _pad(match: Match, data: te.Tensor, layout: Layout) -> te.Tensor:
        top, left, bottom, right = match.pads
        if not any(match.pads):
            return data
        h, w = match.image
        n, c = match.data.shape[:2]
        shape = layout.physical_shape((n, c, h + top + bottom, w + left + right))

        def value(*index: Any) -> Any:
            b, ch, y, x = layout.logical(index)
            inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
            source = layout.index((b, ch, y - top, x - left))
            return tirx.if_then_else(inside, data(*source), tirx.const(0, match.data.dtype))

        return te.compute(shape, value, name="pad")

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        if any(match.pads):
            *rows, last = sch.get_loops(sch.get_sblock("pad"))
            parallel_rows(sch, rows[:3], config["threads"])
            if len(rows) == 4:
                sch.vectorize(last)
        blocked.schedule_tiles(sch, match.problem, config)
        ow = match.out_image[1]
        sch.transform_layout(
            sch.get_sblock("out"),
            ("write", 0),
            lambda n, o, q, j: (n, o, tirx.floordiv(q, ow), tirx.floormod(q, ow), j),
        )
