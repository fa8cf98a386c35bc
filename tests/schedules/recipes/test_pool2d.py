"""Pooling against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_ext
from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.pool2d import Pool2d

from ..any_size import AnySize, each_size, symbols, with_extents
from ..kernels import make_group, random, run_kernel
from ..narrow import run_narrow

RECIPE = Pool2d()


def pool_group(kind: str, shape: tuple[int, ...], **attrs: Any) -> Any:
    op = {"max": relax.op.nn.max_pool2d, "avg": relax.op.nn.avg_pool2d}[kind]

    def body(x: Any) -> Any:
        y = yield op(x, **attrs)
        yield relax.op.negative(y)

    return make_group(f"relax.nn.{kind}_pool2d", [shape], body)


def reference(kind: str, x: np.ndarray, pool_size: Any, strides: Any, padding: Any, count_include_pad: bool) -> Any:
    attrs = {"kernel_shape": pool_size, "strides": strides, "pads": padding}
    if kind == "avg":
        attrs["count_include_pad"] = int(count_include_pad)
    pool = node({"max": "MaxPool", "avg": "AveragePool"}[kind], "x", "y", **attrs)
    return onnxruntime_outputs(model([pool], [value("x", x.shape)], [value("y", None)]), {"x": x})["y"]


CASES = [
    ((1, 16, 12, 12), [3, 3], [2, 2], [1, 1, 1, 1]),
    ((2, 5, 7, 9), [2, 3], [1, 2], [0, 1, 1, 0]),
    ((1, 1, 1, 1), [1, 1], [1, 1], [0, 0, 0, 0]),
    ((1, 17, 13, 11), [3, 3], [1, 1], [1, 1, 1, 1]),
]


def test_the_average_of_a_constant_is_that_constant(case_machine: Machine) -> None:
    """As times the reciprocal of 55 it is not."""
    x = np.full((1, 5, 9, 13), 2.0, np.float32)
    group = pool_group("avg", x.shape, pool_size=(5, 11))
    np.testing.assert_array_equal(run_kernel(RECIPE, group, [x], case_machine), -2.0)


@pytest.mark.parametrize("blocked", [True, False], ids=["blocked", "plain"])
@pytest.mark.parametrize(("shape", "pool", "strides", "pads"), CASES)
@pytest.mark.parametrize("kind", ["max", "avg", "avg with padding"])
def test_agrees_with_onnxruntime(
    kind: str, shape: Any, pool: Any, strides: Any, pads: Any, blocked: bool, case_machine: Machine, rng: Any
) -> None:
    kind, _, counted = kind.partition(" ")
    attrs = {"pool_size": pool, "strides": strides, "padding": pads}
    if kind == "avg":
        attrs["count_include_pad"] = bool(counted)
    group = pool_group(kind, shape, **attrs)
    x = random(rng, *shape) - 3.0  # all negative: padding with zeros would show
    offered = [Layout.blocked(4, case_machine.lanes) if blocked else Layout.plain(4)]
    got = run_kernel(RECIPE, group, [x], case_machine, offered=offered)
    want = -reference(kind, x, pool, strides, pads, bool(counted))
    if kind == "max":
        assert np.array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=(pool[0] * pool[1] + 2) * 2.0**-24, atol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize(("shape", "pool", "strides", "pads"), CASES)
def test_maximum_of_narrow_floats(
    shape: Any, pool: Any, strides: Any, pads: Any, block: int, dtype: str, case_machine: Machine, rng: Any
) -> None:
    """Signs of all kinds, zeros and infinities: integers of these bits are not in the order of the floats."""

    def body(x: Any) -> Any:
        yield relax.op.nn.max_pool2d(x, pool_size=pool, strides=strides, padding=pads)

    group = make_group("relax.nn.max_pool2d", [shape], body, dtype=dtype)
    special = rng.choice([-np.inf, np.inf, 0.0, -0.0, -1e-40, 1e-40], shape)
    x = np.where(rng.random(shape) < 0.4, special, random(rng, *shape) - 1).astype(dtype)
    offered = [Layout.blocked(4, block) if block else Layout.plain(4)]
    got = run_narrow(RECIPE, group, [x], case_machine, offered=offered)
    want = reference("max", x.astype("float32"), pool, strides, pads, False)
    assert np.array_equal(got.astype("float32"), want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_anywhere_in_a_window_is_its_maximum(
    sign: int, block: int, dtype: str, case_machine: Machine, rng: Any
) -> None:
    def body(x: Any) -> Any:
        yield relax.op.nn.max_pool2d(x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])

    x = rng.choice([np.copysign(np.nan, sign), np.inf, -np.inf, 3e38, -1e-40, -2.0, 1.5], (1, 17, 13, 11))
    with np.errstate(over="ignore"):
        x = np.where(rng.random(x.shape) < 0.2, x, random(rng, *x.shape) - 1).astype(dtype)
    offered = [Layout.blocked(4, block) if block else Layout.plain(4)]
    run = run_kernel if dtype == "float32" else run_narrow
    group = make_group("relax.nn.max_pool2d", [x.shape], body, dtype=dtype)
    padded = np.pad(x.astype("float32"), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    want = windows.max((-2, -1))
    assert np.isnan(want).any() and not np.isnan(want).all()
    np.testing.assert_array_equal(run(RECIPE, group, [x], case_machine, offered=offered).astype("float32"), want)


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"pool_size": (2, 2), "padding": (2, 2)}, "whole window"),
        ({"pool_size": (3, 3), "padding": (1, 1), "dilation": (2, 2)}, "dilation"),
        ({"pool_size": (2, 2), "strides": (2, 2), "layout": "NHWC"}, "NHWC"),
    ],
)
def test_refuses(attrs: Any, reason: str) -> None:
    miss = RECIPE.match(pool_group("max", (1, 8, 9, 9), **attrs), Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason


@pytest.mark.parametrize(("width", "fits"), [(4, False), (5, True)])
def test_refuses_a_dilated_window_that_leaves_the_image(width: int, fits: bool, machine: Machine) -> None:
    """In ceil mode, without any padding: the border pixel that stands for what is outside is not in such a window."""
    attrs = {"pool_size": (1, 2), "strides": (1, 2), "dilation": (1, 2), "ceil_mode": True}
    refusal = RECIPE.match(pool_group("max", (1, 1, 3, width), **attrs), machine)
    assert isinstance(refusal, Miss) != fits
    x = np.random.default_rng(0).standard_normal((1, 1, 3, width), dtype=np.float32)
    nodes = [node("MaxPool", "x", "y", kernel_shape=[1, 2], strides=[1, 2], dilations=[1, 2], ceil_mode=1)]
    proto = model(nodes, [value("x", x.shape)], [value("y", None)])
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    assert tvm_ext.verify(compiled, proto, {"x": x}, tolerance=0.0).ok


def test_refuses_average_in_ceil_mode() -> None:
    group = pool_group("avg", (1, 8, 8, 8), pool_size=(3, 3), strides=(2, 2), ceil_mode=True)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and "ceil mode" in miss.reason


@pytest.mark.parametrize("blocked", [True, False], ids=["blocked", "plain"])
@pytest.mark.parametrize(("shape", "pool", "strides", "pads"), CASES)
@pytest.mark.parametrize("kind", ["max", "avg", "avg with padding"])
def test_any_size(
    kind: str, shape: Any, pool: Any, strides: Any, pads: Any, blocked: bool, case_machine: Machine, rng: Any
) -> None:
    """NaN behind the extents of an image, which ends there: an average divides by its own pixels only."""
    kind, _, counted = kind.partition(" ")
    attrs = {"pool_size": pool, "strides": strides, "padding": pads}
    if kind == "avg":
        attrs["count_include_pad"] = bool(counted)
    n, *image = symbols("NHW")
    around = zip(image, pool, strides, (pads[0] + pads[2], pads[1] + pads[3]), strict=True)
    result = [(size + p - k) // s + 1 for size, k, s, p in around]
    group = with_extents(pool_group(kind, shape, **attrs), (n, shape[1], *image), (n, shape[1], *result))
    offered = [Layout.blocked(4, case_machine.lanes) if blocked else Layout.plain(4)]
    kernel = AnySize(RECIPE, group, case_machine, offered=offered)
    for size in each_size(N={1, shape[0]}, H={min(3, shape[2]), shape[2]}, W={min(4, shape[3]), shape[3]}):
        x = random(rng, size["N"], shape[1], size["H"], size["W"]) - 3
        want = -reference(kind, x, pool, strides, pads, bool(counted))
        got = kernel(size, want.shape, x)
        np.testing.assert_allclose(got, want, rtol=0 if kind == "max" else (pool[0] * pool[1] + 2) * 2.0**-24, atol=0)


def test_refuses_ceil_mode_over_an_image_of_any_size() -> None:
    group = pool_group("max", (1, 8, 9, 9), pool_size=(3, 3), strides=(2, 2), ceil_mode=True)
    group = with_extents(group, (1, 8, *symbols("HW")), group.shape)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and "ceil mode" in miss.reason
