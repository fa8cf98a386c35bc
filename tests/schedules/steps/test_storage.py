"""Every recipe that computes in float32, with operands and results that are stored in narrow floats and in 8 bits."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.group import WEIGHTS_IN, Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.driver.machine_code import code_of
from tvm_ext.schedules.recipes import dense
from tvm_ext.schedules.recipes.attention import Attention
from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul
from tvm_ext.schedules.recipes.concat import Concat
from tvm_ext.schedules.recipes.convolution.conv2d_depthwise import Conv2dDepthwise
from tvm_ext.schedules.recipes.convolution.conv2d_grouped import Conv2dGrouped
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_transpose import Conv2dTranspose
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.schedules.recipes.dense import Dense
from tvm_ext.schedules.recipes.elementwise import Elementwise
from tvm_ext.schedules.recipes.layer_norm import LayerNorm
from tvm_ext.schedules.recipes.pad import Pad
from tvm_ext.schedules.recipes.pool2d import Pool2d
from tvm_ext.schedules.recipes.reduction import Reduction
from tvm_ext.schedules.recipes.softmax import Softmax
from tvm_ext.schedules.recipes.strided_slice import StridedSlice
from tvm_ext.schedules.recipes.take import Take

from ..convolutions import grouped_reference, transposed_reference
from ..convolutions import reference as convolution
from ..kernels import ROUNDOFF, make_group, matched, scheduled
from ..narrow import run_narrow
from ..recipes.test_attention import reference as attention
from ..stored import BF16, STORAGES, Storage, stored_group

ONE = ((1, 1), (1, 1, 1, 1), (1, 1))


@dataclass(frozen=True)
class Case:
    """relu(anchor(decoded operands)), encoded.

    Attributes:
        op, exact: the anchor in Relax, and in float64.
        terms: roundings of a result, in units of the sum of magnitudes.
        blocked: offer the first operand in blocks of channels.
        constants: operands that are constant.
    """

    recipe: Recipe
    anchor: str
    shapes: Sequence[Sequence[int]]
    op: Callable[..., Any]
    exact: Callable[..., Any]
    terms: int = 8
    blocked: bool = False
    constants: Sequence[int] = field(default_factory=tuple)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * g + b


def _pooled(x: np.ndarray, over: Callable[..., Any]) -> np.ndarray:
    fill = -np.inf if over is np.max else 0
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return over(windows, axis=(4, 5))


def _conv(x: np.ndarray, w: np.ndarray, strides: Any = (1, 1), pads: Any = (1, 1, 1, 1), groups: int = 1) -> np.ndarray:
    if groups > 1:
        return grouped_reference(x, w, groups, strides, pads, (1, 1))
    return convolution(x, w, strides, pads, (1, 1))


def conv_case(
    recipe: Recipe, x: Any, w: Any, *, groups: int = 1, strides: Any = (1, 1), pads: Any = (1, 1, 1, 1)
) -> Case:
    attrs = {"strides": strides, "padding": pads, "groups": groups}
    return Case(
        recipe, "relax.nn.conv2d", [x, w], lambda x, w: relax.op.nn.conv2d(x, w, **attrs),
        lambda x, w: _conv(x, w, strides, pads, groups), 40 * int(np.prod(w[1:])), constants=[1],
    )  # fmt: skip


POOL = {"pool_size": [3, 3], "strides": [2, 2], "padding": [1, 1, 1, 1]}
CASES = {
    "elementwise": Case(Elementwise(), "elementwise", [(3, 5, 17), (5, 17)], relax.op.add, np.add),
    "elementwise in blocks": Case(
        Elementwise(), "elementwise", [(2, 19, 3, 5), (1, 19, 1, 1)], relax.op.subtract, np.subtract, blocked=True
    ),
    "max_pool2d": Case(
        Pool2d(), "relax.nn.max_pool2d", [(2, 19, 9, 8)], lambda x: relax.op.nn.max_pool2d(x, **POOL),
        lambda x: _pooled(x, np.max), blocked=True,
    ),
    "avg_pool2d": Case(
        Pool2d(), "relax.nn.avg_pool2d", [(1, 7, 9, 8)],
        lambda x: relax.op.nn.avg_pool2d(x, count_include_pad=True, **POOL), lambda x: _pooled(x, np.mean), 20,
    ),
    "global average": Case(
        Reduction(), "relax.mean", [(2, 19, 7, 5)], lambda x: relax.op.mean(x, axis=[2, 3]),
        lambda x: x.mean((2, 3)), 70, blocked=True,
    ),
    "sum of rows": Case(Reduction(), "relax.sum", [(5, 131)], lambda x: relax.op.sum(x, -1), lambda x: x.sum(-1), 140),
    "softmax": Case(Softmax(), "relax.nn.softmax", [(3, 5, 37)], lambda x: relax.op.nn.softmax(x, -1), _softmax, 80),
    "layer_norm": Case(
        LayerNorm(), "relax.nn.layer_norm", [(3, 37), (37,), (37,)],
        lambda x, g, b: relax.op.nn.layer_norm(x, g, b, axes=[-1], epsilon=1e-5), _layer_norm, 200,
    ),
    "attention": Case(
        Attention(), "relax.nn.attention", [(1, 9, 2, 15), (1, 13, 2, 15), (1, 13, 2, 16)],
        relax.op.nn.attention, lambda *a: attention(*a)[0], 400,
    ),
    "batch_matmul": Case(BatchMatmul(), "relax.matmul", [(3, 7, 13), (3, 13, 17)], relax.op.matmul, np.matmul, 60),
    "batch_matmul in place": Case(BatchMatmul(), "relax.matmul", [(2, 13), (13, 32)], relax.op.matmul, np.matmul, 60),
    "dense": Case(Dense(), "relax.matmul", [(9, 13), (13, 37)], relax.op.matmul, np.matmul, 60, constants=[1]),
    "dense of a row": Case(Dense(), "relax.matmul", [(1, 32), (32, 24)], relax.op.matmul, np.matmul, 60, constants=[1]),
    "conv2d_nchwc": conv_case(Conv2dNCHWc(), (2, 13, 7, 5), (19, 13, 3, 3)),
    "conv2d_nchwc without padding": conv_case(Conv2dNCHWc(), (1, 32, 6, 5), (24, 32, 1, 1), pads=(0, 0, 0, 0)),
    "conv2d_nchwc of an image": conv_case(Conv2dNCHWc(), (1, 3, 13, 11), (16, 3, 7, 7), strides=(2, 2), pads=(3,) * 4),
    "conv2d_winograd": conv_case(Conv2dWinograd(), (1, 32, 9, 7), (19, 32, 3, 3)),
    "conv2d_winograd of an image": conv_case(Conv2dWinograd(), (1, 3, 9, 10), (16, 3, 3, 3)),
    "conv2d_depthwise": conv_case(Conv2dDepthwise(), (2, 19, 9, 7), (19, 1, 3, 3), groups=19, strides=(2, 2)),
    "conv2d_grouped": conv_case(Conv2dGrouped(), (1, 24, 6, 5), (12, 6, 3, 3), groups=4),
    "conv2d_transpose": Case(
        Conv2dTranspose(), "relax.nn.conv2d_transpose", [(1, 13, 5, 4), (13, 19, 2, 2)],
        lambda x, w: relax.op.nn.conv2d_transpose(x, w, strides=[2, 2]),
        lambda x, w: transposed_reference(x, w, (2, 2), (0, 0, 0, 0), (0, 0), (1, 1)), 60, constants=[1],
    ),
    "concat": Case(
        Concat(), "relax.concat", [(2, 3, 5), (2, 7, 5)], lambda x, y: relax.op.concat([x, y], 1),
        lambda x, y: np.concatenate([x, y], 1),
    ),
    "strided_slice": Case(
        StridedSlice(), "relax.strided_slice", [(5, 37)],
        lambda x: relax.op.strided_slice(x, [0, 1], [1, 2], [5, 37], [2, 1]), lambda x: x[1:5:2, 2:37],
    ),
    "pad": Case(
        Pad(), "relax.nn.pad", [(3, 17)], lambda x: relax.op.nn.pad(x, [1, 0, 2, 1], pad_value=0.5),
        lambda x: np.pad(x, ((1, 0), (2, 1)), constant_values=0.5),
    ),
}  # fmt: skip


def check(case: Case, storage: Storage, machine: Machine, rng: np.random.Generator) -> None:
    arrays = [storage.random(rng, shape) for shape in case.shapes]
    values = [storage.value(a) for a in arrays]
    exact = case.exact(*values)
    step = float(np.abs(exact).max()) / 150  # the largest results are saturated
    group = stored_group(case.anchor, case.shapes, case.op, storage, step, case.constants)
    offered = [Layout.plain(len(s)) for s in case.shapes]
    if case.blocked:
        offered[0] = Layout.blocked(4, machine.lanes)
    got = run_narrow(case.recipe, group, arrays, machine, offered=offered)
    size = np.abs(exact).max() if case.anchor != "relax.nn.conv2d" else case.exact(*map(np.abs, values))
    storage.check(got, np.maximum(exact, 0), step, case.terms * ROUNDOFF * size)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, dtype) for name in CASES for dtype in ("bfloat16", "uint8")),
     *((name, dtype) for name in [*CASES][::3] for dtype in ("float16", "int8"))],
)  # fmt: skip
def test_agrees_with_float64(name: str, dtype: str, rng: np.random.Generator) -> None:
    check(CASES[name], STORAGES[dtype], Machine.detect(None, 2), rng)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("elementwise in blocks", "float16"), ("max_pool2d", "bfloat16"), ("global average", "uint8"),
     ("layer_norm", "bfloat16"), ("attention", "float16"), ("conv2d_nchwc", "uint8"), ("conv2d_nchwc", "float16"),
     ("conv2d_depthwise", "bfloat16"), ("pad", "uint8")],
)  # fmt: skip
def test_on_other_instruction_sets(name: str, dtype: str, other_machine: Machine, rng: np.random.Generator) -> None:
    check(CASES[name], STORAGES[dtype], other_machine, rng)


def _moved(name: str, shapes: Sequence[Any], op: Callable[..., Any], exact: Callable[..., Any], recipe: Recipe) -> Any:
    return pytest.param(name, shapes, op, exact, recipe, id=name.rpartition(".")[2])


@pytest.mark.parametrize("dtype", STORAGES)
@pytest.mark.parametrize(
    ("anchor", "shapes", "op", "exact", "recipe"),
    [
        _moved("relax.concat", [(1, 32, 3, 5), (1, 7, 3, 5)], lambda x, y: relax.op.concat([x, y], 1),
               lambda x, y: np.concatenate([x, y], 1), Concat()),
        _moved("relax.strided_slice", [(5, 37)], lambda x: relax.op.strided_slice(x, [1], [2], [37], [1]),
               lambda x: x[:, 2:37], StridedSlice()),
        _moved("relax.nn.pad", [(3, 17)], lambda x: relax.op.nn.pad(x, [1, 0, 2, 1], pad_value=3),
               lambda x: np.pad(x, ((1, 0), (2, 1)), constant_values=x.dtype.type(3)), Pad()),
        _moved("relax.nn.max_pool2d", [(2, 19, 9, 8)], lambda x: relax.op.nn.max_pool2d(x, **POOL),
               lambda x: _pooled(x.astype("float32"), np.max).astype(x.dtype), Pool2d()),
    ],
)  # fmt: skip
def test_moves_stored_numbers_as_they_are(
    anchor: str, shapes: Any, op: Any, exact: Any, recipe: Recipe, dtype: str, case_machine: Machine, rng: Any
) -> None:
    arrays = [STORAGES[dtype].random(rng, shape) for shape in shapes]
    group = make_group(anchor, shapes, lambda *p: (yield op(*p)), dtype=dtype)
    for blocked in (False, True) if len(shapes[0]) == 4 else (False,):
        layout = Layout.blocked(4, case_machine.lanes) if blocked else Layout.plain(len(shapes[0]))
        got = run_narrow(recipe, group, arrays, case_machine, offered=[layout] * len(shapes))
        assert got.dtype == arrays[0].dtype and np.array_equal(got, exact(*arrays))


@pytest.mark.parametrize("dtype", STORAGES)
def test_takes_rows_of_a_stored_table(dtype: str, rng: np.random.Generator) -> None:
    storage, rows = STORAGES[dtype], np.array([[3, 0, -1], [5, 6, 1]], "int64")
    table = storage.random(rng, (7, 37))

    def decoded(table: Any, rows: Any) -> Any:
        numbers = yield storage.decode(table)
        yield relax.op.take(numbers, rows, axis=0, mode="wrap")

    shapes, types = [(7, 37), (2, 3)], [dtype, "int64"]
    group = make_group("relax.take", shapes, decoded, dtype=types)
    got = run_narrow(Take(), group, [table, rows], Machine.detect())
    np.testing.assert_allclose(got, storage.value(table)[rows], rtol=2 * ROUNDOFF)
    group = make_group("relax.take", shapes, lambda t, r: (yield relax.op.take(t, r, axis=0, mode="wrap")), dtype=types)
    assert np.array_equal(run_narrow(Take(), group, [table, rows], Machine.detect()), table[rows])


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.constants])
def test_a_scale_for_each_output(name: str, case_machine: Machine, rng: np.random.Generator) -> None:
    """What quantizers write: uint8 data, int8 weights with a scale for each output channel, a bias."""
    case, storage, weights = CASES[name], STORAGES["uint8"], Storage("int8")
    axis = 0 if case.anchor == "relax.nn.conv2d" else 1
    x, w = storage.random(rng, case.shapes[0]), weights.random(rng, case.shapes[1])
    outputs = case.shapes[1][axis]
    scale, bias = rng.uniform(0.001, 0.02, outputs).astype("float32"), rng.standard_normal(outputs).astype("float32")
    wide = (-1, 1, 1) if "conv" in case.anchor else (-1,)
    along = [-1 if a == axis else 1 for a in range(w.ndim)]
    exact = case.exact(storage.value(x), w.astype("float64") * scale.reshape(along)) + bias.reshape(wide)
    step = float(np.abs(exact).max()) / 150

    def body(x: Any, w: Any, scale: Any, bias: Any) -> Any:
        data = yield storage.decode(x)
        weight = yield relax.op.dequantize(w, scale, relax.const(0, "int8"), axis=axis)
        value = yield case.op(data, weight)
        value = yield relax.op.add(value, bias)
        yield storage.encode(value, step)

    shapes = [*case.shapes, (outputs,), bias.reshape(wide).shape]
    group = make_group(case.anchor, shapes, body, (1, 2, 3), ["uint8", "int8", "float32", "float32"])
    got = run_narrow(case.recipe, group, [x, w, scale, bias.reshape(wide)], case_machine)
    size = case.exact(np.abs(storage.value(x)), np.abs(w.astype("float64")) * scale.reshape(along)) + abs(bias).max()
    storage.check(got, exact, step, (case.terms + 4) * ROUNDOFF * size)


@pytest.mark.parametrize("blocked", [False, True])
def test_a_scale_for_each_channel_of_the_data(blocked: bool, rng: np.random.Generator) -> None:
    """Decoded for an average, and by the group of a product: what stands beyond the last channel is not read."""
    shape, storage = (1, 19, 5, 4), Storage("int8")
    x, machine = storage.random(rng, shape), Machine.detect()
    scale = rng.uniform(0.01, 0.1, 19).astype("float32")
    exact = x.astype("float64") * scale.reshape(1, -1, 1, 1)
    layouts = [Layout.blocked(4, machine.lanes) if blocked else Layout.plain(4), Layout.plain(1)]

    def mean(x: Any, scale: Any) -> Any:
        value = yield relax.op.dequantize(x, scale, relax.const(0, "int8"), axis=1)
        yield relax.op.mean(value, axis=[2, 3])

    def product(x: Any, scale: Any) -> Any:
        value = yield relax.op.dequantize(x, scale, relax.const(0, "int8"), axis=1)
        value = yield relax.op.multiply(value, relax.const(2.0, "float32"))
        yield relax.op.quantize(value, scale, relax.const(0, "int8"), axis=1, out_dtype="int8")

    group = make_group("relax.mean", [shape, (19,)], mean, (1,), ["int8", "float32"])
    got = run_narrow(Reduction(), group, [x, scale], machine, offered=layouts)
    np.testing.assert_allclose(got, exact.mean((2, 3)), rtol=1e-5, atol=1e-6)
    group = make_group("elementwise", [shape, (19,)], product, (1,), ["int8", "float32"])
    got = run_narrow(Elementwise(), group, [x, scale], machine, offered=layouts)
    assert np.array_equal(got, np.clip(2 * x.astype("int32"), -128, 127))


def cast(x: np.ndarray, dtype: str, machine: Machine) -> np.ndarray:
    group = make_group("elementwise", [x.shape], lambda x: (yield relax.op.astype(x, dtype)), dtype=x.dtype.name)
    return run_narrow(Elementwise(), group, [x], machine)


def check_rounding(x: np.ndarray, dtype: str, numbers: np.ndarray, machine: Machine) -> None:
    """These numbers of x become the same bits as numpy's, and each NaN one."""
    got = cast(x, dtype, machine)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(got.dtype)
    assert np.array_equal(got.view("uint16")[numbers], wanted.view("uint16")[numbers])
    assert np.all(np.isnan(got[np.isnan(x)].astype("float32")))


