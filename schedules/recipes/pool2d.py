"""Max and average pooling on NCHW{lanes}c (or NCHW), with fused epilogue.

    max_pool2d(x), avg_pool2d(x)        x: NCHW{l}c, result: NCHW{l}c

A window that leaves the image reads the nearest pixel of the image instead. For a maximum that pixel is in the window
already, so nothing changes and no condition is left; for an average it is multiplied by zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import vector_seconds
from tvm_ext.core.cost.sharing import Sharing
from tvm_ext.core.graph.relax_graph import attrs_of
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.numbers.storage import STORED
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe
from tvm_ext.ops.scalars.functions import cast

from ..steps.epilogue import Epilogue, blocked_layout, placeholders
from ..steps.loops import parallel_rows, thread_choices, unroll_and_vectorize
from ..steps.row_reduction import COMBINE
from ..steps.storage import Reader, reader, why_not_float32

_ATTRIBUTES = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad", "layout")


class Pool2d(Recipe):
    """Pooling: one vector of channels a pixel."""

    name = "pool2d"
    anchors = frozenset({"relax.nn.max_pool2d", "relax.nn.avg_pool2d"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        a = attrs_of(group.call, _ATTRIBUTES)
        data = group.operand(0)
        if data is None:
            return Miss("the operand is computed inside the group")
        average = group.anchor == "relax.nn.avg_pool2d"
        if (why := why_not_float32(group, data)) and (average or data.computed not in STORED):
            return Miss(why)
        if a["layout"] != "NCHW":
            return Miss(f"layout {a['layout']} is not NCHW")
        if any(p >= k for p, k in zip(a["padding"], a["pool_size"] * 2, strict=True)):
            return Miss(f"padding {a['padding']} reaches a whole window of {a['pool_size']}")
        if average and a["ceil_mode"]:
            return Miss("average pooling in ceil mode divides by clipped windows")
        if not average and _window_leaves_image(a, data.shape, group.shape):
            return Miss("a window of ceil mode or dilation lies outside the image")
        return Match(group, {**a, "data": data})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        work = math.prod(match.group.shape) * match.pool_size[0] * match.pool_size[1]
        return {"threads": thread_choices(work, machine, self.shared(match, machine))}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        work = math.prod(match.group.shape) * match.pool_size[0] * match.pool_size[1]
        return vector_seconds(work, machine, self.sharing(match, config, machine))

    def sharing(self, match: Match, config: Config, machine: Machine) -> Sharing:
        """Rows of blocks of channels."""
        n, c, h, _ = match.group.shape
        return Sharing.of_rows(n * -(-c // machine.lanes) * h, config["threads"])

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        where = match.group.params.index(match.data)
        given = offered[where]
        if given.block is None or given != Layout.blocked(4, given.block[1]):
            return Layouts(tuple(Layout.plain(len(p.shape)) for p in match.group.params), Layout.plain(4))
        lanes = given.block[1]
        params = [given if i == where else blocked_layout(p.shape, lanes) for i, p in enumerate(match.group.params)]
        return Layouts(tuple(params), given)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group = match.group
        tensors = placeholders(group, layouts.params)
        epilogue = Epilogue(group, tensors, layouts.params)
        data = reader(group, tensors, layouts.params, match.data)
        layout = layouts.params[group.params.index(match.data)]
        average = group.anchor == "relax.nn.avg_pool2d"
        window = (_average if average else _maximum)(match, data, layout)
        shape = layouts.output.physical_shape(group.shape)
        pooled = te.compute(shape, window, name="pool")
        out = te.compute(
            shape, lambda *i: epilogue(layouts.output.logical(i), _divide(match, layouts, i, pooled)), name="out"
        )
        return te.create_prim_func([*tensors, out])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        pool, out = sch.get_sblock("pool"), sch.get_sblock("out")
        *rows, last = sch.get_loops(out)
        blocked = len(rows) == 4
        parallel_rows(sch, rows[:3], config["threads"])
        if not blocked:
            return
        sch.vectorize(last)
        sch.compute_at(pool, sch.get_loops(out)[-2], preserve_unit_loops=True)
        sch.set_scope(pool, 0, "local")
        lanes, ry, rx = sch.get_loops(pool)[-3:]
        sch.reorder(ry, rx, lanes)
        unroll_and_vectorize(sch, [ry, rx], lanes)
        sch.vectorize(sch.get_loops(sch.decompose_reduction(pool, ry))[-1])


def _window_leaves_image(a: Mapping[str, Any], data: Sequence[int], out: Sequence[int]) -> bool:
    """Whether some window has no pixel of the image, or leaves it and may skip its border pixel because of dilation."""
    axes = list(zip(a["strides"], a["padding"][:2], a["pool_size"], a["dilation"], data[2:], out[2:], strict=True))
    beyond = any((o - 1) * s - p + (k - 1) * dilation >= size for s, p, k, dilation, size, o in axes)
    if a["dilation"] != (1, 1) and (any(a["padding"]) or beyond):
        return True
    return any((o - 1) * s - p >= size for s, p, _, _, size, o in axes)


def _taps(match: Match) -> tuple[te.IterVar, te.IterVar]:
    ky, kx = match.pool_size
    return te.reduce_axis((0, ky), name="ry"), te.reduce_axis((0, kx), name="rx")


def _window(match: Match, index: Sequence[Any], layout: Layout, ry: Any, rx: Any) -> tuple[Any, Any, Any]:
    """Physical index of a tap, clamped to the image, and the unclamped (y, x)."""
    n, c, y, x = layout.logical(index)
    (sy, sx), (dy, dx), (top, left) = match.strides, match.dilation, match.padding[:2]
    h, w = match.data.shape[2:]
    iy, ix = y * sy + ry * dy - top, x * sx + rx * dx - left
    clamped = (n, c, tirx.max(0, tirx.min(iy, h - 1)), tirx.max(0, tirx.min(ix, w - 1)))
    return layout.index(clamped), iy, ix


def _maximum(match: Match, data: Reader, layout: Layout) -> Any:
    """ONNX says nothing of NaN in a window, and to look for it takes four times as long.

    Numbers of bfloat16 are compared as float32, whole numbers as they are.
    """
    ry, rx = _taps(match)
    over = COMBINE["max_number"][0]

    def value(*index: Any) -> Any:
        tap = data(*_window(match, index, layout, ry, rx)[0])
        return over(cast(tap, "float32") if match.data.computed == "bfloat16" else tap, axis=[ry, rx])

    return value


def _average(match: Match, data: Reader, layout: Layout) -> Any:
    ry, rx = _taps(match)
    h, w = match.data.shape[2:]

    def value(*index: Any) -> Any:
        at, iy, ix = _window(match, index, layout, ry, rx)
        inside = tirx.all(iy >= 0, iy < h, ix >= 0, ix < w)
        return te.sum(tirx.Select(inside, data(*at), tirx.const(0, "float32")), axis=[ry, rx])

    return value


def _divide(match: Match, layouts: Layouts, index: Sequence[Any], pooled: te.Tensor) -> Any:
    """The pooled value; for an average, over the number of pixels that count."""
    value = pooled(*index)
    if match.group.anchor != "relax.nn.avg_pool2d":
        return cast(value, match.data.computed)
    ky, kx = match.pool_size
    if match.count_include_pad or not any(match.padding):
        return value * tirx.const(1.0 / (ky * kx), "float32")
    _, _, y, x = layouts.output.logical(index)
    (sy, sx), (dy, dx), (top, left) = match.strides, match.dilation, match.padding[:2]
    h, w = match.data.shape[2:]
    rows = sum(_counts(y * sy + k * dy - top, h) for k in range(ky))
    columns = sum(_counts(x * sx + k * dx - left, w) for k in range(kx))
    return value / (rows * columns).astype("float32")


def _counts(at: Any, size: int) -> Any:
    return tirx.Select(tirx.all(at >= 0, at < size), tirx.const(1, "int32"), tirx.const(0, "int32"))
