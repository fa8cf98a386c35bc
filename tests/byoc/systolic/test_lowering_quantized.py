"""Integer layers against onnxruntime without its graph optimizations: MatMulInteger, ConvInteger, QLinear forms, QDQ.

Integer forms have the same bits. In QDQ form onnxruntime multiplies dequantized floats: where scales are powers of two
nothing is rounded and the bits are the same; elsewhere a sum may lie at the other side of a half, by one step.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.byoc.region import Operand, Operation, Region, Value

from . import regions
from .cases import gelu
from .regions import composite, conv2d, dequantize, matmul, op, permuted, quantize, refusal, region, reshaped, run

INT8 = {"dtype": "int8"}
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "int32": TensorProto.INT32}


def reference(proto: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(next(iter(onnxruntime_outputs(proto, inputs).values())))


def integers(rng: np.random.Generator, shape: Any, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(info.min, int(info.max) + 1, shape), dtype)


def specs(inputs: dict[str, np.ndarray]) -> list[onnx.ValueInfoProto]:
    return [value(name, array.shape, TYPES[str(array.dtype)]) for name, array in inputs.items()]


def less(x: Operand, zero: Any) -> list[Operation]:
    """x - zero point, int32."""
    wide = op("astype", x, shape=x.shape, dtype="int32")
    return [wide, op("subtract", wide, np.asarray(zero, np.int32))]


def of(array: np.ndarray, name: str = "x") -> Value:
    return regions.value(name, *array.shape, dtype=str(array.dtype))


# ------------------------------------------------------------ integers in, integers out
EDGES = [
    ("int8", -128, "int8", 0), ("int8", 127, "int8", -128), ("uint8", 0, "uint8", 255), ("uint8", 255, "int8", 127),
]  # fmt: skip


@pytest.mark.parametrize(("a_dtype", "a_zero", "b_dtype", "b_zero"), [*EDGES, ("uint8", 128, "uint8", 0)])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 67, 7), (33, 130, 9)], ids=str)
def test_matmul_integer(a_dtype: str, a_zero: int, b_dtype: str, b_zero: int, sizes: tuple[int, int, int]) -> None:
    """Zero points at the edges of their dtypes; weights that need up to three int8."""
    rng = np.random.default_rng(sum(sizes))
    m, k, n = sizes
    x, w = integers(rng, (m, k), a_dtype), integers(rng, (k, n), b_dtype)
    weights = {"w": w, "zx": np.array(a_zero, a_dtype), "zw": np.array(b_zero, b_dtype)}
    proto = model([node("MatMulInteger", "x w zx zw", "y")], specs({"x": x}), [value("y", (m, n), 6)], weights)
    left = less(of(x), a_zero)
    offloaded = region(composite(*left, matmul(left[1], w.astype(np.int32) - b_zero, "int32")))
    (y,) = run(offloaded, {"x": x}, **INT8)
    np.testing.assert_array_equal(y, reference(proto, {"x": x}))


def test_matmul_integer_of_two_computed_tensors() -> None:
    """int8 without zero points, uint8 with 128, batched."""
    rng = np.random.default_rng(0)
    x, w = integers(rng, (2, 3, 5, 9), "uint8"), integers(rng, (3, 9, 6), "int8")
    left, right = less(of(x), 128), less(of(w, "w"), 0)[:1]
    offloaded = region(composite(*left, *right, matmul(left[1], right[0], "int32")))
    (y,) = run(offloaded, {"x": x, "w": w}, **INT8)
    np.testing.assert_array_equal(y, (x.astype(np.int32) - 128) @ w.astype(np.int32))


def test_int32_sums_wrap_around() -> None:
    """2^17 products of 2^14 are 2^31, which is -2^31; with bias and zero point the sum wraps on the way and back."""
    depth = (1 << 17) + 1
    x, w = np.full((1, depth), -128, np.int8), np.full((depth, 1), -128, np.int32)
    left = less(of(x), 0)
    product = matmul(left[1], w, "int32")
    offloaded = region(composite(*left, product, op("add", product, np.array([-5], np.int32))))
    (y,) = run(offloaded, {"x": x}, **INT8, scratchpad_bytes=1 << 20)
    assert y.item() == -(1 << 31) + (1 << 14) - 5


@pytest.mark.parametrize(("x_dtype", "x_zero"), [("uint8", 0), ("uint8", 255), ("uint8", 77)])
def test_conv_integer(x_dtype: str, x_zero: int) -> None:
    rng = np.random.default_rng(1)
    x, w = integers(rng, (2, 3, 7, 6), x_dtype), integers(rng, (5, 3, 3, 2), "uint8")
    weights = {"w": w, "zx": np.array(x_zero, x_dtype), "zw": np.array(9, np.uint8)}
    nodes = [node("ConvInteger", "x w zx zw", "y", pads=[1, 1, 2, 0], strides=[2, 1])]
    proto = model(nodes, specs({"x": x}), [value("y", (2, 5, 4, 6), 6)], weights)
    left = less(of(x), x_zero)
    conv = conv2d(left[1], w.astype(np.int32) - 9, (1, 1, 2, 0), (2, 1), dtype="int32")
    (y,) = run(region(composite(*left, conv)), {"x": x}, **INT8)
    np.testing.assert_array_equal(y, reference(proto, {"x": x}))


def requantized(sums: Operation, factor: np.ndarray, zero: int, dtype: str) -> list[Operation]:
    """As the converters of QLinear operators write it."""
    real = op("astype", sums, shape=sums.result.shape, dtype="float32")
    scaled = op("multiply", real, factor)
    return [real, scaled, quantize(scaled, 1.0, zero, dtype)]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("x_dtype", "x_zero", "w_dtype", "w_zero"), EDGES)
def test_qlinear_matmul(x_dtype: str, x_zero: int, w_dtype: str, w_zero: int, per_channel: bool) -> None:
    rng = np.random.default_rng(2)
    x, w = integers(rng, (13, 35), x_dtype), integers(rng, (35, 11), w_dtype)
    w_scale = np.float32(rng.random(11) * 0.02 + 0.001) if per_channel else np.float32(0.013)
    zeros = np.full(w_scale.shape, w_zero, w_dtype)
    x_scale, y_scale = np.float32(0.037), np.float32(2.61)
    weights = {"w": w, "sx": x_scale, "zx": np.array(x_zero, x_dtype), "sw": w_scale, "zw": zeros, "sy": y_scale}
    info = np.iinfo(x_dtype)  # so that few results saturate
    y_zero = info.max if (x - float(x_zero)).mean() * (w - float(w_zero)).mean() < 0 else info.min
    weights["zy"] = np.array(y_zero, x_dtype)
    nodes = [node("QLinearMatMul", "x sx zx w sw zw sy zy", "y")]
    proto = model(nodes, specs({"x": x}), [value("y", (13, 11), TYPES[x_dtype])], weights)
    left = less(of(x), x_zero)
    sums = matmul(left[1], w.astype(np.int32) - w_zero, "int32")
    offloaded = region(composite(*left, sums, *requantized(sums, x_scale * w_scale / y_scale, y_zero, x_dtype)))
    (y,) = run(offloaded, {"x": x}, **INT8)
    np.testing.assert_array_equal(y, reference(proto, {"x": x}))
    assert len(np.unique(y)) > 15


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("x_zero", [0, 93, 255])
def test_qlinear_conv(x_zero: int, groups: int, per_channel: bool) -> None:
    """With an int32 bias, which goes into the row that takes the zero point out."""
    rng = np.random.default_rng(3)
    x, w = integers(rng, (2, 6, 9, 7), "uint8"), integers(rng, (8, 6 // groups, 3, 3), "int8")
    bias = rng.integers(-3000, 3000, 8).astype(np.int32)
    w_scale = np.float32(rng.random(8) * 0.02 + 0.001) if per_channel else np.float32(0.013)
    x_scale, y_scale = np.float32(0.037), np.float32(0.9)
    weights = {"w": w, "sx": x_scale, "zx": np.uint8(x_zero), "sw": w_scale, "zw": np.zeros(w_scale.shape, np.int8)}
    weights |= {"sy": y_scale, "zy": np.uint8(111), "b": bias}
    nodes = [node("QLinearConv", "x sx zx w sw zw sy zy b", "y", pads=[1, 2, 0, 1], strides=[2, 1], group=groups)]
    proto = model(nodes, specs({"x": x}), [value("y", (2, 8, 4, 8), 2)], weights)
    left = less(of(x), x_zero)
    conv = conv2d(left[1], w.astype(np.int32), (1, 2, 0, 1), (2, 1), groups=groups, dtype="int32")
    add = op("add", conv, bias.reshape(1, 8, 1, 1))
    factor = x_scale * w_scale / y_scale
    factor = factor.reshape(1, 8, 1, 1) if per_channel else factor
    offloaded = region(composite(*left, conv, add, *requantized(add, factor, 111, "uint8")))
    (y,) = run(offloaded, {"x": x}, **INT8)
    np.testing.assert_array_equal(y, reference(proto, {"x": x}))


# ------------------------------------------------------------ QDQ
def scales(rng: np.random.Generator, count: int, powers: bool) -> np.ndarray:
    exponents = rng.integers(-9, -6, count)
    return np.float32(2.0**exponents) if powers else np.float32(rng.random(count) * 0.01 + 0.002)


def qdq_dense(rng: np.random.Generator, powers: bool) -> tuple[onnx.ModelProto, Region, dict[str, np.ndarray]]:
    """Gemm (transposed weights, one scale a channel) + bias + residual, relu, to int8."""
    x, w = integers(rng, (9, 65), "uint8"), integers(rng, (11, 65), "int8")
    residual = integers(rng, (9, 11), "int8")
    bias = rng.integers(-2000, 2000, 11).astype(np.int32)
    w_scale, (x_scale, r_scale, y_scale) = scales(rng, 11, powers), scales(rng, 3, powers)
    b_scale, y_scale = x_scale * w_scale, np.float32(y_scale * 16)
    weights: dict[str, Any] = {"w": w, "b": bias, "sx": x_scale, "sw": w_scale, "sb": b_scale, "sr": r_scale}
    weights |= {"sy": y_scale, "zx": np.uint8(131), "zr": np.int8(-7), "zy": np.int8(5)}
    weights |= {"zw": np.zeros(11, np.int8), "zb": np.zeros(11, np.int32)}
    nodes = [
        node("DequantizeLinear", "x sx zx", "xd"), node("DequantizeLinear", "w sw zw", "wd", axis=0),
        node("DequantizeLinear", "b sb zb", "bd", axis=0), node("DequantizeLinear", "r sr zr", "rd"),
        node("Gemm", "xd wd bd", "g", transB=1), node("Add", "g rd", "a"), node("Relu", "a", "h"),
        node("QuantizeLinear", "h sy zy", "y"),
    ]  # fmt: skip
    inputs = {"x": x, "r": residual}
    proto = model(nodes, specs(inputs), [value("y", (9, 11), 3)], weights)
    xd, wd = dequantize(of(x), x_scale, 131), dequantize(w, w_scale, np.zeros(11), axis=0)
    turned, bd = permuted(wd, 1, 0), dequantize(bias, b_scale, np.zeros(11), axis=0)
    rd, product = dequantize(of(residual, "r"), r_scale, -7), matmul(xd, turned)
    first = op("add", product, bd)
    second = op("add", first, rd)
    relu = op("nn.relu", second)
    layer = composite(xd, wd, turned, bd, rd, product, first, second, relu, quantize(relu, y_scale, 5))
    return proto, region(layer), inputs


def qdq_conv(rng: np.random.Generator, powers: bool) -> tuple[onnx.ModelProto, Region, dict[str, np.ndarray]]:
    """Conv of groups with bias and padding, to uint8."""
    x, w = integers(rng, (2, 4, 9, 8), "int8"), integers(rng, (6, 2, 3, 3), "int8")
    bias = rng.integers(-2000, 2000, 6).astype(np.int32)
    w_scale, (x_scale, y_scale) = scales(rng, 6, powers), scales(rng, 2, powers)
    b_scale, y_scale = x_scale * w_scale, np.float32(y_scale * 4)
    weights: dict[str, Any] = {"w": w, "b": bias, "sx": x_scale, "sw": w_scale, "sb": b_scale, "sy": y_scale}
    weights |= {"zx": np.int8(-128), "zy": np.uint8(0), "zw": np.zeros(6, np.int8), "zb": np.zeros(6, np.int32)}
    nodes = [
        node("DequantizeLinear", "x sx zx", "xd"), node("DequantizeLinear", "w sw zw", "wd", axis=0),
        node("DequantizeLinear", "b sb zb", "bd", axis=0),
        node("Conv", "xd wd bd", "c", pads=[1, 1, 1, 1], group=2), node("QuantizeLinear", "c sy zy", "y"),
    ]  # fmt: skip
    proto = model(nodes, specs({"x": x}), [value("y", (2, 6, 9, 8), 2)], weights)
    xd, wd = dequantize(of(x), x_scale, -128), dequantize(w, w_scale, np.zeros(6), axis=0)
    bd = dequantize(bias, b_scale, np.zeros(6), axis=0)
    wide = reshaped(bd, 1, 6, 1, 1)
    conv = conv2d(xd, wd, (1, 1, 1, 1), groups=2)
    add = op("add", conv, wide)
    return proto, region(composite(xd, wd, bd, wide, conv, add, quantize(add, y_scale, 0, "uint8"))), {"x": x}


@pytest.mark.parametrize("make", [qdq_dense, qdq_conv])
@pytest.mark.parametrize("seed", range(3))
def test_qdq_with_scales_of_two(make: Any, seed: int) -> None:
    proto, layer, inputs = make(np.random.default_rng(seed), True)
    (y,) = run(layer, inputs, **INT8)
    np.testing.assert_array_equal(y, reference(proto, inputs))
    assert len(np.unique(y)) > 20


@pytest.mark.parametrize("make", [qdq_dense, qdq_conv])
def test_qdq_with_any_scales(make: Any) -> None:
    """Floats are rounded in another order: of 20 models no value is off by more than one step, of 1,000 at most two."""
    off = total = 0
    for seed in range(20):
        proto, layer, inputs = make(np.random.default_rng(seed), False)
        difference = np.abs(run(layer, inputs, **INT8)[0].astype(int) - reference(proto, inputs).astype(int))
        assert difference.max() <= 1
        off, total = off + int((difference > 0).sum()), total + difference.size
    assert off <= 0.002 * total


def test_float32_out_and_a_bias_of_another_scale() -> None:
    rng = np.random.default_rng(4)
    x, w, bias = integers(rng, (5, 33), "int8"), integers(rng, (33, 7), "int8"), np.arange(7, dtype=np.int32)
    xd, wd, bd = dequantize(of(x), 0.25, 3), dequantize(w, 0.5), dequantize(bias, 0.75)
    product = matmul(xd, wd)
    add = op("add", product, bd)
    (y,) = run(region(composite(xd, wd, bd, product, add, op("nn.gelu", add))), {"x": x}, **INT8)
    expected = gelu((x.astype(float) - 3) @ w * 0.125 + bias * 0.75)
    assert np.abs(y - expected).max() <= 1e-6 * np.abs(expected).max()


def test_quantized_layers_in_a_row() -> None:
    """int8 between two layers stays on the accelerator's side."""
    rng = np.random.default_rng(5)
    x, w1, w2 = integers(rng, (6, 20), "int8"), integers(rng, (20, 20), "int8"), integers(rng, (20, 4), "int8")
    xd, wd = dequantize(of(x), 0.25, 3), dequantize(w1, 0.5)
    first = matmul(xd, wd)
    quantized = quantize(first, 32.0, -3)
    hd, vd = dequantize(quantized.result, 32.0, -3), dequantize(w2, 0.5)
    offloaded = region(composite(xd, wd, first, quantized), composite(hd, vd, matmul(hd, vd)))
    (y,) = run(offloaded, {"x": x}, **INT8)
    h = np.clip(np.rint((x.astype(float) - 3) @ w1 * 0.125 / 32) - 3, -128, 127)
    np.testing.assert_array_equal(y, (h + 3) * 32 @ w2 * 0.5)


