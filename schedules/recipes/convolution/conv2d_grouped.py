"""Grouped 2-d convolution on NCHW{lanes}c, with fused epilogue.

    conv2d(x, w, groups=G) -> +bias, relu, ...       x: NCHW{l}c, w: SOIHW{i}i{o}o, result: NCHW{l}c

Each group is a blocked reduction of its own, over its own channels. Groups with fewer outputs than fill whole vectors
are merged, `merge` of them into one whose weight is block diagonal, zeros between the blocks:

    32 groups of 4 -> 4   =   8 groups of 16 -> 16,  w = diag(w0, w1, w2, w3)        at 16 lanes

That multiplies by zeros, but a vector of four outputs of one group would leave as many lanes idle, and every load and
store would be a part of a vector.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.layout import OpaqueLayout, PackedWeight
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss

from ...blocked import kernel as blocked
from ...blocked.convolution import (
    convolution_of,
    free_extents,
    image_kernel,
    image_layouts,
    padded,
    schedule_image,
    schedule_padding,
    tap_rows,
)
from ...blocked.prefetch import buffer_name
from ...steps.arguments import Arguments
from ...steps.widened import scaled
from ...steps.window import Window


@dataclass(frozen=True)
class GroupedWeight(OpaqueLayout):
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


@dataclass(frozen=True)
class GroupedMatch(blocked.BlockedMatch):
    """A grouped convolution.

    Attributes:
        window: its geometry.
        merge: groups in one of the problem.
        merged: groups after merging.
    """

    window: Window
    merge: int
    merged: int


class Conv2dGrouped(blocked.BlockedRecipe[GroupedMatch]):
    """Grouped convolution, register-blocked over the outputs of a group and pixels."""

    name = "conv2d_grouped"
    anchors = frozenset({"relax.nn.conv2d"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> GroupedMatch | Miss:
        if isinstance(conv := convolution_of(group), Miss):
            return conv
        window, groups, inputs = conv.window, conv.window.groups, conv.weight.shape[1]
        outputs = window.outputs // groups
        if groups == 1 or (inputs, outputs) == (1, 1):
            return Miss(f"groups={groups} of {inputs} channel{'s' * (inputs > 1)}: not grouped, or depthwise")
        merge = _groups_to_merge(groups, outputs, machine.lanes)
        inputs, outputs, merged = inputs * merge, outputs * merge, groups // merge
        inner, (oh, ow) = math.gcd(inputs, machine.lanes), window.out_image
        problem = blocked.Problem(
            window.images * merged, outputs, oh * ow, ow, inputs // inner, window.kernel, inner, machine.lanes,
            weights_in=group.weights_in, tap_rows=tap_rows(window), image=window.pixels_read,
            free=any(free_extents(group)),
        )  # fmt: skip
        return GroupedMatch(group, conv.data, conv.weight, problem, window, merge, merged)

    def is_exact(self, match: GroupedMatch) -> bool:
        return match.merge == 1

    def layouts(self, match: GroupedMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        p = match.problem
        packed = blocked.packed_weight(p, config)
        weight = GroupedWeight((0, 1, 2, 3), None, match.merged, match.merge, packed)
        return image_layouts(match.group, p.lanes, (match.data, Layout.blocked(4, p.lanes)), (match.weight, weight))

    def compute(self, match: GroupedMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, window, merged = Arguments(match.group, layouts), match.problem, match.window, match.merged
        weight, image, scale = args.tensor(match.weight), padded(args, match.data, window), scaled(args, match.weight)

        def load(b: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            channel = (tirx.floormod(b, merged) * problem.blocks + block) * problem.inner + ri
            y, x = window.tap(*window.pixel(q), ry, rx)
            return image(*layouts.output.index((tirx.floordiv(b, merged), channel, y, x)))

        units = blocked.Units.of(problem, config)
        acc = blocked.reduce_tiles(problem, units, load, lambda b, *i: weight(tirx.floormod(b, merged), *i))
        return image_kernel(args, problem, window, lambda b, o, q, j, c: scale(acc(b, o, q, j), c), merged)

    def schedule(
        self, sch: Schedule, match: GroupedMatch, config: Config, machine: Machine,
        blocker: blocked.Blocker = blocked.configured,
    ) -> None:  # fmt: skip
        schedule_padding(sch, match.data, match.window, config["threads"])
        image = blocked.padded_image(match.problem, config, machine)
        blocked.schedule_tiles(
            sch, match.problem, config, weight=buffer_name(match, match.weight), blocker=blocker, image=image
        )
        schedule_image(sch, match.problem, match.window, config, match.merged)


def _groups_to_merge(groups: int, outputs: int, lanes: int) -> int:
    """The fewest groups whose outputs are whole vectors; all of them if none are."""
    return next(k for k in range(1, groups + 1) if groups % k == 0 and (k * outputs % lanes == 0 or k == groups))
