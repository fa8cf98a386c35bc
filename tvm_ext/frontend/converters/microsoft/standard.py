"""Operators of com.microsoft that ONNX has too: the same, or with channels last, or with other inputs.

NhwcConv(x, w, b)   ->   transpose(Conv(transpose(x), w, b)), whose transposes are another reading of the memory
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of, shape_of
from ...checks.refusal import Refusal
from ..base import (
    MICROSOFT,
    Attributes,
    Converter,
    as_dtype,
    constant,
    converts,
    emit,
    known,
    operands,
    scalar,
    static_shape,
    stock,
    text,
)
from ..images.pooling import with_first_window
from ..quantized import less_zero_point
from ..rows import own_converter

#: The version of ONNX whose operators are meant.
_OPSET = 13


def standard(op_type: str, inputs: Sequence[Any], attributes: Attributes, opset: int = _OPSET) -> Any:
    """What the converter of ONNX's operator of this name makes of a node."""
    if (own := own_converter(op_type)) is None:
        return stock(op_type, inputs, attributes, opset)
    return own(operands(inputs), attributes, opset)


#: Name of a fused activation -> its parameters.
_ACTIVATIONS = {
    "Clip": ("min", "max"), "Elu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",), "Relu": (),
    "Selu": ("alpha", "gamma"), "Sigmoid": (), "Softplus": (), "Softsign": (), "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}  # fmt: skip


def activated(y: Any, attributes: Attributes) -> Any:
    """What an operator with a fused activation makes of its result.

    Args:
        y: the result.
        attributes: `activation`, and its parameters, as `activation_params` or each by its name.

    Raises:
        Refusal: an activation that is not known here.
    """
    if not (name := text(attributes, "activation", "")):
        return y
    if name not in _ACTIVATIONS:
        raise Refusal(f"activation {name!r}; known are {', '.join(_ACTIVATIONS)}")
    parameters = dict(zip(_ACTIVATIONS[name], map(float, attributes.get("activation_params", ())), strict=False))
    stated = {part: attributes.get(f"activation_{part}") for part in _ACTIVATIONS[name]}
    parameters |= {part: float(value) for part, value in stated.items() if value is not None}
    if name == "Clip":
        return relax.op.clip(y, parameters["min"], parameters["max"])
    return standard(name, [y], parameters, 22)


def same(op_type: str, opset: int = _OPSET) -> Converter:
    """The converter of an operator that is ONNX's of this name."""

    def converter(inputs: Any, attributes: Attributes, _: int) -> Any:
        return standard(op_type, inputs, attributes, opset)

    converter.__doc__ = f"{op_type} of ONNX."
    return converter


