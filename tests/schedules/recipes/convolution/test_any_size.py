"""Convolutions of images whose height and width are known at run time, against float64."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from tvm_ext.core.graph.nodes import nodes_of
from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.passes.tir.kernel_passes import lower_to_loops
from tvm_ext.schedules.blocked import kernel as blocked
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import Conv2dDepthwise
from tvm_ext.schedules.recipes.convolution.conv2d_dot import Conv2dDot
from tvm_ext.schedules.recipes.convolution.conv2d_grouped import Conv2dGrouped
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_transpose import Conv2dTranspose
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd

from ...any_size import AnySize, each_size, symbols, with_extents
from ...convolutions import conv_group, grouped_reference, transposed_reference
from ...kernels import ROUNDOFF, matched, random
from ...narrow import TYPES, assert_exact, needs, twin
from .test_conv2d_dot import Case, make, offered_to

#: recipe, data, weight, attributes
CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "direct": (Conv2dNCHWc, (2, 16, 13, 11), (17, 16, 3, 3), {"padding": (1, 1, 1, 1)}),
    "direct, stride 2": (Conv2dNCHWc, (1, 3, 15, 13), (16, 3, 5, 3), {"strides": (2, 2), "padding": (2, 1, 2, 1)}),
    "direct, dilated": (Conv2dNCHWc, (1, 8, 12, 12), (8, 8, 3, 3), {"padding": (2, 2, 2, 2), "dilation": (2, 2)}),
    "pointwise": (Conv2dNCHWc, (2, 24, 7, 7), (40, 24, 1, 1), {}),
    "no padding": (Conv2dNCHWc, (1, 16, 9, 11), (16, 16, 3, 3), {}),
    "Winograd": (Conv2dWinograd, (2, 32, 14, 11), (32, 32, 3, 3), {"padding": (1, 1, 1, 1)}),
    "Winograd, no padding": (Conv2dWinograd, (1, 32, 14, 11), (32, 32, 3, 3), {}),
    "Winograd, planar": (Conv2dWinograd, (1, 3, 17, 14), (16, 3, 7, 7), {"strides": (2, 2), "padding": (3, 3, 3, 3)}),
    "Winograd, stride 2": (
        Conv2dWinograd, (3, 32, 13, 12), (32, 32, 3, 3), {"strides": (2, 2), "padding": (1, 1, 1, 1)},
    ),
    "grouped": (Conv2dGrouped, (1, 32, 9, 9), (32, 8, 3, 3), {"groups": 4, "padding": (1, 1, 1, 1)}),
    "depthwise": (Conv2dDepthwise, (2, 24, 13, 11), (24, 1, 3, 3), {"groups": 24, "padding": (1, 1, 1, 1)}),
    "depthwise, stride 2": (
        Conv2dDepthwise, (1, 16, 15, 13), (16, 1, 5, 3),
        {"groups": 16, "strides": (2, 2), "padding": (2, 1, 2, 1)},
    ),
    "transposed": (Conv2dTranspose, (1, 16, 8, 7), (16, 24, 4, 4), {"strides": (2, 2), "padding": (1, 1, 1, 1)}),
    "transposed, odd": (Conv2dTranspose, (1, 16, 5, 7), (16, 8, 3, 3), {"strides": (2, 2), "padding": (1, 1, 1, 1)}),
    "transposed, stride 3 by 1": (
        Conv2dTranspose, (1, 5, 4, 6), (5, 3, 5, 3), {"strides": (3, 1), "padding": (2, 0, 1, 1)},
    ),
}  # fmt: skip

NARROW = [
    Case((1, 32, 9, 11), (32, 32, 3, 3), padding=(1, 1, 1, 1)),
    Case((1, 3, 15, 13), (16, 3, 5, 5), (2, 2), (2, 2, 2, 2)),
]


def out_extent(transposed: bool, size: Any, kernel: int, stride: int, dilation: int, pads: int) -> Any:
    """Rows or columns of the result; of a number or of an expression."""
    reach = (kernel - 1) * dilation + 1
    return (size - 1) * stride + reach - pads if transposed else (size + pads - reach) // stride + 1


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_float64(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    """NaN behind the extents; where the recipe says so, the number of the border."""
    recipe, x, w, attrs = CASES[case]
    transposed, n, h, width = recipe is Conv2dTranspose, *symbols("NHW")
    attrs = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), **attrs}
    operator = relax.op.nn.conv2d_transpose if transposed else relax.op.nn.conv2d
    group = conv_group(x, w, operator=operator, **attrs)
    top, left, bottom, right = attrs["padding"]
    pads = (top + bottom, left + right)
    axes = [*zip((h, width), w[2:], attrs["strides"], attrs["dilation"], pads, strict=True)]
    result = [out_extent(transposed, *axis) for axis in axes]
    batch = n if x[0] > 1 else 1
    group = with_extents(group, (batch, x[1], h, width), w, (1, group.shape[1], 1, 1), (batch, group.shape[1], *result))
    kernel = AnySize(recipe(), group, case_machine)
    weight, bias = random(rng, *w), random(rng, *group.params[2].shape)
    least = [1 if transposed else max(1, (k - 1) * d + 1 - p) for _, k, _, d, p in axes]
    wrong = 40 * ROUNDOFF if recipe is Conv2dWinograd else ROUNDOFF
    for size in each_size(N={1, x[0]}, H={least[0], x[2] // 2 + 1, x[2]}, W={least[1], x[3] - 3, x[3]}):
        data = random(rng, size["N"], x[1], size["H"], size["W"])
        exact, magnitude = (_reference(transposed, a, b, attrs) for a, b in ((data, weight), (abs(data), abs(weight))))
        got = kernel(size, exact.shape, data, weight, bias)
        bound = (w[1] * math.prod(w[2:]) * 4 + 4) * wrong * (magnitude + abs(bias))
        assert np.all(np.abs(got - np.maximum(exact + bias, 0)) <= bound), size


#: Of :func:`layer_of_any_size`: partial sums between chunks, and single rows as what threads share.
SHARED_ROWS = [
    {"tile_o": 2, "tile_p": 4, "parts": 1, "chunk": 1},
    {"tile_o": 2, "tile_p": 4, "parts": 6, "chunk": 3},
    {"tile_o": 1, "tile_p": 2, "parts": 6, "chunk": 1},
]


def layer_of_any_size(machine: Machine) -> Group:
    """A direct convolution of up to 2 images of 6 rows and 4 columns, of 3 blocks of channels."""
    (n, h, w), blocks = symbols("NHW"), 3 * machine.lanes
    weight = (2 * machine.lanes, blocks, 3, 3)
    group = conv_group((2, blocks, 6, 4), weight, strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1))
    out = weight[0]
    return with_extents(group, (n, blocks, h, w), weight, (1, out, 1, 1), (n, out, h, w))


@pytest.mark.parametrize("knobs", SHARED_ROWS)
def test_partial_sums_and_single_rows(knobs: Mapping[str, int], rng: np.random.Generator) -> None:
    machine = Machine.detect(None, 2)
    group = layer_of_any_size(machine)
    config = {**knobs, "threads": 2}
    assert Conv2dNCHWc().cuts(matched(Conv2dNCHWc(), group, machine), config)
    kernel = AnySize(Conv2dNCHWc(), group, machine, config)
    weight, bias = random(rng, *group.params[1].shape), random(rng, *group.params[2].shape)
    attrs = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
    for size in each_size(N={1, 2}, H={1, 5, 6}, W={1, 3, 4}):
        data = random(rng, size["N"], weight.shape[1], size["H"], size["W"])
        exact, magnitude = (_reference(False, a, b, attrs) for a, b in ((data, weight), (abs(data), abs(weight))))
        bound = (9 * weight.shape[1] + 4) * ROUNDOFF * (magnitude + abs(bias))
        got = kernel(size, exact.shape, data, weight, bias)
        assert np.all(np.abs(got - np.maximum(exact + bias, 0)) <= bound), size


#: Of Winograd: tiles that no row of tiles holds a whole number of, partial sums, and units of some rows of tiles.
NUMBERED_TILES = [
    {"m": 4, "rows": 0, "tile_o": 1, "tile_p": 5, "parts": 1, "chunk": 1},
    {"m": 2, "rows": 0, "tile_o": 2, "tile_p": 8, "parts": 2, "chunk": 2},
    {"m": 4, "rows": 2, "tile_o": 2, "tile_p": 3, "parts": 1, "chunk": 2},
    {"m": 2, "rows": 7, "tile_o": 1, "tile_p": 6, "parts": 1, "chunk": 1},
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("knobs", NUMBERED_TILES)
def test_tiles_of_winograd_are_numbered_through_rows(
    knobs: Mapping[str, int], stride: int, threads: int, rng: np.random.Generator
) -> None:
    machine, (n, h, w) = Machine.detect(None, threads), symbols("NHW")
    channels = 2 * machine.lanes
    weight, size = (channels, channels, 3, 3), (28 * stride, 22 * stride)
    attrs = {"strides": (stride, stride), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
    result = [out_extent(False, s, 3, stride, 1, 2) for s in (h, w)]
    group = conv_group((2, channels, *size), weight, **attrs)
    group = with_extents(group, (n, channels, h, w), weight, (1, channels, 1, 1), (n, channels, *result))
    config = {**knobs, "threads": threads}
    assert Conv2dWinograd().cuts(matched(Conv2dWinograd(), group, machine), config)
    kernel = AnySize(Conv2dWinograd(), group, machine, config)
    loops = lower_to_loops({"main": kernel.kernel}, machine.target())["main"].body
    assert "columns" in {bind.var.name for bind in nodes_of(loops, tirx.Bind)}
    numbers, bias = random(rng, *weight), random(rng, *group.params[2].shape)
    for now in each_size(N={1, 2}, H={1, 13, size[0]}, W={1, 11, size[1]}):
        data = random(rng, now["N"], channels, now["H"], now["W"])
        exact, magnitude = (_reference(False, a, b, attrs) for a, b in ((data, numbers), (abs(data), abs(numbers))))
        bound = (channels * 9 * 4 + 4) * 40 * ROUNDOFF * (magnitude + abs(bias))
        got = kernel(now, exact.shape, data, numbers, bias)
        assert np.all(np.abs(got - np.maximum(exact + bias, 0)) <= bound), now


#: Tiles that no row holds a whole number of, in one chunk and in several; weight, and attributes of the layer.
NUMBERED_PIXELS = [
    ({"tile_o": 2, "tile_p": 5, "chunk": 3}, (3, 3), {"padding": (1, 1, 1, 1)}),
    ({"tile_o": 2, "tile_p": 6, "chunk": 1}, (3, 3), {"padding": (1, 1, 1, 1), "strides": (2, 2)}),
    ({"tile_o": 1, "tile_p": 4, "chunk": 3}, (1, 1), {"strides": (2, 2)}),
    ({"tile_o": 3, "tile_p": 6, "chunk": 3}, (1, 1), {}),
    ({"tile_o": 4, "tile_p": 3, "chunk": 1}, (1, 1), {}),
    ({"tile_o": 2, "tile_p": 3, "chunk": 3}, (3, 2), {"padding": (2, 0, 1, 2), "dilation": (2, 1)}),
]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("knobs", "taps", "attrs"), NUMBERED_PIXELS)
def test_pixels_are_numbered_through_rows(
    knobs: Mapping[str, int], taps: tuple[int, int], attrs: Any, threads: int, rng: np.random.Generator
) -> None:
    """Also of one column, of one row, and of images smaller than a tile; outputs are no whole tiles of blocks."""
    machine, (n, h, w) = Machine.detect(None, threads), symbols("NHW")
    attrs = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), **attrs}
    weight, size = (4 * machine.lanes - 3, 3 * machine.lanes, *taps), (11, 13)
    top, left, bottom, right = attrs["padding"]
    axes = [*zip((h, w), taps, attrs["strides"], attrs["dilation"], (top + bottom, left + right), strict=True)]
    result = [out_extent(False, *axis) for axis in axes]
    group = conv_group((2, weight[1], *size), weight, **attrs)
    group = with_extents(group, (n, weight[1], h, w), weight, (1, weight[0], 1, 1), (n, weight[0], *result))
    config = {**knobs, "parts": 1, "threads": threads, "numbered": 1}
    match = matched(Conv2dNCHWc(), group, machine)
    assert Conv2dNCHWc().cuts(match, config) and not Conv2dNCHWc().cuts(match, {**config, "parts": 2})
    kernel = AnySize(Conv2dNCHWc(), group, machine, config)
    numbers, bias = random(rng, *weight), random(rng, *group.params[2].shape)
    least = [max(1, (k - 1) * d + 1 - p) for _, k, _, d, p in axes]
    for now in each_size(N={1, 2}, H={least[0], 7, size[0]}, W={least[1], 8, size[1]}):
        data = random(rng, now["N"], weight[1], now["H"], now["W"])
        exact, magnitude = (_reference(False, a, b, attrs) for a, b in ((data, numbers), (abs(data), abs(numbers))))
        bound = (math.prod(weight[1:]) + 4) * ROUNDOFF * (magnitude + abs(bias))
        got = kernel(now, exact.shape, data, numbers, bias)
        assert np.all(np.abs(got - np.maximum(exact + bias, 0)) <= bound), now


@pytest.mark.parametrize("name", ["xeon-amx", "zen4"])
def test_costs_of_what_cuts_are_asked_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the legal points that cut, also of a layer that differs in its epilogue."""
    machine = Machine.described(name)
    first, second = (matched(Conv2dNCHWc(), layer_of_any_size(machine), machine) for _ in range(2))
    plain = [(c, cost) for c, cost in Recipe.costs_of_any_size(Conv2dNCHWc(), first, machine) if cost < math.inf]
    assert [*Conv2dNCHWc().costs_of_any_size(first, machine)] == plain and plain
    monkeypatch.delattr(blocked, "cost")
    assert [*Conv2dNCHWc().costs_of_any_size(second, machine)] == plain


