"""Quantized operators that onnxruntime adds to ONNX (domain com.microsoft), as its quantization tools write them.

    QLinearMul(a, sa, za, b, sb, zb, sy, zy)   ->   round((a - za) * (b - zb) * (sa * sb / sy) + zy)

Products of integers are summed in int32, as by QLinearMatMul; everything else is computed in float32 between integers,
in the order of onnxruntime's kernels for AVX2, so that ties fall to the same side.
"""

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from ..base import MICROSOFT, Attributes, Converter, converts, emit, scalar, static_shape, stock
from ..images.pooling import with_first_window, with_whole_windows
from ..normalization import joined_softmax
from ..quantize import dequantize_linear, dynamic_quantize_linear, quantize_linear
from ..quantized import less_zero_point, qlinear_conv, requantized
from .standard import channels_first, channels_last, without


def _real(*parts: Any) -> Any:
    """(x - zero point) * scale, of one scale."""
    return emit(dequantize_linear([parts[0], parts[1], parts[2]], {}, 0))


def _whole(x: Any, scale: Any, zero: Any) -> Any:
    return quantize_linear([x, scale, zero], {}, 0)


def _nearest(real: Any, zero: Any) -> Any:
    """A number in steps, zero point included, to the nearest stored value, halves to even."""
    return quantize_linear([real, relax.const(1.0, "float32"), scalar(0, zero)], {}, 0)


def _shifted(x: Any, scale: Any, zero: Any) -> Any:
    """round(x / scale + zero point): some of onnxruntime's kernels round behind the shift, not before it."""
    return _nearest(emit(x / scale + _float(zero)), zero)


def _float(x: Any) -> Any:
    return emit(relax.op.astype(x, "float32"))


def _operands(inputs: Any) -> tuple[Any, ...]:
    """(a, sa, za, b, sb, zb, sy, zy) with all zero points."""
    operands = [inputs[i] for i in range(8)]
    return tuple(scalar(0, operands[0]) if k in (2, 5, 7) and x is None else x for k, x in enumerate(operands))