@converts("GatherND", MICROSOFT)
def gather_nd(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GatherND of ONNX, with indices of 32 bits too."""
    return standard("GatherND", [inputs[0], as_dtype(inputs[1], "int64")], attributes, _OPSET)


# ------------------------------------------------------------ channels last
def channels_first(x: Any) -> Any:
    """(batch, ..., channels) -> (batch, channels, ...)."""
    rank = len(static_shape(x, "what has its channels last"))
    return emit(relax.op.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))


def channels_last(x: Any) -> Any:
    """(batch, channels, ...) -> (batch, ..., channels)."""
    rank = len(static_shape(x, "what has its channels first"))
    return emit(relax.op.permute_dims(x, [0, *range(2, rank), 1]))


def without(attributes: Attributes, *prefixes: str) -> Attributes:
    """Attributes but those that begin so."""
    return {name: value for name, value in attributes.items() if not name.startswith(prefixes)}


@converts("FusedConv", MICROSOFT)
def fused_conv(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """FusedConv(x, w, b, z): a convolution with a sum and an activation behind it."""
    y = emit(standard("Conv", [inputs[0], inputs[1], inputs[2]], without(attributes, "activation"), 11))
    if inputs[3] is not None:
        y = emit(y + inputs[3])
    return activated(y, attributes)


@converts("NhwcConv NhwcFusedConv", MICROSOFT)
def nhwc_conv(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """NhwcConv and NhwcFusedConv: FusedConv of tensors with channels last; the weight is ONNX's."""
    rest = None if inputs[3] is None else channels_first(inputs[3])
    operands = [channels_first(inputs[0]), inputs[1], inputs[2], rest]
    return channels_last(emit(fused_conv(operands, attributes, opset)))


@converts("NhwcMaxPool", MICROSOFT)
def nhwc_max_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """NhwcMaxPool: MaxPool of a tensor with channels last."""
    x = channels_first(inputs[0])
    return channels_last(emit(standard("MaxPool", [x], with_first_window(x, attributes))))


@converts("ConvTransposeWithDynamicPads", MICROSOFT)
def conv_transpose(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ConvTransposeWithDynamicPads(x, w, pads, b): ConvTranspose with pads that must be known."""
    pads = attributes.get("pads") if inputs[2] is None else [int(p) for p in known(inputs[2], "Pads").reshape(-1)]
    padded = attributes if pads is None else {**attributes, "pads": pads}
    return standard("ConvTranspose", [inputs[0], inputs[1], inputs[3]], padded)


# ------------------------------------------------------------ movement
@converts("ExpandDims", MICROSOFT)
def expand_dims(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ExpandDims(x, axis): a dimension of 1 at an axis that must be known."""
    return relax.op.expand_dims(inputs[0], int(known(inputs[1], "axis").reshape(-1)[0]))


@converts("UnfoldTensor", MICROSOFT)
def unfold(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """UnfoldTensor: slices of `size` elements of a dimension, `step` apart, in a dimension behind all others."""
    shape = static_shape(inputs[0], "what is unfolded")
    axis, size = int(attributes.get("dim", -1)) % len(shape), int(attributes["size"])
    starts = np.arange(0, shape[axis] - size + 1, int(attributes.get("step", 1)))
    if not len(starts):
        raise Refusal(f"slices of {size} elements of a dimension of {shape[axis]}")
    places = constant(starts[:, None] + np.arange(size))
    picked = emit(relax.op.take(inputs[0], places, axis, mode="wrap"))
    rest = [i for i in range(len(shape) + 1) if i != axis + 1]
    return relax.op.permute_dims(picked, [*rest, axis + 1])


@converts("Range", MICROSOFT)
def numbers(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Range(start, limit, delta) of ONNX; delta is 1 where it is left out."""
    delta = scalar(1, inputs[0]) if inputs[2] is None else inputs[2]
    return standard("Range", [inputs[0], inputs[1], delta], attributes)


@converts("Pad", MICROSOFT)
def pad(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Pad of ONNX, whose pads may be a matrix of one row and whose value a vector of one element."""
    pads, value = constant(known(inputs[1], "pads").reshape(-1)), inputs[2]
    value = value if value is None or shape_of(value) == () else emit(relax.op.reshape(value, ()))
    return standard("Pad", [inputs[0], pads, value], attributes, 18)


@converts("TorchEmbedding", MICROSOFT)
def embedding(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TorchEmbedding(weight, indices): rows of the weight."""
    return standard("Gather", [inputs[0], inputs[1]], {"axis": 0})


# ------------------------------------------------------------ integers
@converts("MulInteger", MICROSOFT)
def multiply_integers(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MulInteger(a, za, b, zb) -> (a - za) * (b - zb) in int32."""
    return less_zero_point(inputs[0], inputs[1]) * less_zero_point(inputs[2], inputs[3])


@converts("ReduceSumInteger", MICROSOFT)
def sum_integers(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ReduceSumInteger(x): the sum over axes in 32 bits."""
    wide = "uint32" if dtype_of(inputs[0]).startswith("u") else "int32"
    axes = [int(axis) for axis in attributes.get("axes", ())] or None
    return relax.op.sum(relax.op.astype(inputs[0], wide), axes, bool(attributes.get("keepdims", 1)))


@converts("MatMulInteger16", MICROSOFT)
def matmul_integers(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MatMulInteger16(a, b): a product of integers of 16 bits, summed in 32."""
    unsigned = all(dtype_of(x).startswith("u") for x in inputs[:2])
    wide = "uint32" if unsigned else "int32"
    left, right = (emit(relax.op.astype(x, wide)) for x in inputs[:2])
    return relax.op.matmul(left, right, out_dtype=wide)


converts("GridSample", MICROSOFT)(same("GridSample", 16))
converts("Trilu", MICROSOFT)(same("Trilu", 14))