def test_an_image_alone_is_shared() -> None:
    """Of a batch of run-time length no thread has whole images: its padding is shared before its outputs are."""
    machine = Machine.detect(None, 2)
    match = matched(Conv2dNCHWc(), layer_of_any_size(machine), machine)
    config = {**SHARED_ROWS[0], "threads": 2}
    assert match.problem.free and not match.problem.batch_divides(2)
    assert not blocked.copies_own(match.problem, config, machine)
    assert blocked.copies_own(replace(match.problem, free=False), config, machine)
    larger = {**config, "parts": 2}
    assert not Conv2dNCHWc().cuts(match, larger), "the second half may have no row"


def test_one_nest_writes_all_that_stands_behind_an_image() -> None:
    """Rows of all images and channels in one loop, and what is read of a row: its end, or all of it."""
    machine, (n, h, w) = Machine.detect(None, 2), symbols("NHW")
    strides, pads = (1, 1), (1, 1, 1, 1)
    group = conv_group((3, 32, 14, 11), (32, 32, 3, 3), strides=strides, padding=pads, dilation=(1, 1))
    group = with_extents(group, (n, 32, h, w), (32, 32, 3, 3), (1, 32, 1, 1), (n, 32, h, w))
    kernel = AnySize(Conv2dWinograd(), group, machine).kernel
    loops = nodes_of(lower_to_loops({"main": kernel}, machine.target())["main"].body, tirx.For)
    image = kernel.params[0].name
    stores = [[store.buffer.name for store in nodes_of(loop, tirx.BufferStore)] for loop in loops]
    assert sum(image in names for names in stores) == 2


