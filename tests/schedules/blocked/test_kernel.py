"""What threads share of a blocked reduction."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx

from tvm_ext.core.machine import Machine
from tvm_ext.schedules.blocked import kernel as blocked
from tvm_ext.schedules.blocked.kernel import Problem, Units, shares_pixels
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc

from ..convolutions import check_against, grouped_reference
from ..kernels import matched, scheduled
from ..recipes.convolution.test_conv2d_nchwc import conv_group

#: A 1x1 convolution of 64 channels on 24x160 pixels: 16 KB of weights, 983 KB of pixels.
LARGE_IMAGE = Problem(1, 64, 24 * 160, 160, 4, (1, 1), 16, 16)
CONFIG = {"tile_o": 2, "tile_p": 8, "parts": 2, "chunk": 4, "threads": 2}


@pytest.mark.parametrize(
    ("problem", "threads", "expected"),
    [
        (LARGE_IMAGE, 2, True),
        (LARGE_IMAGE, 1, False),
        (replace(LARGE_IMAGE, pixels=49, row=7, outputs=512), 2, False),  # more weights than pixels
        (replace(LARGE_IMAGE, batch=2), 2, False),  # each thread has an image of its own
        (replace(LARGE_IMAGE, weight_sets=4), 2, False),  # products of a transform
    ],
)
def test_threads_share_the_larger_operand(problem: Problem, threads: int, expected: bool) -> None:
    assert shares_pixels(problem, Units.of(problem, {**CONFIG, "threads": threads}), threads) is expected


def test_the_default_cuts_a_large_image_among_threads() -> None:
    machine = Machine.detect("skylake-avx512", 2)
    config = blocked.default(LARGE_IMAGE, machine)
    assert shares_pixels(LARGE_IMAGE, Units.of(LARGE_IMAGE, config), 2)


@pytest.mark.parametrize(("channels", "unrolled"), [(16, True), (3, False)])
def test_steps_of_a_reduction_are_unrolled_by_four(channels: int, unrolled: bool) -> None:
    """Three channels stand together in one block."""
    attrs: dict[str, Any] = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    group, machine = conv_group((1, channels, 8, 8), (16, channels, 3, 3), **attrs), Machine.described("zen5")
    config = {"tile_o": 1, "tile_p": 6, "parts": 1, "chunk": 1, "threads": 1}
    _, mod = scheduled(Conv2dNCHWc(), matched(Conv2dNCHWc(), group, machine), config, machine, None)
    extents: list[int] = []

    def note(loop: tirx.For) -> None:
        if int(loop.kind) == int(tirx.ForKind.UNROLLED):
            extents.append(int(loop.extent))

    tvm_ffi.structural_walk(mod["main"].body, (tirx.For, note))
    assert (4 in extents) is unrolled and 6 in extents


def test_pixels_of_threads_agree_with_float64(machine: Machine, rng: np.random.Generator) -> None:
    """Prime extents: threads meet within a row."""
    attrs: dict[str, Any] = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    group = conv_group((1, 16, 11, 23), (8, 16, 3, 3), residual=True, **attrs)
    config = {"tile_o": 1, "tile_p": 4, "parts": 2, "chunk": 1, "threads": 2}
    check_against(functools.partial(grouped_reference, **attrs), 16 * 9, Conv2dNCHWc(), group, machine, rng, config)
