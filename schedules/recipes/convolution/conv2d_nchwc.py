"""Direct 2-d convolution on NCHW{lanes}c, any kernel size, stride and dilation, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, ...        x: NCHW or NCHW{l}c, w: OIHW{i}i{o}o, result: NCHW{l}c

Padding is written by the kernel itself into a workspace that its threads share; without padding there is none.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss

from ...blocked import kernel as blocked
from ...blocked.convolution import (
    Conv2dMatch,
    channel_lanes,
    convolution_of,
    free_extents,
    image_kernel,
    image_layouts,
    inner_steps,
    padded,
    reads_pixels,
    schedule_image,
    schedule_padding,
    tap_rows,
)
from ...blocked.prefetch import buffer_name
from ...steps.arguments import Arguments
from ...steps.widened import scaled


class Conv2dNCHWc(blocked.BlockedRecipe[Conv2dMatch]):
    """Direct convolution, register-blocked over output channels and pixels."""

    name = "conv2d_nchwc"
    anchors = frozenset({"relax.nn.conv2d"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> Conv2dMatch | Miss:
        if isinstance(conv := convolution_of(group), Miss):
            return conv
        window, (co, ci, kh, kw) = conv.window, conv.weight.shape
        if window.groups != 1:
            return Miss(f"groups={window.groups}: this recipe has no grouped convolution")
        (oh, ow), inner, lanes = window.out_image, inner_steps(ci, machine.lanes), channel_lanes(co, machine)
        problem = blocked.Problem(
            window.images, co, oh * ow, ow, ci // inner, (kh, kw), inner, lanes,
            weights_in=group.weights_in, tap_rows=tap_rows(window), image=window.pixels_read,
            free=any(free_extents(group)),
        )  # fmt: skip
        return Conv2dMatch(group, conv.data, conv.weight, problem, window, machine.lanes)

    def space(self, match: Conv2dMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """With the choice whether pixels are numbered through a call, where rows have run-time extents."""
        knobs, problem = super().space(match, machine), match.problem
        columns = free_extents(match.group)[2] and 1 < problem.row < problem.pixels
        ends: dict[str, Sequence[Any]] = {"numbered": [0, 1]} if columns else {}
        return {**{k: knobs[k] for k in ("tile_o", "tile_p", "parts")}, **ends, **knobs}

    def costs_of_any_size(self, match: Conv2dMatch, machine: Machine) -> Iterator[tuple[Config, float]]:
        knobs = self.space(match, machine)
        names = [name for name in ("tile_p", "parts", "numbered") if name in knobs]
        choices = itertools.product(*(knobs[name] for name in names))
        ends = tuple(end for each in choices if self.cuts(match, dict(end := tuple(zip(names, each, strict=True)))))
        return ((dict(config), cost) for config, cost in _costs(match.problem, ends, machine))

    def layouts(self, match: Conv2dMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        p, data = match.problem, offered[match.group.params.index(match.data)]
        data = data if self._reads(match, data) else Layout.blocked(4, match.input_lanes)
        weight = blocked.packed_weight(p, config)
        return image_layouts(match.group, p.lanes, (match.data, data), (match.weight, weight))

    @staticmethod
    def _reads(match: Conv2dMatch, layout: Layout) -> bool:
        """Few channels are read where they are; otherwise steps that stand together must be in one block."""
        problem = match.problem
        if layout.block is None:
            return bool(problem.blocks * problem.inner <= 4)
        return layout == Layout.blocked(4, layout.block[1]) and layout.block[1] % problem.inner == 0

    def compute(self, match: Conv2dMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, window = Arguments(match.group, layouts), match.problem, match.window
        image, layout = padded(args, match.data, window), args.layout(match.data)

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
            return image(*layout.index((n, block * problem.inner + ri, *window.tap(*window.pixel(q), ry, rx))))

        weight = blocked.shared(args.tensor(match.weight))
        acc = blocked.reduce_tiles(problem, blocked.Units.of(problem, config), load, weight)
        scale = scaled(args, match.weight)
        return image_kernel(args, problem, window, lambda n, o, q, j, channel: scale(acc(n, o, q, j), channel))

    def schedule(
        self, sch: Schedule, match: Conv2dMatch, config: Config, machine: Machine,
        blocker: blocked.Blocker = blocked.configured,
    ) -> None:  # fmt: skip
        image = blocked.padded_image(match.problem, config, machine)
        data = buffer_name(match, match.data) if reads_pixels(match.data, match.window) else None
        blocked.schedule_tiles(
            sch, match.problem, config, weight=buffer_name(match, match.weight), blocker=blocker, image=image, data=data
        )
        own = blocker is blocked.configured and blocked.copies_own(match.problem, config, machine)
        schedule_padding(sch, match.data, match.window, config["threads"], own)
        schedule_image(sch, match.problem, match.window, config)


@functools.lru_cache(maxsize=64)
def _costs(
    problem: blocked.Problem, ends: Sequence[Sequence[tuple[str, int]]], machine: Machine
) -> tuple[tuple[Mapping[str, Any], float], ...]:
    """Legal points of these values of some knobs, and their costs; layers that differ in their epilogue share them."""
    knobs, out = blocked.space(problem, machine), []
    for tile_o, end in itertools.product(knobs["tile_o"], ends):
        tile = {"tile_o": tile_o, **dict(end)}
        points = itertools.product(knobs["chunk"], knobs["threads"])
        configs = [{**tile, "chunk": chunk, "threads": threads} for chunk, threads in points]
        if blocked.tile_fits(blocked.with_numbers(problem, configs[0])[0], tile, machine):
            out += [(config, blocked.cost(*blocked.with_numbers(problem, config), machine)) for config in configs]
    return tuple(out)