# ------------------------------------------------------------ refusals
Q = regions.value("q", 4, 6, dtype="int8")
W = np.ones((6, 5), np.int8)


def test_what_no_integer_layer_can_do() -> None:
    x, w = dequantize(Q, 0.5, 3), dequantize(W, 0.5)
    computed = dequantize(regions.value("k", 6, 5, dtype="int8"), 0.5)
    assert "two computed tensors with zero points, q: int8[4, 6]" in refusal(x, computed, matmul(x, computed), **INT8)
    rows = dequantize(Q, [0.5] * 6, np.zeros(6), axis=1)
    assert "q: int8[4, 6] has a scale a channel" in refusal(rows, w, matmul(rows, w), **INT8)
    deep = dequantize(W, [0.5] * 6, np.zeros(6), axis=0)
    assert "a scale of shape [6, 1] is not one of the whole tensor" in refusal(x, deep, matmul(x, deep), **INT8)
    zeros = dequantize(Q, 0.5, np.arange(6), axis=1)
    assert "zero points of its rows or channels" in refusal(zeros, w, matmul(zeros, w), **INT8)
    scale = regions.value("s")
    runtime = op("dequantize", Q, scale, np.int8(0), shape=Q.shape, dtype="float32")
    assert "the scale s: float32[] is computed" in refusal(runtime, w, matmul(runtime, w), **INT8)
    block = op("dequantize", Q, np.ones((4, 2), np.float32), np.int8(0), shape=Q.shape, dtype="float32")
    assert "a scale of shape [4, 2]" in refusal(block, w, matmul(block, w), **INT8)


def test_what_no_integer_epilogue_can_do() -> None:
    wide = less(Q, 0)[:1]
    sums = matmul(wide[0], np.ones((6, 5), np.int32), "int32")
    head = [*wide, sums]
    assert "takes float32, and matmul" in refusal(*head, op("nn.gelu", sums), **INT8)
    real = op("astype", sums, shape=(4, 5), dtype="float32")
    last = quantize(real, 0.5, 0, "int8")
    assert "is quantized, which ends" in refusal(*head, real, last, op("nn.relu", last), **INT8)
    assert "quantizes to int16" in refusal(*head, real, quantize(real, 0.5, 0, "int16"), **INT8)
    zeros = op("quantize", real, np.float32(0.5), np.arange(5, dtype=np.int8), shape=(4, 5), dtype="int8", axis=1)
    assert "one zero point" in refusal(*head, real, zeros, **INT8)
    rows = op("quantize", real, np.ones(4, np.float32), np.int8(0), shape=(4, 5), dtype="int8", axis=0)
    assert "none of columns" in refusal(*head, real, rows, **INT8)
    assert "beyond -384 to 381" in refusal(*wide, matmul(wide[0], np.full((6, 5), 500, np.int32), "int32"), **INT8)
