"""Kernels of real recipes at sizes below their bound, against float64: right where asked for, little done beyond."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te
from tvm.ir import IRModule

from tests.passes.tir.sized import Built, Shape, Sized, assert_agrees, computed
from tests.schedules.kernels import make_group
from tests.schedules.recipes.convolution.test_conv2d_nchwc import conv_group
from tests.schedules.recipes.convolution.test_conv2d_nchwc import reference as convolution
from tests.schedules.recipes.test_dense import dense_group
from tests.schedules.recipes.test_layer_norm import group_of as norm_group
from tests.schedules.recipes.test_pool2d import pool_group
from tvm_ext.core.layout import Layout
from tvm_ext.core.recipe import Recipe
from tvm_ext.passes.tir import cut_loops
from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import Conv2dDepthwise
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.schedules.recipes.dense import Dense
from tvm_ext.schedules.recipes.elementwise import Elementwise
from tvm_ext.schedules.recipes.layer_norm import LayerNorm
from tvm_ext.schedules.recipes.pool2d import Pool2d
from tvm_ext.schedules.recipes.softmax import Softmax

ROWS = {"N": 4, "S": 96}
IMAGE = {"N": 2, "H": 24, "W": 20}


def dense(bounds: Mapping[str, int]) -> Sized:
    def exact(x: Any, w: Any, b: Any, r: Any) -> np.ndarray:
        return np.maximum(x @ w + b + r, 0)

    def shapes(N: Any, S: Any) -> list[Shape]:
        return [(N, S, 64), (64, 80), (80,), (N, S, 80), (N, S, 80)]

    return Sized(Dense(), lambda s: dense_group(s[0], 80, residual=True), shapes, bounds, exact)


def gelu(channels: int) -> Sized:
    def body(x: Any, b: Any) -> Any:
        y = yield relax.op.add(x, b)
        yield relax.op.nn.gelu(y)

    def exact(x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (x + b) * 0.5 * (1 + np.vectorize(math.erf)((x + b) / math.sqrt(2)))

    group = lambda s: make_group("elementwise", s, body)  # noqa: E731
    return Sized(Elementwise(), group, lambda N, S: [(N, S, channels), (channels,), (N, S, channels)], ROWS, exact)


def layer_norm() -> Sized:
    def exact(x: np.ndarray, g: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * g + b + r

    shape = lambda N, S: [(N, S, 100), (100,), (100,), (N, S, 100), (N, S, 100)]  # noqa: E731
    return Sized(LayerNorm(), lambda s: norm_group(s[0], [-1]), shape, ROWS, exact)


def softmax() -> Sized:
    def exact(x: np.ndarray) -> np.ndarray:
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    group = lambda s: make_group("relax.nn.softmax", s, lambda x: (yield relax.op.nn.softmax(x, axis=-1)))  # noqa: E731
    return Sized(Softmax(), group, lambda N, S: [(N, S, 100)] * 2, ROWS, exact)


def batch_matmul(bounds: Mapping[str, int]) -> Sized:
    group = lambda s: make_group("relax.matmul", s, lambda a, b: (yield relax.op.matmul(a, b)))  # noqa: E731
    shapes = lambda N, S: [(N, S, 64), (N, 64, S), (N, S, S)]  # noqa: E731
    return Sized(BatchMatmul(), group, shapes, bounds, lambda a, b: a @ b)


def conv(
    weight: tuple[int, ...], bounds: Mapping[str, int], stride: int = 1, recipe: Recipe | None = None, groups: int = 1
) -> Sized:
    pad, kernel = weight[2] // 2, weight[2]
    options: dict[str, Any] = {"strides": (stride,) * 2, "padding": (pad,) * 4}

    def shapes(N: Any, H: Any, W: Any) -> list[Shape]:
        out = [(d + 2 * pad - kernel) // stride + 1 for d in (H, W)]
        return [(N, weight[1] * groups, H, W), weight, (1, weight[0], 1, 1), (N, weight[0], *out)]

    def exact(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = zip(np.split(x, groups, 1), np.split(w, groups), strict=True)
        return np.maximum(np.concatenate([convolution(a, c, **options, dilation=(1, 1)) for a, c in parts], 1) + b, 0)

    group = lambda s: conv_group(s[0], weight, groups=groups, **options)  # noqa: E731
    return Sized(recipe or Conv2dNCHWc(), group, shapes, bounds, exact, border={0: 0.0})


def max_pool(offered: Sequence[Layout] | None = None) -> Sized:
    options: dict[str, Any] = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}

    def exact(x: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        return -views[:, :, ::2, ::2].max((-1, -2))

    shapes = lambda N, H, W: [(N, 32, H, W), (N, 32, (H - 1) // 2 + 1, (W - 1) // 2 + 1)]  # noqa: E731
    group = lambda s: pool_group("max", s[0], **options)  # noqa: E731
    return Sized(Pool2d(), group, shapes, IMAGE, exact, offered=offered, border={0: -np.inf})


#: name -> (kernel, most that it stores for one element at sizes that are no small part of the bound).
CASES: dict[str, tuple[Callable[[], Sized], float]] = {
    "dense": (lambda: dense(ROWS), 1.2),
    "gelu": (lambda: gelu(100), 1.0),
    "gelu, whole vectors": (lambda: gelu(64), 1.0),
    "layer norm": (layer_norm, 1.0),
    "softmax": (softmax, 1.0),
    "batch matmul": (lambda: batch_matmul(ROWS), 1.5),
    "batch matmul, packed": (lambda: batch_matmul({"N": 3, "S": 37}), 1.5),
    "conv 3x3": (lambda: conv((48, 32, 3, 3), IMAGE), 1.3),
    "conv 3x3, stride 2": (lambda: conv((48, 32, 3, 3), IMAGE, 2), 1.5),
    "conv 7x7, few channels": (lambda: conv((48, 3, 7, 7), IMAGE, 2), 1.5),
    "conv 3x3, chunks": (lambda: conv((64, 64, 3, 3), {"N": 1, "H": 56, "W": 57}), 1.2),
    "depthwise": (lambda: conv((32, 1, 3, 3), IMAGE, recipe=Conv2dDepthwise(), groups=32), 1.3),
    "winograd": (lambda: conv((48, 32, 3, 3), {"N": 2, "H": 56, "W": 52}, recipe=Conv2dWinograd()), 1.5),
    "winograd, few channels": (lambda: conv((48, 4, 3, 3), {"N": 1, "H": 28, "W": 26}, recipe=Conv2dWinograd()), 1.5),
    "max pool": (max_pool, 1.0),
    "max pool, blocks": (lambda: max_pool([Layout.blocked(4, 8)]), 1.0),
}
#: Of several symbols: smallest, primes, one large and the others small.
ROW_POINTS = [(1, 1), (3, 37), (1, 96), (4, 1), (2, 7)]
IMAGE_POINTS = [(1, 1, 1), (2, 7, 13), (1, 24, 3), (1, 5, 20)]


def points_of(bounds: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes at which a kernel is run: its bound, and what fits of a list."""
    rows = ROW_POINTS if len(bounds) == 2 else IMAGE_POINTS
    below = [dict(zip(bounds, map(min, point, bounds.values()), strict=True)) for point in rows]
    return [dict(bounds), *below]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_float64(name: str, threads: int) -> None:
    make, most = CASES[name]
    case = make()
    built = Built(case, threads)
    for sizes in points_of(case.bounds):
        assert_agrees(case, built, sizes, 1e-5 if "winograd" in name else 2e-6)
    near = {key: max(1, high * 4 // 5) for key, high in case.bounds.items()}
    assert computed(case, built, near) <= most


def test_static_kernels_are_left_as_they_are() -> None:
    x = te.placeholder((4, 8), name="x")
    mod = IRModule({"main": te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1)])})
    assert cut_loops.cut()(mod)["main"].same_as(mod["main"])
    tvm.ir.assert_structural_equal(cut_loops.cut()(mod), mod)