def test_rounds_to_bfloat16_as_ieee_does(machine: Machine, rng: np.random.Generator) -> None:
    """All kinds of numbers: ties, overflow to infinity, denormal numbers, infinities and NaN."""
    bits = rng.integers(0, 1 << 32, 4096, dtype="uint32")
    bits[:1024] = (bits[:1024] & 0xFFFF0000) | 0x8000  # halfway
    bits[-1] = 0x7FFFFFFF  # a NaN whose rounding would carry into the sign
    special = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40, -1e-40, np.nan], "float32")
    x = np.concatenate([bits.view("float32"), special])
    numbers = ~np.isnan(x)
    if "avx512bf16" in machine.features:  # its instruction takes denormal numbers for zero
        numbers &= (np.abs(x) >= 2.0**-126) | (x == 0)
    check_rounding(x, "bfloat16", numbers, machine)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = x.astype(BF16)
    np.testing.assert_array_equal(cast(narrow, "float32", machine), narrow.astype("float32"))


def test_rounds_to_float16_as_ieee_does(machine: Machine, rng: np.random.Generator) -> None:
    """Ties, overflow to infinity, subnormal numbers, which are kept, infinities and NaN; and all of float16 back."""
    halves = np.arange(1 << 16, dtype="uint16").view("float16")
    finite = np.sort(halves[np.isfinite(halves)].astype("float32"))
    ties = (finite[:-1] + finite[1:]) / 2  # exact in float32
    near = [np.nextafter(ties, np.float32(sign * np.inf)) for sign in (1, -1)]
    special = np.array([65504, 65519.996, 65520, 1e9, 3.4e38, np.inf, np.nan, 1e-40, 2.0**-25, 2.0**-24], "float32")
    random = rng.integers(0, 1 << 32, 4096, dtype="uint32").view("float32")
    x = np.concatenate([finite, ties, *near, special, -special, random])
    check_rounding(x, "float16", ~np.isnan(x), machine)
    got = cast(halves, "float32", machine)
    np.testing.assert_array_equal(got, halves.astype("float32"))
    numbers = ~np.isnan(halves)
    assert np.array_equal(np.signbit(got[numbers]), np.signbit(halves[numbers]))


