"""Quantized operators: QDQ pairs, QLinear and integer products, dynamic quantization."""

import numpy as np

from .graph import F32, Graph, Value, maker, squared

#: A value that is off by a rounding may fall into the neighbouring step.
_ONE_STEP = 1.0


def _scale(g: Graph, bound: float) -> np.ndarray:
    """So that `bound` fits into 127 steps, no round number."""
    return np.asarray(max(bound, 1e-3) / g.any([101.0, 119.0, 127.0]), np.float32)


def _zero(g: Graph, dtype: str) -> np.ndarray:
    return np.asarray(g.any([0, 0, 3, 128]) if dtype == "uint8" else g.any([0, 0, -3, 5]), dtype)


def quantize(g: Graph, x: Value, scale: np.ndarray, zero: np.ndarray) -> Value:
    """QuantizeLinear; one step off where the value may be."""
    error = _ONE_STEP if x.error else 0.0
    return g.node("QuantizeLinear", [x, scale, zero], x.shape, dtype=zero.dtype.name, bound=255, error=error)


def dequantize(g: Graph, q: Value, scale: np.ndarray, zero: np.ndarray, bound: float) -> Value:
    """DequantizeLinear: a subtraction of integers and one multiplication."""
    error = q.error * float(scale) + 2.0**-24 * bound
    return g.node("DequantizeLinear", [q, scale, zero], q.shape, dtype="float32", bound=bound, error=error)


@maker(*F32, weight=3, nan=False, rows=True)
def fake_quantize(g: Graph, x: Value) -> Value:
    """There and back; what follows it is float arithmetic with values that lie on a grid."""
    dtype = g.any(["uint8", "int8"])
    scale, zero = _scale(g, x.bound), _zero(g, dtype)
    return dequantize(g, quantize(g, x, scale, zero), scale, zero, 3 * x.bound)


@maker(*F32, rank=(2, 4), weight=2, nan=False, rows=True)
def qdq_matmul(g: Graph, x: Value) -> Value:
    """QDQ, MatMul with a quantized weight, QDQ."""
    depth, columns = x.shape[-1], g.size(1, 17)
    scale, zero = _scale(g, x.bound), _zero(g, "uint8")
    q = dequantize(g, quantize(g, x, scale, zero), scale, zero, 3 * x.bound)
    weight, step = g.integers(-127, 127, depth, columns, dtype="int8"), np.asarray(0.01, np.float32)
    w = g.node("DequantizeLinear", [g.literal(weight), step, np.asarray(0, np.int8)], weight.shape, dtype="float32",
               bound=1.27, error=0.0)  # fmt: skip
    gain = min(1.27 * depth, 4 * 0.74 * depth**0.5)
    y = g.node("MatMul", [q, w], (*x.shape[:-1], columns), bound=gain * q.bound, gain=gain, terms=squared(depth))
    scale, zero = _scale(g, y.bound), _zero(g, "int8")
    return dequantize(g, quantize(g, y, scale, zero), scale, zero, 3 * y.bound)


