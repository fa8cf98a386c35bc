"""What threads share of a blocked reduction."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx

from tvm_ext.core.machine import Machine
from tvm_ext.schedules.blocked import kernel as blocked
from tvm_ext.schedules.blocked.kernel import Problem, TapRows, Units, shares_pixels
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.steps.window import Window

from ..convolutions import check_against, conv_group, grouped_reference
from ..kernels import matched, scheduled

#: A 1x1 convolution of 64 channels on 24x160 pixels: 16 KB of weights, 983 KB of pixels.
LARGE_IMAGE = Problem(1, 64, 24 * 160, 160, 4, (1, 1), 16, 16)
CONFIG = {"tile_o": 2, "tile_p": 8, "parts": 2, "chunk": 4, "threads": 2}


#: 7x7 pixels of 64 channels: 25 KB, and 131 KB of weights.
SMALL_IMAGE = replace(LARGE_IMAGE, pixels=49, row=7, outputs=512)


@pytest.mark.parametrize(
    ("problem", "parts", "threads", "expected"),
    [
        (LARGE_IMAGE, 2, 2, True),
        (LARGE_IMAGE, 2, 1, False),
        (LARGE_IMAGE, 1, 2, False),  # all pixels are one part
        (SMALL_IMAGE, 2, 2, True),
        (replace(LARGE_IMAGE, batch=2), 2, 2, False),  # each thread has an image of its own
        (replace(LARGE_IMAGE, weight_sets=4), 2, 2, False),  # products of a transform
    ],
)
def test_threads_share_pixels_where_they_are_in_parts(
    problem: Problem, parts: int, threads: int, expected: bool
) -> None:
    config = {**CONFIG, "parts": parts, "threads": threads}
    assert shares_pixels(problem, Units.of(problem, config), threads) is expected


@pytest.mark.parametrize(("problem", "expected"), [(LARGE_IMAGE, True), (SMALL_IMAGE, False)])
def test_the_default_cuts_a_large_image_among_threads(problem: Problem, expected: bool) -> None:
    config = blocked.default(problem, Machine.detect("skylake-avx512", 2))
    assert shares_pixels(problem, Units.of(problem, config), 2) is expected


def test_long_strides_read_a_part_of_an_image() -> None:
    assert Window(1, 8, 8, (56, 56), (28, 28), strides=(2, 2)).pixels_read == 28 * 28
    assert Window(1, 8, 8, (56, 57), (28, 28), (3, 1), (2, 2)).pixels_read == 56 * 28
    assert Window(1, 8, 8, (5, 5), (5, 5), (3, 3), pads=(1, 1, 1, 1)).pixels_read == 25


@pytest.mark.parametrize(
    ("images", "parts", "tile_p", "copies"),
    [
        (1, 2, 14, True),  # its rows
        (1, 2, 7, False),  # rows of taps that are left out are counted from the image's first
        (1, 1, 7, True),  # all of a small image
        (3, 1, 14, False),
        (2, 1, 14, True),  # its image
    ],
)
def test_a_thread_pads_the_image_that_it_reads(images: int, parts: int, tile_p: int, copies: bool) -> None:
    machine, rows = Machine.described("xeon-amx"), TapRows(2, 1, 1, 57)
    problem = Problem(images, 64, 28 * 28, 28, 4, (3, 3), 16, 16, tap_rows=rows, image=56 * 56)
    config = {"tile_o": 2, "tile_p": tile_p, "parts": parts, "chunk": 4, "threads": 2}
    assert blocked.copies_own(problem, config, machine) is copies


@pytest.mark.parametrize(("parts", "best"), [(1, 8), (2, 64)])
def test_a_page_each_of_too_many_blocks_is_waited_for(parts: int, best: int) -> None:
    """64 blocks of 14x14 pixels lie in more pages than a hardware prefetcher follows; a thread's own rows are near."""
    machine, problem = Machine.described("xeon-amx"), Problem(1, 256, 196, 14, 64, (1, 1), 16, 16, weights_in="l3")
    config = {"tile_o": 2, "tile_p": 14, "parts": parts, "threads": 2}
    assert min((8, 16, 64), key=lambda chunk: blocked.cost(problem, {**config, "chunk": chunk}, machine)) == best


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