def _reference(transposed: bool, x: np.ndarray, w: np.ndarray, attrs: Any) -> np.ndarray:
    if transposed:
        return transposed_reference(x, w, output_padding=(0, 0), **attrs)
    return grouped_reference(x, w, **{"groups": 1, **attrs})


@pytest.mark.parametrize("kind", ["uint8", "int8", "integers"])
@pytest.mark.parametrize("case", NARROW)
@pytest.mark.parametrize("plain", [pytest.param(False, marks=needs["int8"]), True], ids=["dots", "plain"])
def test_narrow_numbers(case: Case, kind: str, plain: bool) -> None:
    """Of 8 bits, by dot products or their plain twin: beyond the image stands what decodes to zero."""
    narrow, (h, w), rng = TYPES[kind], symbols("HW"), np.random.default_rng
    group, _, _ = make(case, narrow, rng(1))
    sizes = zip((h, w), case.w[2:], case.strides, strict=True)
    result = [out_extent(False, size, k, s, 1, 2 * case.padding[0]) for size, k, s in sizes]
    constants = [p.shape for p in group.params[1:]]
    group = with_extents(group, (*case.x[:2], h, w), *constants, (1, case.w[0], *result))
    kernel = AnySize(twin(Conv2dDot()) if plain else Conv2dDot(), group, Machine.detect(), offered=offered_to(group))
    for size in each_size(H={1, 5, case.x[2]}, W={2, 7, case.x[3]}):
        shape = (*case.x[:2], size["H"], size["W"])
        _, arrays, want = make(Case(shape, case.w, case.strides, case.padding), narrow, rng(1))
        assert_exact(narrow, kernel(size, want.shape, *arrays), want, arrays[-1])
