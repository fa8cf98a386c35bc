"""3 x 3 convolution of stride 1 by Winograd's F(m x m, 3 x 3) on NCHW{lanes}c, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, ...      x: NCHW{l}c, w: G g G^T, result: NCHW{l}c

Three stages in one kernel, each on all threads:

    V[a b, c, q, l] = B^T d B      input tiles; padding is read as zero
    M[a b, o, q, l] = U V          alpha^2 blocked matmuls over the input channels
    out             = A^T M A      output tiles, then the epilogue
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

from . import blocked
from .conv2d_nchwc import Conv2dNCHWc
from .epilogue import Epilogue, blocked_layout, placeholders
from .steps import parallel_rows, unroll_and_vectorize
from .winograd import TRANSFORMS, Transform, WinogradWeight, transformed


class Conv2dWinograd(Recipe):
    """Winograd convolution; the tile size is a knob."""

    name = "conv2d_winograd"
    anchors = frozenset({"relax.nn.conv2d"})
    exact = False

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        direct = Conv2dNCHWc().match(group, machine)
        if isinstance(direct, Miss):
            return direct
        f = direct.facts
        if f["weight"].shape[2:] != (3, 3) or f["strides"] != (1, 1) or f["dilation"] != (1, 1):
            return Miss("Winograd takes 3x3 kernels of stride 1 and dilation 1")
        if f["problem"].inner != machine.lanes:
            return Miss(f"{f['data'].shape[1]} input channels are no multiple of {machine.lanes} lanes")
        return Match(group, {**f, "lanes": machine.lanes})

    def problem(self, match: Match, m: int) -> blocked.Problem:
        """The alpha^2 matmuls: tiles are the pixels."""
        direct, (oh, ow) = match.problem, match.out_image
        tiles = match.data.shape[0] * -(-oh // m) * -(-ow // m)
        alpha = TRANSFORMS[m].alpha
        return blocked.Problem(
            alpha * alpha, direct.outputs, tiles, tiles, direct.blocks, (1, 1), direct.inner, direct.lanes
        )

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        spaces = [blocked.space(self.problem(match, m), machine) for m in TRANSFORMS]
        merged = {k: sorted({v for s in spaces for v in s[k]}) for k in spaces[0]}
        return {"m": sorted(TRANSFORMS), **merged}

    def default(self, match: Match, machine: Machine) -> Config:
        points = [{"m": m, **blocked.default(self.problem(match, m), machine)} for m in TRANSFORMS]
        return min(points, key=lambda config: self.cost(match, config, machine))

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        problem, transform = self.problem(match, config["m"]), TRANSFORMS[config["m"]]
        if config["tile_p"] > problem.pixels or problem.blocks % config["chunk"]:
            return math.inf
        into, out = transform.additions
        moved = 2 * transform.alpha**2 + transform.m**2
        vectors = problem.pixels * (problem.blocks * (into + moved) + problem.output_blocks * (out + moved))
        return blocked.cost(problem, config, machine) + vectors / config["threads"] / 3.0e9

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        problem = self.problem(match, config["m"])
        outer_o = blocked.Units.of(problem, config).outer_o
        weight = WinogradWeight.make(config["m"], problem.inner, problem.lanes * config["tile_o"], outer_o)
        result = Layout.blocked(4, problem.lanes)
        own = {match.data.var: result, match.weight.var: weight}
        params = [own.get(p.var) or blocked_layout(p.shape, problem.lanes) for p in match.group.params]
        return Layouts(tuple(params), result)

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        group, problem, transform = match.group, self.problem(match, config["m"]), TRANSFORMS[config["m"]]
        tensors = placeholders(group, layouts.params)
        where = {p.var: i for i, p in enumerate(group.params)}
        weight = tensors[where[match.weight.var]]
        v = _input_tiles(match, transform, tensors[where[match.data.var]])
        acc = blocked.reduce_tiles(
            problem,
            blocked.Units.of(problem, config),
            lambda n, q, block, ry, rx, ri: v(n, block, q, ri),
            lambda n, o, block, ry, rx, ri, j: weight(n, o, block, ri, j),
        )
        shape = (problem.batch, problem.output_blocks, problem.pixels, problem.lanes)
        product = te.compute(shape, lambda n, o, q, j: acc(n, o, q, j), name="product")
        y = _output_tiles(transform, product)
        epilogue = Epilogue(group, tensors, layouts.params)
        m, lanes = transform.m, problem.lanes
        rows, columns = (-(-d // m) for d in match.out_image)

        def value(n: Any, o: Any, r: Any, c: Any, j: Any) -> Any:
            q = (n * rows + tirx.floordiv(r, m)) * columns + tirx.floordiv(c, m)
            result = y(o, q, tirx.floormod(r, m), tirx.floormod(c, m), j)
            return epilogue((n, o * lanes + j, r, c), result)

        out = te.compute(layouts.output.physical_shape(group.shape), value, name="out")
        return te.create_prim_func([*tensors, out])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        _schedule_input(sch, TRANSFORMS[config["m"]].alpha, config["threads"])
        blocked.schedule_tiles(sch, self.problem(match, config["m"]), config, "product")
        _schedule_output(sch, config["m"], config["threads"])


def _input_tiles(match: Match, transform: Transform, data: te.Tensor) -> te.Tensor:
    """V[a b, c, q, l] = B^T d B of every tile q and block of channels c."""
    n, ci, h, w = match.data.shape
    alpha, m, lanes, dtype = transform.alpha, transform.m, match.lanes, match.data.dtype
    top, left = match.pads[:2]
    rows, columns = (-(-d // m) for d in match.out_image)
    blocks, tiles = ci // lanes, n * rows * columns

    def element(c: Any, q: Any, x: Any, y: Any, i: Any) -> Any:
        image, at = tirx.floordiv(q, rows * columns), tirx.floormod(q, rows * columns)
        r = tirx.floordiv(at, columns) * m + x - top
        s = tirx.floormod(at, columns) * m + y - left
        inside = tirx.all(r >= 0, r < h, s >= 0, s < w)
        return tirx.if_then_else(inside, data(image, c, r, s, i), tirx.const(0, dtype))

    d = te.compute((blocks, tiles, alpha, alpha, lanes), element, name="d")
    v1 = te.compute(
        (blocks, tiles, alpha, alpha, lanes),
        lambda c, q, a, y, i: transformed(transform.bt, a, [d(c, q, x, y, i) for x in range(alpha)], dtype),
        name="v1",
    )
    return te.compute(
        (alpha * alpha, blocks, tiles, lanes),
        lambda ab, c, q, i: transformed(
            transform.bt,
            tirx.floormod(ab, alpha),
            [v1(c, q, tirx.floordiv(ab, alpha), y, i) for y in range(alpha)],
            dtype,
        ),
        name="v",
    )


def _output_tiles(transform: Transform, product: te.Tensor) -> te.Tensor:
    """Y[o, q, x, y, l] = A^T M A."""
    alpha, m = transform.alpha, transform.m
    _, blocks, tiles, lanes = (int(d) for d in product.shape)
    dtype = product.dtype
    y1 = te.compute(
        (blocks, tiles, m, alpha, lanes),
        lambda o, q, x, b, j: transformed(
            transform.at, x, [product(a * alpha + b, o, q, j) for a in range(alpha)], dtype
        ),
        name="y1",
    )
    return te.compute(
        (blocks, tiles, m, m, lanes),
        lambda o, q, x, y, j: transformed(transform.at, y, [y1(o, q, x, b, j) for b in range(alpha)], dtype),
        name="y",
    )


def _schedule_input(sch: Schedule, alpha: int, threads: int) -> None:
    """One tile and block of channels at a time; the row of each matrix is unrolled, the other axis a loop."""
    v, v1, d = (sch.get_sblock(name) for name in ("v", "v1", "d"))
    ab, c, q, lane = sch.get_loops(v)
    a, b = sch.split(ab, [alpha, alpha])
    sch.reorder(c, q, a, b)
    tile = parallel_rows(sch, [c, q], threads)
    unroll_and_vectorize(sch, [b], lane)
    for block in (v1, d):
        sch.compute_at(block, tile, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
    a, y, lane = sch.get_loops(v1)[-3:]
    sch.reorder(y, a)
    unroll_and_vectorize(sch, [a], lane)
    sch.vectorize(sch.get_loops(d)[-1])


def _schedule_output(sch: Schedule, m: int, threads: int) -> None:
    """One tile and block of outputs at a time, likewise."""
    out, y, y1 = (sch.get_sblock(name) for name in ("out", "y", "y1"))
    n, o, r, c, lane = sch.get_loops(out)
    r0, r1 = sch.split(r, [None, m])
    c0, c1 = sch.split(c, [None, m])
    sch.reorder(n, o, r0, c0, r1, c1, lane)
    tile = parallel_rows(sch, [n, o, r0, c0], threads)
    unroll_and_vectorize(sch, [c1], lane)
    for block in (y, y1):
        sch.compute_at(block, tile, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
    unroll_and_vectorize(sch, [sch.get_loops(y)[-2]], sch.get_loops(y)[-1])
    x, b, lane = sch.get_loops(y1)[-3:]
    sch.reorder(b, x)
    unroll_and_vectorize(sch, [x], lane)
