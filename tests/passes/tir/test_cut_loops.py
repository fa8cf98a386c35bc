"""Kernels of real recipes at sizes below their bound, against float64: right where asked for, little done beyond."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tests.passes.tir.sized import Built, Shape, Sized, assert_agrees, computed, physical, planned
from tests.schedules.convolutions import conv_group, transposed_reference
from tests.schedules.convolutions import reference as convolution
from tests.schedules.kernels import make_group
from tests.schedules.recipes.test_attention import attention as attention_group
from tests.schedules.recipes.test_attention import reference as attention_reference
from tests.schedules.recipes.test_dense import dense_group
from tests.schedules.recipes.test_layer_norm import group_of as norm_group
from tests.schedules.recipes.test_pool2d import pool_group
from tests.schedules.recipes.test_take import take_group
from tests.schedules.test_many_cores import many
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.core.sizes import Sizes, Symbol
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.steps.kernel_sizes import with_sizes
from tvm_ext.passes.tir import cut_loops
from tvm_ext.schedules.recipes import layout_transform
from tvm_ext.schedules.recipes.attention import Attention
from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul
from tvm_ext.schedules.recipes.concat import Concat
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import Conv2dDepthwise
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_transpose import Conv2dTranspose
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.schedules.recipes.dense import Dense
from tvm_ext.schedules.recipes.elementwise import Elementwise
from tvm_ext.schedules.recipes.layer_norm import LayerNorm
from tvm_ext.schedules.recipes.pool2d import Pool2d
from tvm_ext.schedules.recipes.softmax import Softmax
from tvm_ext.schedules.recipes.strided_slice import StridedSlice
from tvm_ext.schedules.recipes.take import Take

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


def transposed() -> Sized:
    options: dict[str, Any] = {"strides": (2, 2), "padding": (1, 1, 1, 1)}

    def exact(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.maximum(transposed_reference(x, w, (2, 2), (1, 1, 1, 1), (0, 0), (1, 1)) + b, 0)

    group = lambda s: conv_group(s[0], s[1], operator=relax.op.nn.conv2d_transpose, **options)  # noqa: E731
    shapes = lambda N, H, W: [(N, 32, H, W), (32, 48, 4, 4), (1, 48, 1, 1), (N, 48, 2 * H, 2 * W)]  # noqa: E731
    return Sized(Conv2dTranspose(), group, shapes, {"N": 2, "H": 12, "W": 10}, exact, border={0: 0.0})


def attention() -> Sized:
    """Of N sequences, with S queries each; keys are as many always."""
    shapes = lambda N, S: [(N, S, 3, 32), (N, 40, 3, 32), (N, 40, 3, 32), (N, S, 3, 32)]  # noqa: E731
    group = lambda s: attention_group(*s[:3])  # noqa: E731
    return Sized(Attention(), group, shapes, ROWS, lambda *operands: attention_reference(*operands)[0])


def take() -> Sized:
    rows: Any = {1: lambda rng, shape: rng.integers(-30, 30, shape)}
    shapes = lambda N, S: [(30, 96), (N, S), (N, S, 96), (N, S, 96)]  # noqa: E731
    group = lambda s: take_group(s[0], s[1], 0, extra=s[2])  # noqa: E731
    return Sized(Take(), group, shapes, ROWS, lambda t, i, e: np.take(t, i, 0) + e, operands=rows)


def concat() -> Sized:
    group = lambda s: make_group("relax.concat", s, lambda a, b: (yield relax.op.concat([a, b], axis=1)))  # noqa: E731
    shapes = lambda N, H, W: [(N, 16, H, W), (N, 24, H, W), (N, 40, H, W)]  # noqa: E731
    return Sized(Concat(), group, shapes, IMAGE, lambda a, b: np.concatenate([a, b], 1))


def strided_slice() -> Sized:
    body = lambda a: (yield relax.op.strided_slice(a, [2], [8], [40], [1]))  # noqa: E731
    group = lambda s: make_group("relax.strided_slice", s, body)  # noqa: E731
    return Sized(StridedSlice(), group, lambda N, S: [(N, S, 64), (N, S, 32)], ROWS, lambda a: a[:, :, 8:40])


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
    "dense, tiles across rows": (lambda: dense({"N": 4, "S": 101}), 1.2),
    "conv 1x1, tiles across rows": (lambda: conv((64, 64, 1, 1), {"N": 1, "H": 28, "W": 26}), 1.3),
    "transposed": (transposed, 1.3),
    "attention": (attention, 1.3),
    "take": (take, 1.0),
    "concat": (concat, 1.5),
    "slice": (strided_slice, 1.0),
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


def check(name: str, machine: Machine) -> tuple[Sized, Built]:
    """A kernel that agrees with float64 at all points."""
    case = CASES[name][0]()
    built = Built(case, machine)
    for sizes in points_of(case.bounds):
        assert_agrees(case, built, sizes, 1e-5 if "winograd" in name else 2e-6)
    return case, built


@pytest.mark.parametrize("machine", ["zen3-avx2", "xeon-amx"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_float64(name: str, threads: int, machine: str) -> None:
    """With the tiles of both: what is computed beyond the extents follows from them."""
    case, built = check(name, planned(machine, threads))
    near = {key: max(1, high * 4 // 5) for key, high in case.bounds.items()}
    assert computed(case, built, near) <= CASES[name][1]


@pytest.mark.parametrize("name", ["dense", "conv 3x3, chunks", "max pool, blocks"])
def test_shares_that_do_not_divide(name: str) -> None:
    check(name, many(5))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", [Layout.blocked(4, 8), Layout((0, 2, 3, 1))], ids=["blocks", "NHWC"])
def test_layout_transforms(target: Layout, threads: int) -> None:
    """Their loops walk flat memory."""
    bound, plain = (4, 32, 96, 80), Layout.plain(4)
    machine, sizes = Machine.detect(None, threads), Sizes.of([Symbol("N", 1, 4), Symbol("H", 1, 96)])
    shape = (sizes.vars[0], 32, sizes.vars[1], 80)
    kernel = layout_transform.compute(bound, "float32", plain, target, machine)
    extents = [physical(layout, shape, bound) for layout in (plain, target)]
    function = compile_kernels({"main": with_sizes(kernel, extents, sizes)}, machine)["main"]
    x = np.random.default_rng(3).standard_normal(bound).astype("float32")
    for n, h in ((1, 1), (3, 37), (4, 96)):
        out = tvm.runtime.tensor(np.full(target.physical_shape(bound), np.nan, "float32"))
        function(tvm.runtime.tensor(x), tvm.runtime.tensor(np.array([n, h], "int64")), out)
        got = target.unpack(out.numpy(), bound)
        assert np.array_equal(got[:n, :, :h], x[:n, :, :h])
        assert np.isnan(got).sum() == x.size - n * 32 * h * 80


def test_a_kernel_that_uses_the_sizes_itself() -> None:
    """A masked sum over a symbolic dimension, in a buffer that is allocated around all of its loops."""
    sizes = Sizes.of([Symbol("N", 1, 4), Symbol("S", 1, 70)])
    n, s = sizes.vars
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        x, out = (T.arg(name, T.buffer((4, 8, 70), "float32")) for name in ("x", "out"))
        with T.sblock("root"), T.parallel(2) as t, T.serial(2) as i, T.serial(8) as row:
            total = T.alloc_buffer((1,), "float32", scope="local")
            T.buffer_store(total, T.float32(0), [0])
            with T.serial(18) as k, T.serial(4) as j:
                inside = tirx.Cast("int64", k * 4 + j) < s
                value = tirx.if_then_else(inside, x[t * 2 + i, row, tirx.min(k * 4 + j, 69)], T.float32(0))
                T.buffer_store(total, total[0] + value, [0])
            with T.serial(70) as k:
                T.buffer_store(out, x[t * 2 + i, row, k] / total[0], [t * 2 + i, row, k])
    machine, extents = Machine.detect(None, 2), [[n, 8, s], [n, 8, s]]
    function = compile_kernels({"main": with_sizes(builder.get(), extents, sizes)}, machine)["main"]
    for count, length in ((1, 1), (4, 70), (3, 13)):
        whole = np.full((4, 8, 70), np.nan, "float32")
        whole[:count, :, :length] = np.random.default_rng(2).uniform(1, 2, (count, 8, length))
        result = tvm.runtime.tensor(np.full(whole.shape, np.nan, "float32"))
        function(tvm.runtime.tensor(whole), tvm.runtime.tensor(np.array([count, length], "int64")), result)
        part = whole[:count, :, :length].astype("float64")
        np.testing.assert_allclose(result.numpy()[:count, :, :length], part / part.sum(-1, keepdims=True), rtol=1e-6)
        assert np.isnan(result.numpy()).sum() == whole.size - count * 8 * length


def test_static_kernels_are_left_as_they_are() -> None:
    x = te.placeholder((4, 8), name="x")
    function = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1)])
    assert cut_loops.cut_loops(function).same_as(function)
