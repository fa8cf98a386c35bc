"""Depthwise convolution against float64, on several instruction sets."""

import functools
import math
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import Conv2dDepthwise

from ...convolutions import check_against, conv_group, grouped_reference
from ...kernels import make_group, matched, random, run_kernel

RECIPE = Conv2dDepthwise()

# data, kernel, multiplier, strides, padding, dilation
CASES = {
    "3x3": ((1, 32, 14, 14), (3, 3), 1, (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3 stride 2": ((1, 24, 15, 13), (3, 3), 1, (2, 2), (1, 1, 1, 1), (1, 1)),
    "5x5 of prime extents": ((1, 17, 11, 23), (5, 5), 1, (1, 1), (2, 2, 2, 2), (1, 1)),
    "5x3, stride 2 by 1": ((2, 16, 9, 10), (5, 3), 1, (2, 1), (2, 1, 2, 1), (1, 1)),
    "asymmetric padding": ((1, 8, 9, 9), (3, 3), 1, (2, 2), (0, 1, 2, 0), (1, 1)),
    "no padding": ((1, 8, 9, 19), (3, 3), 1, (1, 1), (0, 0, 0, 0), (1, 1)),
    "dilated": ((1, 8, 12, 12), (3, 3), 1, (1, 1), (2, 2, 2, 2), (2, 2)),
    "padding beyond the window": ((1, 8, 3, 3), (3, 3), 1, (1, 1), (4, 4, 4, 4), (1, 1)),
    "batch 3, one pixel": ((3, 5, 1, 1), (3, 3), 1, (1, 1), (1, 1, 1, 1), (1, 1)),
    "multiplier 3": ((1, 7, 8, 8), (3, 3), 3, (1, 1), (1, 1, 1, 1), (1, 1)),
    "multiplier 16": ((1, 2, 8, 8), (3, 3), 16, (1, 1), (1, 1, 1, 1), (1, 1)),
}


def check(case: str, machine: Machine, rng: np.random.Generator, residual: bool = False, config: Any = None) -> None:
    shape, kernel, multiplier, strides, padding, dilation = CASES[case]
    w_shape = (shape[1] * multiplier, 1, *kernel)
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": shape[1]}
    group = conv_group(shape, w_shape, residual=residual, **attrs)
    exact = functools.partial(grouped_reference, **attrs)
    check_against(exact, math.prod(kernel), RECIPE, group, machine, rng, config)


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_float64(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    check(case, case_machine, rng)


def test_residual(machine: Machine, rng: np.random.Generator) -> None:
    check("3x3", machine, rng, residual=True)


@pytest.mark.parametrize("case", ["3x3 stride 2", "no padding", "dilated"])
def test_points_of_the_space_agree(case: str, rng: np.random.Generator) -> None:
    """Tiles that do not divide a row, more threads than the rows divide by."""
    for tile in (1, 3, 5):
        check(case, Machine.detect(None, 3), rng, config={"tile_p": tile, "threads": 3})


def test_infinities_spread_no_further_than_their_window(machine: Machine, rng: np.random.Generator) -> None:
    """Taps outside the image are left out, not multiplied by zero."""
    group = conv_group((1, 8, 6, 6), (8, 1, 3, 3), relu=False, padding=(1, 1), groups=8)
    x, w, b = random(rng, 1, 8, 6, 6), abs(random(rng, 8, 1, 3, 3)), random(rng, 1, 8, 1, 1)
    x[0, :, 0, 0] = np.inf
    got = run_kernel(RECIPE, group, [x, w, b], machine)
    assert np.all(np.isposinf(got[:, :, :2, :2]))
    assert np.isinf(got).sum() == 8 * 4 and not np.isnan(got).any()


def test_default_fills_the_pipeline_and_wastes_no_pixel() -> None:
    """At 14 pixels a row: two tiles of seven, not two of eight."""
    machine = Machine.detect("haswell", 1)
    group = conv_group((1, 32, 14, 14), (32, 1, 3, 3), padding=(1, 1), groups=32)
    assert RECIPE.default(matched(RECIPE, group, machine), machine)["tile_p"] == 7


@pytest.mark.parametrize(("weight", "groups"), [((8, 8, 3, 3), 1), ((8, 4, 3, 3), 2)])
def test_refuses_what_is_not_depthwise(weight: tuple[int, ...], groups: int) -> None:
    group = conv_group((1, 8, 4, 4), weight, padding=(1, 1), groups=groups)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and f"groups={groups}" in miss.reason


def test_refuses_a_weight_that_is_not_constant() -> None:
    group = make_group(
        "relax.nn.conv2d", [(1, 4, 4, 4), (4, 1, 1, 1)], lambda x, w: (yield relax.op.nn.conv2d(x, w, groups=4))
    )
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and "not a constant" in miss.reason
