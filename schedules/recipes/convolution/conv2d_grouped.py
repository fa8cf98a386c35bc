"""Grouped 2-d convolution on NCHW{lanes}c, with fused epilogue.

    conv2d(x, w, groups=G) -> +bias, relu, ...       x: NCHW{l}c, w: SOIHW{i}i{o}o, result: NCHW{l}c

Each group is a blocked reduction of its own, over its own channels. Groups with fewer outputs than fill whole vectors
are merged, `merge` of them into one whose weight is block diagonal, zeros between the blocks:

    32 groups of 4 -> 4   =   8 groups of 16 -> 16,  w = diag(w0, w1, w2, w3)        at 16 lanes

That multiplies by zeros, but a vector of four outputs of one group would leave as many lanes idle, and every load and
store would be a part of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout, PackedWeight
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss

from ...blocked import kernel as blocked
from ...blocked.convolution import facts_of, padded, schedule_padding
from ...blocked.prefetch import weight_name
from ...steps.epilogue import Epilogue, blocked_layout, placeholders
from ...steps.widened import scale_layouts, scaled, widened


@dataclass(frozen=True)
class GroupedWeight(Layout):
    """The weights (O, I / G, KH, KW) of merged groups, each block diagonal and packed as :class:`PackedWeight`.

    Attributes:
        groups: groups after merging.
        merge: groups in one of them.
        packed: layout of the weight of one merged group.
    """

    groups: int = 1
    merge: int = 1
    packed: PackedWeight = field(default_factory=lambda: PackedWeight.make(4, 1, 1, 1))

    def __str__(self) -> str:
        return f"{self.groups}x{self.packed}"

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (self.groups, *self.packed.physical_shape(self._merged(shape)))

    def index(self, logical: Sequence[Any]) -> tuple[Any, ...]:
        raise TypeError("a packed weight is read by its kernel only, through physical indices")

    def pack(self, array: np.ndarray) -> np.ndarray:
        o, i, *window = self._merged(array.shape)
        wide = np.zeros((self.groups, o, i, *window), array.dtype)
        parts = array.reshape(self.groups, self.merge, o // self.merge, i // self.merge, *window)
        for k in range(self.merge):
            rows, columns = (slice(k * d, (k + 1) * d) for d in parts.shape[2:4])
            wide[:, rows, columns] = parts[:, k]
        return np.stack([self.packed.pack(w) for w in wide])

    def _merged(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (shape[0] // self.groups, shape[1] * self.merge, *shape[2:])


class Conv2dGrouped(blocked.BlockedRecipe):
    """Grouped convolution, register-blocked over the outputs of a group and pixels."""

    name = "conv2d_grouped"
    anchors = frozenset({"relax.nn.conv2d"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        facts = facts_of(group)
        if isinstance(facts, Miss):
            return facts
        groups, weight = facts["groups"], facts["weight"]
        outputs, inputs = weight.shape[0] // groups, weight.shape[1]
        if groups == 1 or (inputs, outputs) == (1, 1):
            return Miss(f"groups={groups} of {inputs} channel{'s' * (inputs > 1)}: not grouped, or depthwise")
        merge = _groups_to_merge(groups, outputs, machine.lanes)
        inputs, outputs, merged = inputs * merge, outputs * merge, groups // merge
        inner = math.gcd(inputs, machine.lanes)
        oh, ow = facts["out_image"]
        problem = blocked.Problem(
            group.shape[0] * merged, outputs, oh * ow, ow, inputs // inner, weight.shape[2:], inner, machine.lanes
        )
        return Match(
            group, {**facts, "problem": blocked.with_residence(problem, group), "merge": merge, "merged": merged}
        )

    def is_exact(self, match: Match) -> bool:
        return match.merge == 1

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        p = match.problem
        packed = PackedWeight.make(4, p.inner, p.lanes * config["tile_o"], blocked.Units.of(p, config).outer_o)
        weight = GroupedWeight((0, 1, 2, 3), None, match.merged, match.merge, packed)
        result = Layout.blocked(4, p.lanes)
        own: Mapping[Any, Layout] = {
            **scale_layouts(match.group, match.weight, p.lanes),
            match.data.var: result, match.weight.var: widened(match.group, match.weight, weight),
        }  # fmt: skip
        params = [own.get(q.var) or blocked_layout(q.shape, p.lanes) for q in match.group.params]
        return Layouts(tuple(params), result)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        problem, merged, ow = match.problem, match.merged, match.out_image[1]
        tensors = placeholders(match.group, layouts.params)
        epilogue = Epilogue(match.group, tensors, layouts.params)
        where = {p.var: i for i, p in enumerate(match.group.params)}
        weight, image = tensors[where[match.weight.var]], padded(match, tensors, layouts.params)
        scale = scaled(match.group, tensors, layouts.params, match.weight)
        (sy, sx), (dy, dx) = match.strides, match.dilation

        def load(b: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            channel = (tirx.floormod(b, merged) * problem.blocks + block) * problem.inner + ri
            y, x = tirx.floordiv(q, ow) * sy + ry * dy, tirx.floormod(q, ow) * sx + rx * dx
            return image(*layouts.output.index((tirx.floordiv(b, merged), channel, y, x)))

        acc = blocked.reduce_tiles(
            problem, blocked.Units.of(problem, config), load, lambda b, *i: weight(tirx.floormod(b, merged), *i)
        )

        def value(b: Any, o: Any, q: Any, j: Any) -> Any:
            channel = tirx.floormod(b, merged) * problem.outputs + o * problem.lanes + j
            at = (tirx.floordiv(b, merged), channel, tirx.floordiv(q, ow), tirx.floormod(q, ow))
            return epilogue(at, scale(acc(b, o, q, j), channel))

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
        blocks, merged, ow = match.problem.output_blocks, match.merged, match.out_image[1]
        sch.transform_layout(
            sch.get_sblock("out"),
            ("write", 0),
            lambda b, o, q, j: (
                tirx.floordiv(b, merged), tirx.floormod(b, merged) * blocks + o,
                tirx.floordiv(q, ow), tirx.floormod(q, ow), j,
            ),
        )  # fmt: skip


def _groups_to_merge(groups: int, outputs: int, lanes: int) -> int:
    """The fewest groups whose outputs are whole vectors; all of them if none are."""
    return next(k for k in range(1, groups + 1) if groups % k == 0 and (k * outputs % lanes == 0 or k == groups))