@pytest.mark.parametrize(("target", "width"), [("haswell", "y"), ("skylake-avx512", "z")])
def test_float16_is_converted_in_vectors(target: str, width: str) -> None:
    """By F16C, which every machine with AVX2 has: no call, and no number by itself."""
    machine, shape = Machine.detect(target, 1), (3, 16 * 37)
    group = stored_group("elementwise", [shape], relax.op.exp, STORAGES["float16"], 1.0)
    _, mod = scheduled(
        Elementwise(), matched(Elementwise(), group, machine), {"threads": 1}, machine, [Layout.plain(2)]
    )
    code = code_of({"main": mod["main"]}, machine, "asm")["main"]
    lines = re.findall(r"^.*(?:cvtph2ps|cvtps2ph|call.*(?:half|hf)).*$", code, re.MULTILINE)
    assert {line.split()[0] for line in lines} == {"vcvtph2ps", "vcvtps2ph"}
    assert all(f"%{width}mm" in line for line in lines), lines


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantizes_to_the_bit(dtype: str, machine: Machine, rng: np.random.Generator) -> None:
    """round(x / scale) halves to even, of numbers around every half; saturated; NaN is the smallest number."""
    limits, zero = np.iinfo(dtype), STORAGES[dtype].zero
    for scale in (np.float32(0.1), np.float32(1 / 3), np.float32(0.0078125), np.float32(7.1e-5)):
        half = (np.arange(-300, 301, dtype="float32") + np.float32(0.5)) * scale
        near = [half, np.nextafter(half, np.float32(np.inf)), np.nextafter(half, np.float32(-np.inf))]
        x = np.concatenate([*near, (rng.standard_normal(777) * 100 * scale).astype("f4"), [0, -0.0, np.inf, -np.inf]])
        x = np.concatenate([x, [1e38, -1e38, 1e-40, np.nan]]).astype("float32")
        op = lambda x, s=scale: (yield relax.op.quantize(x, relax.const(s), relax.const(zero, dtype), 0, dtype))  # noqa: E731
        got = run_narrow(Elementwise(), make_group("elementwise", [x.shape], op), [x], machine)
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = np.clip(np.rint(x / scale) + zero, limits.min, limits.max)
        assert np.array_equal(got, np.nan_to_num(wanted, nan=limits.min).astype(dtype))


