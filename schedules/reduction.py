"""Sum, mean, maximum and minimum over some axes, with fused epilogue; global pooling is one of them.

mean(x, axis=[2, 3])  on NCHW{l}c      one vector of channels an accumulator; result as ONNX has it
sum(x, axis=[-1])     on plain layout  `lanes` partial results a row, then one
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss, Recipe

from .epilogue import Epilogue, placeholders
from .steps import flat_map, parallel_rows, thread_choices

_REDUCERS = {"relax.mean": te.sum, "relax.sum": te.sum, "relax.max": te.max, "relax.min": te.min}


class Reduction(Recipe):
    """Reduction over any axes of a float32 tensor."""

    name = "reduction"
    anchors = frozenset(_REDUCERS)

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        data = group.operand(0)
        if data is None or data.dtype != "float32" or group.dtype != "float32":
            return Miss("this recipe reduces one float32 input")
        given = group.call.attrs.axis  # type: ignore[union-attr]
        rank = len(data.shape)
        axes = sorted({int(a) % rank for a in given}) if given is not None else list(range(rank))
        if not axes or 0 in data.shape:
            return Miss("nothing is reduced, or the input is empty")
        keepdims = bool(group.call.attrs.keepdims)  # type: ignore[union-attr]
        return Match(group, {"data": data, "axes": axes, "keepdims": keepdims, "lanes": machine.lanes})

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return {"threads": thread_choices(math.prod(match.data.shape), machine)}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return math.prod(match.data.shape) / machine.lanes / 1e9 / config["threads"]

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        where = match.group.params.index(match.data)
        given = offered[where]
        spatial = len(match.data.shape) == 4 and match.axes == [2, 3]
        accepts = spatial and given.block is not None and given == Layout.blocked(4, given.block[1])
        params = [
            given if i == where and accepts else Layout.plain(len(p.shape)) for i, p in enumerate(match.group.params)
        ]
        return Layouts(tuple(params), Layout.plain(len(match.group.shape)))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group = match.group
        tensors = placeholders(group, layouts.params)
        where = group.params.index(match.data)
        data, layout = tensors[where], layouts.params[where]
        reduced = _pooled(match, data) if layout.block else _reduced(match, data)
        epilogue = Epilogue(group, tensors, layouts.params)
        kept = [a for a in range(len(match.data.shape)) if a not in match.axes]
        count = math.prod(match.data.shape[a] for a in match.axes)

        def value(*index: Any) -> Any:
            full = index if match.keepdims else _insert(index, match.axes)
            at = [full[a] for a in kept]
            if layout.block:
                lanes = layout.block[1]
                at = [at[0], tirx.floordiv(at[1], lanes), tirx.floormod(at[1], lanes)]
            result = reduced(*at)
            if group.anchor == "relax.mean":
                result = result * tirx.const(1.0 / count, "float32")
            return epilogue(index, result)

        return te.create_prim_func([*tensors, te.compute(group.shape, value, name="out")])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        names = {str(sch.get(b).name_hint) for b in sch.get_child_blocks(sch.get_sblock("root"))}
        first = "partial" if "partial" in names else "reduce"
        block = sch.get_sblock(first)
        loops = sch.get_loops(block)
        spatial = len([1 for it in sch.get(block).iter_vars if int(it.iter_type) == 0])
        rows, reduction = loops[:spatial], loops[spatial:]
        vector = rows[-1] if _vectorizable(sch, rows, machine.lanes) else None
        outer = rows[:-1] if vector is not None else rows
        if vector is not None:
            sch.reorder(*outer, *reduction, vector)
        if outer:
            parallel_rows(sch, outer, config["threads"])
        if vector is not None:
            sch.vectorize(vector)
            sch.vectorize(sch.get_loops(sch.decompose_reduction(block, reduction[0]))[-1])
        flat_map(sch, sch.get_sblock("out"), 1, machine.lanes)


def _vectorizable(sch: Schedule, rows: Sequence[Any], lanes: int) -> bool:
    return bool(rows) and int(sch.get(rows[-1]).extent) in (lanes, 2 * lanes, 4 * lanes)


def _pooled(match: Match, data: te.Tensor) -> te.Tensor:
    """(N, C / lanes, lanes): each lane reduces its own channel over the image."""
    n, blocks, h, w, lanes = (int(d) for d in data.shape)
    ry, rx = te.reduce_axis((0, h), name="ry"), te.reduce_axis((0, w), name="rx")
    reducer = _REDUCERS[match.group.anchor]
    return te.compute((n, blocks, lanes), lambda b, c, j: reducer(data(b, c, ry, rx, j), axis=[ry, rx]), name="reduce")


def _reduced(match: Match, data: te.Tensor) -> te.Tensor:
    """The kept axes; rows whose last axis is reduced in whole vectors have `lanes` partial results first."""
    shape, axes, lanes = match.data.shape, match.axes, match.lanes
    kept = [a for a in range(len(shape)) if a not in axes]
    reducer, last = _REDUCERS[match.group.anchor], len(shape) - 1
    split = last in axes and shape[last] % lanes == 0 and shape[last] > lanes
    loops = {a: te.reduce_axis((0, shape[a] // lanes if split and a == last else shape[a]), name=f"r{a}") for a in axes}

    def element(at: Sequence[Any], lane: Any) -> Any:
        where = {**dict(zip(kept, at, strict=True)), **loops}
        if split:
            where[last] = loops[last] * lanes + lane
        return reducer(data(*(where[a] for a in range(len(shape)))), axis=list(loops.values()))

    outer = [shape[a] for a in kept]
    if not split:
        return te.compute(outer, lambda *i: element(i, None), name="reduce")
    partial = te.compute([*outer, lanes], lambda *i: element(i[:-1], i[-1]), name="partial")
    lane = te.reduce_axis((0, lanes), name="lane")
    return te.compute(outer, lambda *i: reducer(partial(*i, lane), axis=lane), name="reduce")


def _insert(index: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    full = list(index)
    for a in axes:
        full.insert(a, 0)
    return full
