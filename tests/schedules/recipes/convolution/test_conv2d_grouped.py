"""Grouped convolution against float64, on several instruction sets."""

import functools
import math
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.layout import PackedWeight
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.convolution.conv2d_grouped import Conv2dGrouped, GroupedWeight

from ...convolutions import check_against, conv_group, grouped_reference
from ...kernels import drawn_points, matched

RECIPE = Conv2dGrouped()

# data, outputs, groups, kernel, strides, padding, dilation
CASES = {
    "ResNeXt": ((1, 32, 9, 9), 32, 8, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "whole vectors": ((1, 64, 7, 7), 64, 2, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    "more outputs than inputs": ((1, 16, 6, 5), 64, 4, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "prime channels": ((1, 15, 8, 7), 21, 3, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "batch 3": ((3, 32, 5, 6), 32, 2, (3, 2), (1, 1), (1, 0, 1, 0), (1, 1)),
    "dilated": ((1, 32, 9, 9), 64, 4, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    "a multiplier": ((1, 4, 5, 5), 64, 4, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "one pixel": ((1, 32, 1, 1), 96, 2, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
}


def problem(case: str, residual: bool = False) -> tuple[Any, Any, int]:
    """The group, the convolution in float64, and the products of one of its sums."""
    shape, outputs, groups, kernel, strides, padding, dilation = CASES[case]
    w_shape = (outputs, shape[1] // groups, *kernel)
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    group = conv_group(shape, w_shape, residual=residual, **attrs)
    return group, functools.partial(grouped_reference, **attrs), math.prod(w_shape[1:])


def check(case: str, machine: Machine, rng: np.random.Generator, residual: bool = False, config: Any = None) -> None:
    group, exact, terms = problem(case, residual)
    check_against(exact, terms, RECIPE, group, machine, rng, config)


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_float64(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    check(case, case_machine, rng)


def test_residual(machine: Machine, rng: np.random.Generator) -> None:
    check("ResNeXt", machine, rng, residual=True)


@pytest.mark.parametrize("case", ["ResNeXt", "prime channels", "batch 3"])
def test_points_of_the_space_agree(case: str, rng: np.random.Generator) -> None:
    """Tiles that do not divide, pixels in parts, the reduction in chunks, more threads than units."""
    machine = Machine.detect(None, 3)
    for config in drawn_points(RECIPE, problem(case)[0], machine, rng, 4):
        check(case, machine, rng, config={**config, "threads": 3})


@pytest.mark.parametrize(
    ("target", "channels", "groups", "merge"),
    [("haswell", 64, 2, 1), ("haswell", 32, 8, 2), ("x86-64-v2", 32, 8, 1), ("haswell", 15, 3, 3)],
)
def test_merges_the_fewest_groups_that_fill_vectors(target: str, channels: int, groups: int, merge: int) -> None:
    """At 8 lanes groups of 4 are merged in pairs; groups of 5 never fill vectors, so all become one."""
    group = conv_group((1, channels, 6, 6), (channels, channels // groups, 3, 3), groups=groups)
    match = matched(RECIPE, group, Machine.detect(target, 2))
    assert match.merge == merge and match.merged == groups // merge


def test_a_merged_weight_is_block_diagonal() -> None:
    w = np.arange(1, 17, dtype="float32").reshape(8, 2, 1, 1)  # four groups of 2 -> 2
    layout = GroupedWeight((0, 1, 2, 3), None, 2, 2, PackedWeight.make(4, 4, 4, 1))
    packed = layout.pack(w)
    assert packed.shape == layout.physical_shape(w.shape) == (2, 1, 1, 1, 1, 4, 4)
    want = np.zeros((2, 4, 4), "float32")
    for g in range(4):
        want[g // 2, g % 2 * 2 : g % 2 * 2 + 2, g % 2 * 2 : g % 2 * 2 + 2] = w[2 * g : 2 * g + 2, :, 0, 0].T
    np.testing.assert_array_equal(packed[:, 0, 0, 0, 0], want)


@pytest.mark.parametrize(("weight", "groups"), [((8, 8, 3, 3), 1), ((8, 1, 3, 3), 8)])
def test_refuses_one_group_and_depthwise(weight: tuple[int, ...], groups: int) -> None:
    group = conv_group((1, 8, 4, 4), weight, padding=(1, 1), groups=groups)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and f"groups={groups}" in miss.reason


@pytest.mark.parametrize(("channels", "groups", "exact"), [(64, 4, True), (32, 8, False)])
def test_merged_groups_are_not_exact(channels: int, groups: int, exact: bool) -> None:
    """A product with a zero of the block diagonal is NaN where the other group's input is NaN or infinite."""
    group = conv_group((1, channels, 6, 6), (channels, channels // groups, 3, 3), groups=groups)
    assert RECIPE.is_exact(matched(RECIPE, group, Machine.detect("skylake-avx512", 2))) == exact


def test_nan_stays_in_its_group_with_exact_accuracy() -> None:
    x = random(1, 32, 6, 6)
    x[0, 1] = np.nan
    proto = model([node("Conv", "x w", "y", group=8)], [value("x", x.shape)], [value("y", (1, 32, 6, 6))],
                  {"w": random(32, 4, 1, 1)})  # fmt: skip
    result = tvm_ext.compile(proto, cache=False, accuracy="exact").run({"x": x})["y"]
    assert np.isnan(result[:, :4]).all() and np.isfinite(result[:, 4:]).all()
