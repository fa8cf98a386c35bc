"""Converters of integer operators that TVM lacks: ConvInteger, QLinearConv and QLinearMatMul.

They follow the arithmetic of onnxruntime: int32 sums of what is left of a zero point, times one float32 factor, rounded
to the nearest (halves to even) and saturated.

    QLinearMatMul -> quantize(astype(matmul(a - za, b - zb), float32) * (sa * sb / sy), 1, zy)
"""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of, shape_of
from ..checks.refusal import Refusal
from .base import Attributes, as_dtype, constant, converts, emit, operands, static_shape, stock
from .images.pooling import explicit_pads
from .layout import pad

_ONE = ((), (1,))  # shapes of a single scale or zero point
_LINE = 3  # dimensions of a tensor N C W
#: Attributes with a number for each dimension of an image.
_ALONG: tuple[str, ...] = ("strides", "dilations", "kernel_shape")


@converts("ConvInteger")
def conv_integer(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ConvInteger(x, w, zx, zw) -> conv of int32; where zx is computed, of bytes, which instructions multiply.

    conv(x - zx, w) -> conv(x padded with zx, w) - zx * sum(w)
    """
    x, w, zero, w_zero = (inputs[i] for i in range(4))
    known = isinstance(w, GenericConst) and (w_zero is None or isinstance(w_zero, GenericConst))
    computed = isinstance(zero, relax.Var) and shape_of(zero) in _ONE and int(x.ty.ndim) in (3, 4)
    attributes = _padded(x, w, attributes)
    if not (known and computed):
        return _narrow(_sums(x, w, (zero, w_zero), None, attributes, opset), x)
    taps = w.value.numpy().astype(np.int32)
    if w_zero is not None:
        taps -= w_zero.value.numpy().astype(np.int32).reshape(-1, *[1] * (taps.ndim - 1))
    totals = constant(taps.sum(tuple(range(1, taps.ndim)), dtype=np.int32).reshape(-1, *[1] * (taps.ndim - 2)))
    rank = len(static_shape(x, "the input of ConvInteger")) - 2
    pads = [int(p) for p in attributes.get("pads", [0] * 2 * rank)]
    padded = x
    if any(pads):
        around = constant(np.array([0, 0, *pads[:rank], 0, 0, *pads[rank:]], np.int64))
        padded = emit(pad(operands([x, around, zero]), {}, opset))
    plain = {name: value for name, value in attributes.items() if name != "pads"}
    sums = _narrow(_sums(padded, w, (None, w_zero), None, plain, opset), x)
    return sums - emit(totals * as_dtype(zero, "int32"))


def _padded(x: Any, w: Any, attributes: Attributes) -> Attributes:
    """The attributes of a convolution, with `pads` for `auto_pad`, which stock TVM makes a kernel of its own."""
    return explicit_pads(x, {**attributes, "kernel_shape": list(static_shape(w, "the weight")[2:])})


def _sums(x: Any, w: Any, zeros: Any, bias: Any, attributes: Attributes, opset: int) -> Any:
    """conv(x - zx, w - zw) + bias of int32; of one dimension as one of height 1 in two, for which there are recipes.

    Args:
        zeros: zx and zw.
    """
    if int(x.ty.ndim) == _LINE:
        x, w = (_heightened(operand) for operand in (x, w))
        before, after = attributes.get("pads") or [0, 0]
        wide = {name: [1, *attributes[name]] for name in _ALONG if name in attributes}
        attributes = {**attributes, **wide, "pads": [0, before, 0, after]}
    weight = less_zero_point(w, _of_filters(zeros[1], w))
    return emit(stock("Conv", [less_zero_point(x, zeros[0]), weight, bias], attributes, opset))


def _heightened(x: Any) -> Any:
    """N C W with a height: N C 1 W."""
    return constant(x.value.numpy()[:, :, None]) if isinstance(x, GenericConst) else emit(relax.op.expand_dims(x, 2))


def _narrow(y: Any, x: Any) -> Any:
    """What a convolution of x made, without the height that x has not."""
    return emit(relax.op.squeeze(emit(y), [2])) if int(x.ty.ndim) == _LINE else y


@converts("QLinearConv")
def qlinear_conv(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearConv(x, sx, zx, w, sw, zw, sy, zy, bias): the weight's scale and zero point may be one a filter."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (inputs[i] for i in range(9))
    sums = _sums(x, w, (x_zero, w_zero), bias, _padded(x, w, attributes), opset)
    factor = emit(x_scale * w_scale / y_scale)
    if shape_of(factor) not in _ONE:
        factor = relax.op.reshape(factor, [1, -1] + [1] * (int(sums.ty.ndim) - 2))
    return _narrow(requantized(sums, factor, y_zero), x)


@converts("QLinearMatMul")
def qlinear_matmul(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QLinearMatMul(a, sa, za, b, sb, zb, sy, zy): b's scale and zero point may be one a column, a's one a row."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (inputs[i] for i in range(8))
    left, right = less_zero_point(a, _of_rows(a_zero)), less_zero_point(b, b_zero)
    sums = emit(relax.op.matmul(left, right, out_dtype="int32"))
    factor = _of_rows(a_scale) * b_scale / y_scale
    return requantized(sums, factor, y_zero)


def less_zero_point(x: Any, zero_point: Any) -> Any:
    """x - zero point in int32.

    Raises:
        Refusal: x is a float of 8 bits.
    """
    if "float" in dtype_of(x):
        raise Refusal(f"{dtype_of(x)}: sums are of integers")
    wide = emit(relax.op.astype(x, "int32"))
    return wide if zero_point is None else emit(wide - relax.op.astype(zero_point, "int32"))


def requantized(sums: Any, factor: Any, zero_point: Any) -> Any:
    """Sums of int32 times a factor, rounded and saturated to the zero point's dtype."""
    real = relax.op.astype(sums, "float32") * relax.op.astype(factor, "float32")
    zero = zero_point if shape_of(zero_point) == () else relax.op.reshape(zero_point, ())
    return relax.op.quantize(real, relax.const(1.0, "float32"), zero, axis=0, out_dtype=dtype_of(zero_point))


def _of_filters(parameter: Any, w: Any) -> Any:
    """One value, or one a filter, as it broadcasts to weights OI.."""
    if parameter is None or shape_of(parameter) in _ONE:
        return parameter
    return relax.op.reshape(parameter, [-1] + [1] * (int(w.ty.ndim) - 1))


def _of_rows(parameter: Any) -> Any:
    """One value, or one a row [m], as it broadcasts to [m, k]."""
    shape = shape_of(parameter)
    return relax.op.expand_dims(parameter, -1) if shape is not None and len(shape) == 1 and shape != (1,) else parameter
