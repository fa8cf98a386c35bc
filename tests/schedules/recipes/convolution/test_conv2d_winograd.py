"""Winograd convolution against float64, with an error bound for each tile size."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.blocked import kernel as blocked
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd

from ...convolutions import conv_group, reference
from ...kernels import matched, random, run_kernel

RECIPE = Conv2dWinograd()
PLAIN = Layout.plain(4)
#: Roundings of one output beyond those of the sum over channels, relative to the sum of magnitudes: the transforms
#: scale intermediate values up by the products of their coefficients before differences bring them down again.
GROWTH = {(2, 3): 12, (4, 3): 400, (2, 2): 12, (4, 2): 100, (2, 4): 100, (4, 4): 6000, (2, 5): 400}


def check(
    x_shape: tuple[int, ...], co: int, m: int, machine: Machine, rng: Any, *, k: int = 3, stride: int = 1,
    pads: tuple[int, ...] = (1, 1, 1, 1), residual: bool = False,
    layout: Layout = PLAIN, **over: Any,
) -> None:  # fmt: skip
    strides = (stride, stride)
    group = conv_group(x_shape, (co, x_shape[1], k, k), residual=residual, padding=pads, strides=strides)
    match = matched(RECIPE, group, machine)
    rows = over.get("rows", 0)
    threads = blocked.threads_for(match.problem, machine)
    config = next(c for c in RECIPE._by_height(match, machine, m, threads) if c["rows"] == rows) | over
    arrays = [random(rng, *p.shape) for p in group.params]
    offered = [
        Layout.blocked(4, machine.lanes) if x_shape[1] > 4 else layout,
        *(Layout.plain(len(p.shape)) for p in group.params[1:]),
    ]
    got = run_kernel(RECIPE, group, arrays, machine, config, offered)
    x, w, *rest = arrays
    exact = reference(x, w, strides, pads, (1, 1)) + sum(r.astype("float64") for r in rest)
    magnitude = reference(abs(x), abs(w), strides, pads, (1, 1)) + sum(abs(r) for r in rest)
    bound = (x_shape[1] * stride**2 + 8 + GROWTH[m, -(-k // stride)]) * 2.0**-24 * magnitude.max()
    assert np.abs(got - np.maximum(exact, 0)).max() <= bound


#: (x, outputs, pads)
CASES = [
    ((1, 16, 8, 8), 16, (1, 1, 1, 1)), ((1, 16, 7, 7), 24, (1, 1, 1, 1)), ((2, 16, 9, 13), 17, (0, 0, 0, 0)),
    ((1, 16, 5, 3), 8, (2, 1, 0, 1)), ((1, 16, 3, 3), 1, (0, 0, 0, 0)), ((3, 64, 14, 14), 32, (1, 1, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(("x", "co", "pads"), CASES)
def test_agrees_with_float64(m: int, x: Any, co: int, pads: Any, case_machine: Machine, rng: Any) -> None:
    check(x, co, m, case_machine, rng, pads=pads, rows=0)


@pytest.mark.parametrize(("x", "co", "pads", "m"), [(*case, 2 + 2 * (i % 2)) for i, case in enumerate(CASES)])
def test_row_by_row(m: int, x: Any, co: int, pads: Any, rng: np.random.Generator) -> None:
    check(x, co, m, Machine.detect(None, 2), rng, pads=pads, rows=1)


@pytest.mark.parametrize(
    ("m", "k", "stride", "rows"),
    [(4, 3, 2, 0), (2, 3, 2, 2), (2, 5, 1, 0), (2, 7, 2, 1), (4, 7, 2, 0), (4, 2, 1, 2), (2, 4, 1, 0)],
)
def test_other_kernels_and_strides(m: int, k: int, stride: int, rows: int, case_machine: Machine, rng: Any) -> None:
    check((2, 16, 11, 14), 20, m, case_machine, rng, k=k, stride=stride, pads=(1, 2, 2, 0), rows=rows)


#: (x, m, k, stride, rows)
FEW = [
    ((1, 3, 37, 41), 4, 7, 2, 0),
    ((2, 3, 37, 41), 2, 7, 2, 1),
    ((1, 1, 16, 24), 4, 3, 1, 2),
    ((2, 4, 9, 8), 2, 5, 1, 3),
]


@pytest.mark.parametrize(("x", "m", "k", "stride", "rows"), FEW)
def test_few_channels(x: Any, m: int, k: int, stride: int, rows: int, case_machine: Machine, rng: Any) -> None:
    check(x, 20, m, case_machine, rng, k=k, stride=stride, pads=(3, 2, 1, 3), rows=rows)


@pytest.mark.parametrize("offered", [Layout((0, 2, 3, 1)), Layout.blocked(4, 8)], ids=str)
@pytest.mark.parametrize(("x", "m", "k", "stride", "rows"), FEW[1:])
def test_few_channels_in_other_layouts(
    x: Any, m: int, k: int, stride: int, rows: int, offered: Layout, rng: np.random.Generator
) -> None:
    machine = Machine.detect(None, 2)
    check(x, 20, m, machine, rng, k=k, stride=stride, pads=(3, 2, 1, 3), rows=rows, layout=offered)


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(("x", "rows"), [((1, 32, 10, 11), 0), ((3, 32, 10, 11), 2), ((1, 32, 22, 5), 1)])
def test_residual_threads_and_chunks(m: int, x: Any, rows: int, rng: np.random.Generator) -> None:
    machine = Machine.detect(None, 3)
    over = {"chunk": 1, "tile_o": 2, "tile_p": 4, "parts": 2, "threads": 3, "rows": rows}
    check(x, 20, m, machine, rng, residual=True, **over)


@pytest.mark.parametrize(
    ("x", "w", "attrs", "reason"),
    [
        ((1, 16, 8, 8), (8, 16, 9, 9), {}, "taps"),
        ((1, 16, 8, 8), (8, 16, 3, 3), {"strides": (3, 3)}, "stride 1 or 2"),
        ((1, 16, 8, 8), (8, 16, 3, 5), {}, "square"),
        ((1, 16, 8, 8), (8, 16, 3, 3), {"dilation": (2, 2)}, "dilation 1"),
        ((1, 5, 8, 8), (8, 5, 3, 3), {}, "multiple"),
        ((1, 16, 8, 8), (8, 8, 3, 3), {"groups": 2}, "groups=2"),
    ],
)
def test_refuses(x: Any, w: Any, attrs: Any, reason: str) -> None:
    miss = RECIPE.match(conv_group(x, w, **attrs), Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason


def test_the_larger_tile_is_for_larger_images() -> None:
    """At 7x7 F(4x4) would read four times the weights for tiles of which a quarter is waste."""
    machine = Machine.detect("haswell", 2)
    chosen = {}
    for channels, size in ((64, 56), (512, 7)):
        group = conv_group((1, channels, size, size), (channels, channels, 3, 3), padding=(1, 1))
        chosen[size] = RECIPE.default(matched(RECIPE, group, machine), machine)["m"]
    assert chosen == {56: 4, 7: 2}


@pytest.mark.parametrize(("rows", "exchanges"), [(0, True), (1, False)])
def test_what_cores_exchange_costs_where_all_threads_share_a_unit(rows: int, exchanges: bool) -> None:
    machine = Machine.described("xeon-amx")
    slower = replace(machine, rates=replace(machine.rates, foreign=machine.rates.foreign / 2))
    group = conv_group((1, 128, 28, 28), (128, 128, 3, 3), padding=(1, 1, 1, 1))
    match = matched(RECIPE, group, machine)
    config = next(c for c in RECIPE._by_height(match, machine, 4, 2) if c["rows"] == rows)
    assert (RECIPE.cost(match, config, slower) > RECIPE.cost(match, config, machine)) is exchanges


@pytest.mark.parametrize(("l2", "rows"), [(1 << 19, 0), (1 << 20, 1), (1 << 21, 1)])
def test_units_of_a_row_are_chosen_where_l2_holds_them_and_half_of_the_weights(l2: int, rows: int) -> None:
    """V and M of a row of tiles are 0.26 MB, the weights 0.59 MB."""
    machine = replace(Machine.described("zen4"), l2=l2)
    match = matched(RECIPE, conv_group((1, 64, 56, 56), (64, 64, 3, 3), padding=(1, 1, 1, 1)), machine)
    config = RECIPE.default(match, machine)
    assert (config["rows"], config["tile_o"], config["tile_p"]) == (rows, 2, 14)


def test_a_unit_of_some_rows_leaves_room_for_the_weights_that_all_units_read() -> None:
    """V and M of four rows of tiles fit into L2, but not beside half of 0.6 MB of weights."""
    machine = Machine.described("xeon-amx")
    match = matched(RECIPE, conv_group((1, 64, 56, 56), (64, 64, 3, 3), padding=(1, 1, 1, 1)), machine)
    config = RECIPE.default(match, machine)
    assert (config["rows"], config["tile_o"], config["tile_p"]) == (1, 2, 14)
