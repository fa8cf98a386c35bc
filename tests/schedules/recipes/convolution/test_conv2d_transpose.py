"""Transposed convolution against float64, on several instruction sets."""

import functools
import math
from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.convolution.conv2d_transpose import Conv2dTranspose, Phases

from ...convolutions import check_against, conv_group, transposed_reference
from ...kernels import drawn_points

RECIPE = Conv2dTranspose()

# data, outputs, kernel, strides, padding, output padding, dilation
CASES = {
    "2x2 stride 2": ((1, 24, 9, 11), 24, (2, 2), (2, 2), (0, 0, 0, 0), (0, 0), (1, 1)),
    "4x4 stride 2": ((1, 16, 8, 7), 32, (4, 4), (2, 2), (1, 1, 1, 1), (0, 0), (1, 1)),
    "3x3 stride 2, odd output": ((1, 16, 5, 6), 8, (3, 3), (2, 2), (1, 1, 1, 1), (0, 0), (1, 1)),
    "3x3 stride 2, output padding": ((1, 16, 5, 6), 8, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (1, 1)),
    "stride 1": ((1, 8, 6, 5), 17, (3, 3), (1, 1), (1, 1, 1, 1), (0, 0), (1, 1)),
    "stride 3 by 1": ((1, 5, 4, 6), 3, (5, 3), (3, 1), (2, 0, 1, 1), (1, 0), (1, 1)),
    "stride beyond the kernel": ((1, 8, 4, 3), 8, (1, 2), (3, 3), (0, 0, 0, 0), (2, 0), (1, 1)),
    "dilated": ((1, 8, 6, 5), 8, (3, 3), (2, 2), (2, 2, 2, 2), (1, 1), (3, 1)),
    "prime channels, batch 3": ((3, 7, 4, 5), 13, (2, 2), (2, 2), (0, 0, 0, 0), (0, 0), (1, 1)),
    "padding of the whole kernel": ((1, 8, 6, 6), 8, (3, 3), (2, 2), (2, 2, 2, 2), (0, 0), (1, 1)),
    "one pixel": ((1, 1, 1, 1), 1, (2, 2), (2, 2), (0, 0, 0, 0), (0, 0), (1, 1)),
}


transposed_group = functools.partial(conv_group, operator=relax.op.nn.conv2d_transpose)


def problem(case: str, residual: bool = False) -> tuple[Any, Any, int]:
    """The group, the convolution in float64, and the products of one of its sums."""
    shape, outputs, kernel, strides, padding, more, dilation = CASES[case]
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "output_padding": more}
    group = transposed_group(shape, (shape[1], outputs, *kernel), residual=residual, **attrs)
    return group, functools.partial(transposed_reference, **attrs), shape[1] * math.prod(kernel)


def check(case: str, machine: Machine, rng: np.random.Generator, residual: bool = False, config: Any = None) -> None:
    group, exact, terms = problem(case, residual)
    check_against(exact, terms, RECIPE, group, machine, rng, config)


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_float64(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    check(case, case_machine, rng)


@pytest.mark.parametrize("case", ["2x2 stride 2", "3x3 stride 2, odd output"])
def test_residual(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    check(case, case_machine, rng, residual=True)


@pytest.mark.parametrize("case", ["4x4 stride 2", "3x3 stride 2, odd output"])
def test_points_of_the_space_agree(case: str, rng: np.random.Generator) -> None:
    """Tiles that do not divide, pixels in parts, the reduction in chunks, more threads than units."""
    machine = Machine.detect("haswell", 3)
    for config in drawn_points(RECIPE, problem(case)[0], machine, rng, 4):
        check(case, machine, rng, config={**config, "threads": 3})


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_phases_use_each_kernel_row_once(kernel: int, stride: int) -> None:
    for dilation in (d for d in (1, 2, 3, 5) if np.gcd(d, stride) == 1):
        axis = Phases(kernel, stride, dilation, 1, 8, 16)
        used = [k for p in range(stride) for k in axis.kernel_rows(p) if k is not None]
        assert sorted(used) == list(range(kernel))


def test_phases_of_two_by_two_need_no_padding() -> None:
    axis = Phases(kernel=2, stride=2, dilation=1, before=0, size=10, out=20)
    assert axis.pads == (0, 0) and axis.taps == 1


@pytest.mark.parametrize(
    ("weight", "change", "reason"),
    [((8, 4, 2, 2), {"groups": 2}, "groups=2"), ((8, 8, 2, 2), {"dilation": (2, 2)}, "common divisor")],
)
def test_refuses(weight: tuple[int, ...], change: dict[str, Any], reason: str) -> None:
    group = transposed_group((1, 8, 4, 4), weight, strides=(2, 2), **change)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (3, 2), (1, 3), (2, 2)])
def test_nan_stays_in_its_window_with_exact_accuracy(kernel: int, stride: int) -> None:
    """Where the stride does not divide the kernel some taps are made of zeros, which "exact" does without."""
    x = random(1, 16, 5, 5)
    x[0, 3, 2, 2] = np.nan
    size = 4 * stride + kernel
    proto = model([node("ConvTranspose", "x w", "y", strides=[stride, stride])], [value("x", x.shape)],
                  [value("y", (1, 16, size, size))], {"w": random(16, 16, kernel, kernel)})  # fmt: skip
    result = tvm_ext.compile(proto, cache=False, accuracy="exact").run({"x": x})["y"]
    reached = np.zeros((size, size), bool)
    reached[2 * stride : 2 * stride + kernel, 2 * stride : 2 * stride + kernel] = True
    assert (np.isnan(result) == reached).all()