@converts("QLinearAdd", MICROSOFT)
def add(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearAdd -> round(a ra + (b rb + (zy - (ra za + rb zb)))) with ra = sa / sy and rb = sb / sy."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = _operands(inputs)
    left, right = (emit(scale / y_scale) for scale in (a_scale, b_scale))
    shifts = [emit(r * _float(zero)) for r, zero in ((left, a_zero), (right, b_zero))]
    fixed = emit(_float(y_zero) - relax.op.add(*shifts))
    rest = emit(_float(b) * right + fixed)
    return _nearest(emit(_float(a) * left + rest), y_zero)


@converts("QLinearMul", MICROSOFT)
def multiply(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearMul -> round((a - za) (b - zb) r + zy) with r = sa sb / sy; the product of two differences is exact."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = _operands(inputs)
    left, right = (emit(_float(x) - _float(zero)) for x, zero in ((a, a_zero), (b, b_zero)))
    factor = emit(a_scale * b_scale / y_scale)
    real = emit(left * right * factor)
    return _nearest(emit(real + _float(y_zero)), y_zero)


@converts("QLinearGlobalAveragePool", MICROSOFT)
def global_average_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearGlobalAveragePool -> quantize(sum(x - zx) r, 1, zy), r = sx / (sy n); sums are exact up to n = 65,000."""
    x, x_scale, y_scale = inputs[0], inputs[1], inputs[3]
    x_zero, y_zero = (scalar(0, x) if inputs[k] is None else inputs[k] for k in (2, 4))
    shape = static_shape(x, "what is pooled")
    first = 1 if attributes.get("channels_last", 0) else 2
    axes = list(range(first, first + len(shape) - 2))
    steps = emit(relax.op.sum(_real(x, relax.const(1.0, "float32"), x_zero), axes, keepdims=True))
    pixels = relax.const(float(math.prod(shape[i] for i in axes)), "float32")
    factor = emit(x_scale / (y_scale * pixels))
    return _whole(emit(steps * factor), relax.const(1.0, "float32"), y_zero)


def _of_one(
    what: str, compute: Callable[[Any, Attributes], Any], quantize: Callable[[Any, Any, Any], Any]
) -> Converter:
    """Operators of (x, scale, zero point, scale of y, zero point of y)."""

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        x = _real(inputs[0], inputs[1], inputs[2])
        zero = inputs[4] if inputs[4] is not None else scalar(0, inputs[0])
        return quantize(emit(compute(x, attributes)), inputs[3], zero)

    converter.__doc__ = f"{what} of a dequantized tensor, quantized again."
    return converter


def _average_pool(x: Any, attributes: Attributes) -> Any:
    last, plain = attributes.get("channels_last", 0), without(attributes, "channels_last")
    x = channels_first(x) if last else x
    plain = with_first_window(x, plain)
    plain = with_whole_windows(x, plain) if plain.get("ceil_mode") and plain.get("count_include_pad") else plain
    y = emit(stock("AveragePool", [x], plain, 13))
    return channels_last(y) if last else y


def _leaky_relu(x: Any, attributes: Attributes) -> Any:
    return relax.op.nn.leakyrelu(x, float(attributes.get("alpha", 0.01)))


def _softmax(x: Any, attributes: Attributes) -> Any:
    """Over one axis; as before opset 13 over all dimensions from it on, where `opset` says so."""
    softmax = relax.op.nn.softmax if int(attributes.get("opset", 13)) >= 13 else joined_softmax
    return softmax(x, int(attributes.get("axis", -1)))


@converts("QLinearConcat", MICROSOFT)
def concat(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearConcat(sy, zy, x1, s1, z1, x2, s2, z2, ...): all in the scale of y."""
    operands = list(inputs)
    parts = [_real(*operands[i : i + 3]) for i in range(2, len(operands), 3)]
    return _whole(emit(relax.op.concat(parts, int(attributes["axis"]))), operands[0], operands[1])


@converts("QLinearWhere", MICROSOFT)
def where(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearWhere(condition, x, sx, zx, y, sy, zy, sz, zz): both in the scale of z, then one of them."""
    either = [emit(_whole(_real(*inputs[i : i + 3]), inputs[7], inputs[8])) for i in (1, 4)]
    return relax.op.where(inputs[0], *either)


def _mean(x: Any, attributes: Attributes) -> Any:
    axes = [int(axis) for axis in attributes.get("axes", ())] or None
    return relax.op.mean(x, axes, bool(attributes.get("keepdims", 1)))


@converts("QLinearConv", MICROSOFT)
def convolution(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearConv of ONNX; with `channels_last` of a tensor whose channels are last."""
    attributes, last = without(attributes, "channels_last"), attributes.get("channels_last", 0)
    if not last:
        return qlinear_conv(inputs, attributes, opset)
    operands = [channels_first(inputs[0]), *(inputs[i] for i in range(1, 9))]
    return channels_last(emit(qlinear_conv(operands, attributes, opset)))


@converts("QGemm", MICROSOFT)
def gemm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QGemm(a, sa, za, b, sb, zb, c, sy, zy): c is int32 in the scale sa * sb; without sy the result is float32."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (inputs[i] for i in range(9))
    sides = ((a, attributes.get("transA", 0)), (b, attributes.get("transB", 0)))
    a, b = (emit(relax.op.permute_dims(x)) if turned else x for x, turned in sides)
    left, right = less_zero_point(a, a_zero), less_zero_point(b, b_zero)
    sums = emit(relax.op.matmul(left, right, out_dtype="int32"))
    sums = sums if c is None else emit(sums + c)
    if (alpha := float(attributes.get("alpha", 1.0))) != 1.0:
        a_scale = emit(a_scale * scalar(alpha, a_scale))
    factor = emit(a_scale * b_scale)
    if y_scale is None:
        return relax.op.astype(sums, "float32") * factor
    return requantized(sums, emit(factor / y_scale), y_zero)


@converts("MatMulIntegerToFloat", MICROSOFT)
def matmul_to_float(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MatMulIntegerToFloat(a, b, sa, sb, za, zb, bias) -> (a - za) (b - zb) * sa * sb + bias."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (inputs[i] for i in range(7))
    sums = emit(relax.op.matmul(less_zero_point(a, a_zero), less_zero_point(b, b_zero), out_dtype="int32"))
    real = emit(relax.op.astype(sums, "float32") * (a_scale * b_scale))
    return real if bias is None else real + bias


@converts("DynamicQuantizeMatMul", MICROSOFT)
def dynamic_matmul(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DynamicQuantizeMatMul(x, b, sb, zb, bias): x is quantized by its own range."""
    b, b_scale, b_zero, bias = (inputs[i] for i in range(1, 5))
    x, scale, zero = (emit(part) for part in dynamic_quantize_linear([inputs[0]], {}, 11).fields)
    return matmul_to_float([x, b, scale, b_scale, zero, b_zero, bias], attributes, opset)


converts("DequantizeLinear", MICROSOFT)(dequantize_linear)
converts("QLinearAveragePool", MICROSOFT)(_of_one("AveragePool", _average_pool, _shifted))
converts("QLinearLeakyRelu", MICROSOFT)(_of_one("LeakyRelu", _leaky_relu, _whole))
converts("QLinearReduceMean", MICROSOFT)(_of_one("ReduceMean", _mean, _whole))
converts("QLinearSigmoid", MICROSOFT)(_of_one("Sigmoid", lambda x, attributes: relax.op.sigmoid(x), _whole))
converts("QLinearSoftmax", MICROSOFT)(_of_one("Softmax", _softmax, _whole))
converts("QuantizeLinear", MICROSOFT)(quantize_linear)