@pytest.mark.parametrize(
    ("rows", "k", "n", "dtype"),
    [(1, 1, 1, "float16"), (1, 37, 101, "bfloat16"), (3, 48, 7, "float16"), (4, 129, 64, "bfloat16"),
     (2, 640, 333, "float16")],
)  # fmt: skip
def test_few_rows_stream_a_narrow_weight(
    rows: int, k: int, n: int, dtype: str, case_machine: Machine, rng: Any, monkeypatch: Any
) -> None:
    """It is widened as it is read."""
    monkeypatch.setattr(dense, "in_fewer_bytes", lambda problem, *_: replace(problem, word=2))
    case = Case(Dense(), "relax.matmul", [(rows, k), (k, n)], relax.op.matmul, np.matmul, k + 8, constants=(1,))
    group = stored_group(case.anchor, case.shapes, case.op, STORAGES[dtype], 1.0, case.constants)
    match = matched(Dense(), group, case_machine)
    layouts, _ = scheduled(Dense(), match, Dense().default(match, case_machine), case_machine, [Layout.plain(2)] * 2)
    assert layouts.params[1].element_type(dtype) == dtype
    check(case, STORAGES[dtype], case_machine, rng)


@pytest.mark.parametrize(
    ("target", "rows", "level", "word"),
    [("haswell", 1, "memory", 2), ("haswell", 4, "memory", 2), ("haswell", 1, "l2", 4), ("haswell", 7, "memory", 4),
     ("skylake-avx512", 6, "memory", 2), ("skylake-avx512", 1, "l2", 4), ("x86-64-v2", 1, "memory", 4)],
)  # fmt: skip
def test_a_weight_stays_narrow_where_its_bytes_take_the_time(target: str, rows: int, level: str, word: int) -> None:
    """Few rows, of a weight that comes from memory, on a CPU that converts vectors of float16."""
    machine = Machine.detect(target, 1)
    shapes = [(rows, 640), (640, 333)]
    group = stored_group("relax.matmul", shapes, relax.op.matmul, STORAGES["float16"], 1.0, (1,))
    group = Group(group.name, group.function.with_attr(WEIGHTS_IN, level))
    assert matched(Dense(), group, machine).problem.word == word