@maker(*F32, rank=(4, 4), weight=2, nan=False, rows=True)
def qdq_conv(g: Graph, x: Value) -> Value:
    """QDQ, Conv with a weight quantized by channel, Relu, QDQ."""
    n, channels, height, width = x.shape
    filters, k = g.size(1, 17), g.any([1, 3])
    scale, zero = _scale(g, x.bound), _zero(g, "uint8")
    q = dequantize(g, quantize(g, x, scale, zero), scale, zero, 3 * x.bound)
    weight = g.integers(-127, 127, filters, channels, k, k, dtype="int8")
    steps = g.array(filters, low=0.5) / 300
    w = g.node("DequantizeLinear", [g.literal(weight), steps, np.zeros(filters, np.int8)], weight.shape,
               dtype="float32", bound=1.7, error=0.0, axis=0)  # fmt: skip
    depth = channels * k * k
    gain = min(1.7 * depth, 4 * depth**0.5)
    y = g.node("Conv", [q, w], (n, filters, height, width), bound=gain * q.bound, gain=gain, terms=squared(depth),
               kernel_shape=[k, k], pads=[k // 2] * 4)  # fmt: skip
    y = g.node("Relu", [y], y.shape, terms=0)
    scale, zero = _scale(g, y.bound), _zero(g, "uint8")
    return dequantize(g, quantize(g, y, scale, zero), scale, zero, 3 * y.bound)


@maker("uint8", "int8", rank=(2, 4), weight=6, nan=False)
def qlinear(g: Graph, x: Value) -> Value | None:
    """QLinearMatMul, or QLinearConv of an image: its result is the nearest of 256 steps, rounded in float32."""
    if x.error:
        return None
    scales = [np.asarray(s, np.float32) for s in (0.03, 0.02, 0.05)]
    zero_x, zero_y = _zero(g, x.dtype), _zero(g, x.dtype)
    if x.rank == 4:
        filters, channels = g.size(1, 12), x.shape[1]
        weight = g.integers(-100, 100, filters, channels, 3, 3, dtype="int8")
        inputs = [x, scales[0], zero_x, weight, scales[1], np.asarray(0, np.int8), scales[2], zero_y]
        if g.chance(0.5):
            inputs.append(g.integers(-900, 900, filters, dtype="int32"))
        return g.node("QLinearConv", inputs, (x.shape[0], filters, *x.shape[2:]), bound=255, error=_ONE_STEP,
                      pads=[1] * 4)  # fmt: skip
    depth, columns = x.shape[-1], g.size(1, 17)
    weight = g.integers(0, 100, depth, columns, dtype=x.dtype)
    inputs = [x, scales[0], zero_x, weight, scales[1], np.asarray(2, x.dtype), scales[2], zero_y]
    return g.node("QLinearMatMul", inputs, (*x.shape[:-1], columns), bound=255, error=_ONE_STEP)


@maker(*F32, rank=(2, 4), weight=3, exact=True, nan=False)
def quantized_layer(g: Graph, x: Value) -> Value | None:
    """QuantizeLinear, a quantized layer, DequantizeLinear."""
    scale, zero = _scale(g, x.bound), _zero(g, g.any(["uint8", "int8"]))
    y = qlinear(g, quantize(g, x, scale, zero))
    return y and dequantize(g, y, np.asarray(0.05, np.float32), np.asarray(0, y.dtype), 13.0)


@maker("uint8", "int8", rank=(2, 4), weight=4, nan=False)
def integer_product(g: Graph, x: Value) -> Value | None:
    """MatMulInteger or ConvInteger: int32, exact."""
    if x.error:
        return None
    zero = _zero(g, x.dtype)
    if x.rank == 4 and x.dtype == "uint8":
        filters, channels = g.size(1, 12), x.shape[1]
        weight = g.integers(0, 200, filters, channels, 3, 3, dtype="uint8")
        bound = 255.0 * 200 * channels * 9
        return g.node("ConvInteger", [x, weight, zero], (x.shape[0], filters, *x.shape[2:]), dtype="int32",
                      bound=bound, error=0.0, pads=[1] * 4)  # fmt: skip
    depth, columns = x.shape[-1], g.size(1, 17)
    weight = g.integers(-100, 100, depth, columns, dtype="int8")
    return g.node("MatMulInteger", [x, weight, zero], (*x.shape[:-1], columns), dtype="int32", bound=255e2 * depth,
                  error=0.0)  # fmt: skip


@maker(*F32, rank=(2, 3), weight=2, exact=True, nan=False)
def dynamic(g: Graph, x: Value) -> Value:
    """DynamicQuantizeLinear of a value without error; the scale stands among the values to choose from."""
    outputs = [Value("", x.shape, "uint8", 255), Value("", (), "float32", x.bound), Value("", (), "uint8", 255)]
    q, scale, zero = g.emit("DynamicQuantizeLinear", [x], outputs)
    depth, columns = x.shape[-1], g.size(1, 17)
    weight = g.integers(-100, 100, depth, columns, dtype="int8")
    bound = 255e2 * depth
    y = g.node("MatMulInteger", [q, weight, zero], (*x.shape[:-1], columns), dtype="int32", bound=bound, error=0.0)
    if bound > 2**24:
        return y
    y = g.node("Cast", [y], y.shape, dtype="float32", terms=0, to=1)
    grown = bound * 2 * x.bound / 255
    return g.node("Mul", [y, scale], y.shape, bound=grown, error=2.0**-22 * grown)
