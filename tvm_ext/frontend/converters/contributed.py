"""Quantized operators that onnxruntime adds to ONNX (domain com.microsoft), as its quantization tools write them.

    QLinearAdd(a, sa, za, b, sb, zb, sy, zy)   ->   quantize((a - za) * sa + (b - zb) * sb, sy, zy)

Products of integers are summed in int32, as by QLinearMatMul; everything else is computed in float32 between integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from ...core.relax_graph import dtype_of
from .base import Attributes, Converter, emit, scalar, static_shape, stock
from .quantize import dequantize_linear, dynamic_quantize_linear, limits, quantize_linear
from .quantized import less_zero_point, requantized


def _real(*parts: Any) -> Any:
    """(x - zero point) * scale, of one scale."""
    return emit(dequantize_linear([parts[0], parts[1], parts[2]], {}, 0))


def _whole(x: Any, scale: Any, zero: Any) -> Any:
    return quantize_linear([x, scale, zero], {}, 0)


def _shifted(x: Any, scale: Any, zero: Any) -> Any:
    """round(x / scale + zero point): some of onnxruntime's kernels round behind the shift, not before it."""
    low, high = limits(dtype_of(zero))
    real = emit(relax.op.add(relax.op.divide(x, scale), relax.op.astype(zero, "float32")))
    return relax.op.astype(relax.op.clip(relax.op.round(real), low, high), dtype_of(zero))


def _of_two(combine: Callable[[Any, Any], Any]) -> Converter:
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        a, b = (_real(*(inputs[i + k] for k in range(3))) for i in (0, 3))
        zero = inputs[7] if inputs[7] is not None else scalar(0, inputs[0])
        return _shifted(emit(combine(a, b)), inputs[6], zero)

    return converter


def _of_one(compute: Callable[[Any, Attributes], Any], quantize: Callable[[Any, Any, Any], Any]) -> Converter:
    """Operators of (x, scale, zero point, scale of y, zero point of y)."""

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        x = _real(inputs[0], inputs[1], inputs[2])
        zero = inputs[4] if inputs[4] is not None else scalar(0, inputs[0])
        return quantize(emit(compute(x, attributes)), inputs[3], zero)

    return converter


def _pooled(op_type: str) -> Callable[[Any, Attributes], Any]:
    def compute(x: Any, attributes: Attributes) -> Any:
        last = bool(attributes.get("channels_last", 0))
        rank = len(static_shape(x, "what is pooled"))
        given = {name: value for name, value in attributes.items() if name != "channels_last"}
        if last:
            x = emit(relax.op.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))
        y = emit(stock(op_type, [x], given, 13))
        return relax.op.permute_dims(y, [0, *range(2, rank), 1]) if last else y

    return compute


def _leaky_relu(x: Any, attributes: Attributes) -> Any:
    return relax.op.nn.leakyrelu(x, float(attributes.get("alpha", 0.01)))


def _softmax(x: Any, attributes: Attributes) -> Any:
    """Over one axis; as before opset 13 over all dimensions from it on, where `opset` says so."""
    axis, shape = int(attributes.get("axis", -1)), static_shape(x, "the input of QLinearSoftmax")
    if int(attributes.get("opset", 13)) >= 13 or axis in (-1, len(shape) - 1):
        return relax.op.nn.softmax(x, axis)
    rows = emit(relax.op.flatten(x) if axis == 0 else relax.op.reshape(x, [*shape[: axis % len(shape)], -1]))
    return relax.op.reshape(relax.op.nn.softmax(rows, -1), shape)


def concat(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearConcat(sy, zy, x1, s1, z1, x2, s2, z2, ...): all in the scale of y."""
    given = list(inputs)
    parts = [_real(*given[i : i + 3]) for i in range(2, len(given), 3)]
    return _whole(emit(relax.op.concat(parts, int(attributes["axis"]))), given[0], given[1])


def gemm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QGemm(a, sa, za, b, sb, zb, c, sy, zy): c is int32 in the scale sa * sb; without sy the result is float32."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (inputs[i] for i in range(9))
    a, b = (
        emit(relax.op.permute_dims(x)) if attributes.get(name, 0) else x for x, name in ((a, "transA"), (b, "transB"))
    )
    left, right = less_zero_point(a, a_zero), less_zero_point(b, b_zero)
    sums = emit(relax.op.matmul(left, right, out_dtype="int32"))
    sums = sums if c is None else emit(relax.op.add(sums, c))
    factor = emit(relax.op.multiply(a_scale, b_scale))
    if (alpha := float(attributes.get("alpha", 1.0))) != 1.0:
        factor = emit(relax.op.multiply(factor, scalar(alpha, factor)))
    if y_scale is None:
        return relax.op.multiply(relax.op.astype(sums, "float32"), factor)
    return requantized(sums, emit(relax.op.divide(factor, y_scale)), y_zero)


def matmul_to_float(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MatMulIntegerToFloat(a, b, sa, sb, za, zb, bias) -> (a - za) (b - zb) * sa * sb + bias."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (inputs[i] for i in range(7))
    sums = emit(relax.op.matmul(less_zero_point(a, a_zero), less_zero_point(b, b_zero), out_dtype="int32"))
    real = emit(relax.op.multiply(relax.op.astype(sums, "float32"), relax.op.multiply(a_scale, b_scale)))
    return real if bias is None else relax.op.add(real, bias)


def dynamic_matmul(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DynamicQuantizeMatMul(x, b, sb, zb, bias): x is quantized by its own range."""
    b, b_scale, b_zero, bias = (inputs[i] for i in range(1, 5))
    x, scale, zero = (emit(part) for part in dynamic_quantize_linear([inputs[0]], {}, 11).fields)
    return matmul_to_float([x, b, scale, b_scale, zero, b_zero, bias], attributes, opset)


#: Operator of the domain com.microsoft -> converter.
CONTRIBUTED: dict[str, Converter] = {
    "DynamicQuantizeMatMul": dynamic_matmul,
    "MatMulIntegerToFloat": matmul_to_float,
    "QGemm": gemm,
    "QLinearAdd": _of_two(relax.op.add),
    "QLinearAveragePool": _of_one(_pooled("AveragePool"), _shifted),
    "QLinearConcat": concat,
    "QLinearGlobalAveragePool": _of_one(_pooled("GlobalAveragePool"), _whole),
    "QLinearLeakyRelu": _of_one(_leaky_relu, _whole),
    "QLinearMul": _of_two(relax.op.multiply),
    "QLinearSigmoid": _of_one(lambda x, attributes: relax.op.sigmoid(x), _whole),
    "QLinearSoftmax": _of_one(_softmax, _whole),
}
