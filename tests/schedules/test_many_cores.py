"""Kernels for many threads: which share the work evenly, and agree with float64 whatever their number."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, tirx

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.schedules.recipes.attention import Attention
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import Conv2dDepthwise
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.schedules.recipes.convolution.expand_depthwise import ExpandDepthwise
from tvm_ext.schedules.recipes.pool2d import Pool2d
from tvm_ext.schedules.recipes.reduction import Reduction
from tvm_ext.schedules.recipes.softmax import Softmax

from .convolutions import conv_group
from .kernels import make_group, matched, run_kernel, scheduled
from .recipes.convolution import test_conv2d_depthwise, test_conv2d_nchwc, test_conv2d_winograd, test_expand_depthwise
from .recipes.test_attention import attention
from .recipes.test_pool2d import pool_group


def many(threads: int) -> Machine:
    """This CPU with more cores, which wake at once."""
    machine = Machine.detect(None, threads)
    return replace(machine, rates=replace(machine.rates, launch=1e-3))


def softmax_group() -> Any:
    def body(x: Any) -> Any:
        yield relax.op.nn.softmax(x)

    return make_group("relax.nn.softmax", [(65, 40)], body)


def pad_free(shape: tuple[int, ...], channels: int) -> Any:
    return conv_group(shape, (channels, shape[1], 1, 1))


def depthwise() -> Any:
    return conv_group((1, 48, 14, 14), (48, 1, 3, 3), groups=48, padding=(1, 1, 1, 1))


GROUPS = {
    "7x7": (Conv2dNCHWc(), lambda: pad_free((1, 32, 7, 7), 160)),
    "14x14": (Conv2dNCHWc(), lambda: pad_free((1, 64, 14, 14), 96)),
    "depthwise": (Conv2dDepthwise(), depthwise),
    "expand": (ExpandDepthwise(), lambda: test_expand_depthwise.expand_group("3x3")),
    "pool": (Pool2d(), lambda: pool_group("max", (1, 48, 13, 13), pool_size=(3, 3), strides=(2, 2))),
    "attention": (Attention(), lambda: attention((1, 65, 3, 16), (1, 65, 3, 16), (1, 65, 3, 16))),
    "softmax": (Softmax(), softmax_group),
}


@pytest.mark.parametrize("threads", [3, 16, 64])
@pytest.mark.parametrize("name", GROUPS)
def test_a_kernel_wakes_the_threads_that_it_says(name: str, threads: int) -> None:
    recipe, group = GROUPS[name][0], GROUPS[name][1]()
    machine = many(threads)
    match = matched(recipe, group, machine)
    config = recipe.default(match, machine)
    rank4 = len(group.params[0].shape) == 4 and name != "attention"
    first = Layout.blocked(4, machine.lanes) if rank4 else Layout.plain(len(group.params[0].shape))
    offered = [first, *(Layout.plain(len(p.shape)) for p in group.params[1:])]
    _, mod = scheduled(recipe, match, config, machine, offered)
    shared = recipe.sharing(match, config, machine)
    assert parallel_extents(mod["main"]) == ({shared.threads} if shared.threads > 1 else set())
    assert shared.threads <= threads and shared.rounding > -1e-9


def parallel_extents(function: Any) -> set[int]:
    extents: set[int] = set()

    def visit(loop: Any) -> None:
        if int(loop.kind) == int(tirx.ForKind.PARALLEL):
            extents.add(int(loop.extent))

    tvm_ffi.structural_walk(function.body, (tirx.For, visit))
    return extents - {1}


@pytest.mark.parametrize("threads", [12, 28, 64])
def test_direct_convolutions_agree(threads: int, rng: np.random.Generator) -> None:
    for case in ("3x3", "long reduction") if threads == 28 else ("prime channels", "batch 3"):
        test_conv2d_nchwc.check(case, many(threads), rng)


@pytest.mark.parametrize("threads", [20, 64])
def test_depthwise_convolutions_agree(threads: int, rng: np.random.Generator) -> None:
    test_conv2d_depthwise.check("5x5 of prime extents", many(threads), rng)
    test_expand_depthwise.check("3x3", many(threads), rng)


@pytest.mark.parametrize(("rows", "threads"), [(0, 12), (0, 28), (1, 7)])
def test_winograd_agrees(rows: int, threads: int, rng: np.random.Generator) -> None:
    test_conv2d_winograd.check((1, 32, 28, 28), 48, 4, many(64), rng, rows=rows, threads=threads)


def test_winograd_takes_a_number_of_threads_that_its_rows_divide_by() -> None:
    recipe, group, machine = Conv2dWinograd(), conv_group((1, 64, 56, 56), (64, 64, 3, 3), padding=(1, 1)), many(15)
    match = matched(recipe, group, machine)
    config = recipe.default(match, machine)
    assert np.isfinite(recipe.cost(match, config, machine))
    assert recipe.sharing(match, config, machine).rounding <= 0.15


@pytest.mark.parametrize("threads", [16, 64])
def test_more_threads_are_never_estimated_to_be_slower(threads: int) -> None:
    machine = Machine.described("cluster64-xeon", threads)
    for recipe, make in GROUPS.values():
        group = make()
        costs = []
        for count in (1, 2, 4, 8, threads):
            one = machine.with_threads(count)
            match = matched(recipe, group, one)
            costs.append(recipe.cost(match, recipe.default(match, one), one))
        assert costs[-1] <= min(costs) * (1 + 1e-9), recipe.name


@pytest.mark.parametrize(
    ("shape", "threads"),
    [((3, 12, 17, 17), 2), ((2, 3, 5, 11), 4), ((1, 197, 33), 3), ((3, 7, 17), 2), ((3, 7, 17), 4)],
)
@pytest.mark.parametrize("kind", ["softmax", "sum"])
def test_rows_of_any_number_are_shared(
    kind: str, shape: tuple[int, ...], threads: int, rng: np.random.Generator
) -> None:
    """Shares that cut across images: an index that is no affine one must not reach what is vectorized inside."""

    def body(x: Any) -> Any:
        yield relax.op.nn.softmax(x) if kind == "softmax" else relax.op.sum(x, axis=-1)

    recipe, anchor = (Softmax(), "relax.nn.softmax") if kind == "softmax" else (Reduction(), "relax.sum")
    group, x = make_group(anchor, [shape], body), rng.standard_normal(shape).astype("float32")
    got = run_kernel(recipe, group, [x], many(threads), {"threads": threads})
    wide = x.astype("float64")
    e = np.exp(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True) if kind == "softmax" else wide.sum(-1), 1e-5, 1e-5)
