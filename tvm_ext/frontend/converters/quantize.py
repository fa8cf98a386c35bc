"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, with blocks of scales, and of every integer and float8.

    quantize(x, s, z)     saturate(round(x / s) + z), halves to even
    dequantize(x, s, z)   (x - z) * s

What relax.quantize and relax.dequantize have, passes and back ends know, goes to them. Integers of 2 and 4 bits are
held in 8; the scales of a block of elements broadcast over it.
"""

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from tvm import relax, te, tirx

from ...core.graph.relax_graph import dtype_of, numpy_of, shape_of
from ..checks.refusal import Refusal
from ..reading.narrow import NARROW, computed
from .base import Attributes, as_dtype, constant, converts, emit, kernel, static_shape
from .casts import decoded, encoded

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


@converts("QuantizeLinear")
def quantize_linear(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """QuantizeLinear(x, scale, zero_point) to the dtype of `output_dtype`, that of the zero point, or uint8."""
    x, scale, zero = inputs[0], inputs[1], inputs[2]
    to = _dtype(attributes, "output_dtype") or ("uint8" if zero is None else dtype_of(zero))
    axis, block = _axis(x, attributes), int(attributes.get("block_size", 0))
    _check_parameters(x, scale, zero, axis, block)
    if dtype_of(x) != "float32":
        x = emit(relax.op.astype(x, "float32"))
    if to in _INTEGERS and not block:
        zero = constant(0, to) if zero is None else zero
        return relax.op.quantize(x, as_dtype(scale, "float32"), zero, axis=axis, out_dtype=to)
    step = as_dtype(scale, "float32")
    real = emit(x / spread(step, x, axis, block))
    offset = None if zero is None else spread(as_dtype(_wide(zero), "float32"), x, axis, block)
    if to.startswith("float8"):
        real = real if offset is None else emit(real + offset)
        return encoded(real, to, bool(attributes.get("saturate", 1)))
    if to not in NARROW and to not in _INTEGERS:
        raise Refusal(f"quantization to {to}")
    info = ml_dtypes.iinfo(to)
    rounded = emit(relax.op.round(real))
    shifted = rounded if offset is None else emit(rounded + offset)
    return relax.op.astype(relax.op.clip(shifted, int(info.min), int(info.max)), computed(to))


@converts("DequantizeLinear")
def dequantize_linear(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DequantizeLinear(x, scale, zero_point) to the dtype of `output_dtype`, or that of the scale."""
    x, scale, zero = inputs[0], inputs[1], inputs[2]
    stored, to = dtype_of(x), _dtype(attributes, "output_dtype") or dtype_of(scale)
    axis, block = _axis(x, attributes), int(attributes.get("block_size", 0))
    _check_parameters(x, scale, zero, axis, block)
    if stored in _INTEGERS and not block:
        zero = constant(0, stored) if zero is None else zero
        real = relax.op.dequantize(x, as_dtype(scale, "float32"), zero, axis=axis, out_dtype="float32")
        return real if to == "float32" else relax.op.astype(real, to)
    if stored not in _INTEGERS and not stored.startswith("float8"):
        raise Refusal(f"dequantization of {stored}")
    whole = "int32" if "int" in stored else "float32"
    wide = as_dtype(_wide(x), whole)
    if zero is not None:
        wide = emit(wide - spread(as_dtype(_wide(zero), whole), x, axis, block))
    real = as_dtype(wide, "float32") * spread(as_dtype(scale, "float32"), x, axis, block)
    return real if to == "float32" else relax.op.astype(real, to)


@converts("DynamicQuantizeLinear")
def dynamic_quantize_linear(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DynamicQuantizeLinear(x) -> uint8, scale, zero point; 0 is exact, and an x of nothing but 0 has scale 1."""
    x = inputs[0]
    low, high = (emit(relax.op.reshape(reduce(x), (1,))) for reduce in (relax.op.min, relax.op.max))
    both = emit(kernel(_range, low, high, name="quantization_range"))
    scale, point = (emit(relax.op.reshape(emit(relax.TupleGetItem(both, i)), ())) for i in range(2))
    return relax.Tuple([relax.op.quantize(x, scale, point, axis=0, out_dtype="uint8"), scale, point])


def _range(low: te.Tensor, high: te.Tensor) -> list[te.Tensor]:
    """Scale and zero point for 256 levels; in a kernel, where no pass makes a product of the division."""
    zero, levels = tirx.const(0, low.dtype), tirx.const(255, low.dtype)
    least, most = tirx.min(low(0), zero), tirx.max(high(0), zero)
    span = tirx.Select(most == least, tirx.const(1, low.dtype), (most - least) / levels)
    scale = te.compute((1,), lambda i: span, name="scale")
    start = te.compute((1,), lambda i: tirx.max(zero, tirx.min(levels, zero - least / scale(i))), name="start")
    return [scale, te.compute((1,), lambda i: tirx.round(start(i)).astype("uint8"), name="point")]


# ------------------------------------------------------------ parts
def _check_parameters(x: Any, scale: Any, zero: Any, axis: int, block: int) -> None:
    """Raises Refusal where a scale is 0, is of another shape than the zero point, or fits neither tensor nor axis."""
    own = static_shape(scale, "a scale")
    point = own if zero is None else static_shape(zero, "a zero point")
    if point != own and not math.prod(point) == math.prod(own) == 1:
        raise Refusal(f"a scale of shape {own} and a zero point of shape {point}")
    values = numpy_of(scale)
    if values is not None and not values.astype(np.float32).all():
        raise Refusal("a scale of 0")
    shape = static_shape(x, "what is quantized")
    if not block and math.prod(own) != 1 and own != shape[axis : axis + 1]:
        raise Refusal(f"a scale of shape {own} for axis {axis} of shape {shape}")
    if not block and len(own) > 1:
        raise Refusal(f"a scale of shape {own}, which is no vector")


def spread(parameter: Any, x: Any, axis: int, block: int) -> Any:
    """Scales or zero points as they broadcast over `x`: one, one for each index of an axis, or one a block of it."""
    shape = static_shape(x, "what is quantized")
    own = static_shape(parameter, "a scale or zero point")
    if math.prod(own) == 1:
        return emit(relax.op.reshape(parameter, ()))
    if not block:
        return emit(relax.op.reshape(parameter, [-1 if i == axis else 1 for i in range(len(shape))]))
    repeated = emit(relax.op.repeat(parameter, block, axis))
    if own[axis] * block == shape[axis]:
        return repeated
    return emit(relax.op.strided_slice(repeated, [axis], [0], [shape[axis]]))


def _axis(x: Any, attributes: Attributes) -> int:
    """The axis along which scales differ; of a vector its only one, whatever is stated."""
    rank = len(shape_of(x) or ())
    axis = int(attributes.get("axis", 1))
    if rank < 2:
        return 0
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def _dtype(attributes: Attributes, name: str) -> str:
    code = int(attributes.get(name, 0))
    return str(onnx.helper.tensor_dtype_to_np_dtype(code)) if code else ""


def _wide(x: Any) -> Any:
    """A float8 tensor in float32, anything else as it is."""
    return emit(decoded(x)) if dtype_of(x).startswith("float8") else x
