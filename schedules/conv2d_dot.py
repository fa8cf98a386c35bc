"""Direct 2-d convolution of int8 or bfloat16 by dot-product instructions, any kernel size, stride and dilation.

    conv2d(decode(x), decode(w)) -> +bias, +residual, relu, encode ...        x: NCHW{l}c, w: OIHW{i}i{o}o4i

It is the kernel of `conv2d_nchwc` with words of 4 (int8) or 2 (bfloat16) input channels for steps (:mod:`.dots`).
Around the image stands what decodes to zero. The kernel writes that border itself, into a workspace that its threads
share; there it also makes signed inputs unsigned, and puts channels of a plain image side by side.
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

from . import blocked
from .convolution import facts_of
from .dot_kernel import AnchorValue, operands_of, schedule_shifts, weight_layout, words_of
from .dots import multiply
from .epilogue import Epilogue, blocked_layout, placeholders
from .steps import parallel_rows

#: So many channels are read of a plain image.
_FEW = 4
#: An image of so many bytes is copied by each thread.
_OWN_BYTES = 256 * 1024


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
        co, ci, kh, kw = facts["weight"].shape
        oh, ow = facts["out_image"]
        words, lanes = -(-ci // operands.dot.group), machine.lanes
        inner = math.gcd(words, lanes // operands.dot.group)
        problem = blocked.Problem(group.shape[0], co, oh * ow, ow, words // inner, (kh, kw), inner, lanes)
        few = ci <= _FEW
        # A channel beyond the last one, in a word with the last one, may hold NaN: it is read as zero.
        copied = any(facts["pads"]) or few or (operands.kind == "widen" and ci % operands.dot.group > 0)
        dot = operands.copied_dot if copied else operands.dot
        more = {"problem": problem, "operands": operands, "few": few, "copied": copied, "dot": dot}
        return Match(group, {**facts, **more})

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        lanes = match.problem.lanes
        params: list[Layout] = []
        for param, given in zip(match.group.params, offered, strict=True):
            if param is match.weight:
                params.append(weight_layout(match, config))
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
        image, layout = _copied(match, data, layout) if match.copied else (data, layout)
        (sy, sx), (dy, dx), ow = match.strides, match.dilation, match.out_image[1]
        units, words = blocked.Units.of(problem, config), layout.physical_shape(match.data.shape)[-1] // match.dot.group

        def load(n: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any, rk: Any) -> Any:
            y = tirx.floordiv(q, ow) * sy + ry * dy
            x = tirx.floormod(q, ow) * sx + rx * dx
            word = block * problem.inner + ri
            return image(n, word // words, y, x, word % words * match.dot.group + rk)

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
        unit = blocked.schedule_tiles(sch, match.problem, config, dot=match.dot)
        schedule_shifts(sch, match, unit)
        if match.copied:
            _schedule_copy(sch, match, config)
        multiply(sch, match.dot)
        ow = match.out_image[1]
        sch.transform_layout(
            sch.get_sblock("out"),
            ("write", 0),
            lambda n, o, q, j: (n, o, tirx.floordiv(q, ow), tirx.floormod(q, ow), j),
        )


def _preferred(match: Match) -> Layout:
    return Layout.plain(4) if match.few else Layout.blocked(4, match.problem.lanes)


def _reads(match: Match, layout: Layout) -> bool:
    """Few channels are read where they are; otherwise words that stand together must be in one block."""
    if layout.block is None:
        return layout == _preferred(match)
    lanes, together = layout.block[1], match.problem.inner * match.dot.group
    return layout == Layout.blocked(4, lanes) and lanes % together == 0


def _copied(match: Match, data: te.Tensor, source: Layout) -> tuple[te.Tensor, Layout]:
    """The image with its border, and how it lies: the stage "image"."""
    top, left, bottom, right = match.pads
    (h, w), (n, c) = match.image, match.data.shape[:2]
    operands, border = match.operands, match.operands.border
    width = match.problem.inner * match.problem.blocks * match.dot.group
    layout = Layout.blocked(4, width) if source.block is None else source

    def value(*index: Any) -> Any:
        b, ch, y, x = layout.logical(index)
        inside = [y >= top, y < h + top, x >= left, x < w + left]
        if source.block is None and c < width:
            inside.append(ch < c)
        element = operands.copied(data(*source.index((b, ch, y - top, x - left))))
        if source.block is not None and c % match.dot.group:
            element = tirx.Select(ch < c, element, border)
        return tirx.if_then_else(tirx.all(*inside), element, border)

    shape = layout.physical_shape((n, c, h + top + bottom, w + left + right))
    return te.compute(shape, value, name="image"), layout


def _schedule_copy(sch: Schedule, match: Match, config: Config) -> None:
    """Each thread copies what it reads, so that none waits for others; what many would copy whole, they share by rows.

    Waking threads for a copy of its own takes as long as the copy, and half of it lies in another core's cache then.
    """
    image, threads = sch.get_sblock("image"), config["threads"]
    words = match.problem.blocks * match.problem.inner
    own = _shared_out(match, config) or 4 * words * math.prod(match.image) <= _OWN_BYTES
    if threads > 1 and own:
        sch.compute_at(image, sch.get_loops(sch.get_sblock("out"))[0], preserve_unit_loops=True)
    elif threads > 1:
        parallel_rows(sch, sch.get_loops(image)[:3], threads)
    sch.vectorize(sch.get_loops(image)[-1])


def _shared_out(match: Match, config: Config) -> bool:
    """Whether threads read different images, or different rows of one."""
    problem, threads = match.problem, config["threads"]
    return problem.batch % threads == 0 or blocked.by_pixels(problem, blocked.Units.of(problem, config), threads)
