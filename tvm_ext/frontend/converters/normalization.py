"""Normalizations over axes: layer, group and batch norm, mean and variance, Lp norm, softmax, hardmax.

A variance is the mean of squared differences from the mean: E[x^2] - E[x]^2 has no digit left where the mean is much
larger than the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from ...core.relax_graph import dtype_of, shape_of
from ..refusal import Refusal
from .base import Attributes, Converter, constant, emit, outputs_of, scalar, static_shape, stock
from .reductions import place_of_extreme


def layer_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LayerNormalization -> relax.nn.layer_norm, with mean and inverse deviation where they are read.

    Stock TVM gives zeros for these two.
    """
    x, scale, bias = inputs[0], inputs[1], inputs[2]
    rank, epsilon = int(x.ty.ndim), float(attributes.get("epsilon", 1e-5))
    axes = list(range(int(attributes.get("axis", -1)) % rank, rank))
    shape = [x.ty.shape[a] for a in axes]
    scale = _broadcast(scale, shape)
    bias = relax.op.zeros(shape, x.ty.dtype) if bias is None else _broadcast(bias, shape)
    count = outputs_of(attributes)
    if dtype_of(x) != "float64":
        result = relax.op.nn.layer_norm(x, scale, bias, axes, epsilon)
        if count == 1:
            return result
    mean, inverse = (emit(part) for part in _moments(x, axes, epsilon))
    if dtype_of(x) == "float64":  # of which TVM has none
        result = relax.op.add(relax.op.multiply(_normal(x, mean, inverse), scale), bias)
    if int(attributes.get("stash_type", 1)) == 1:
        mean, inverse = (relax.op.astype(part, "float32") for part in (mean, inverse))
    return relax.Tuple([result, mean, inverse][:count]) if count > 1 else result


def _moments(x: Any, axes: list[int], epsilon: float) -> tuple[Any, Any]:
    """The mean, and the inverse of the standard deviation."""
    variance = relax.op.variance(x, axes, keepdims=True)
    return relax.op.mean(x, axes, keepdims=True), relax.op.rsqrt(relax.op.add(variance, scalar(epsilon, x)))


def _normal(x: Any, mean: Any, inverse: Any) -> Any:
    return relax.op.multiply(relax.op.subtract(x, mean), inverse)


def group_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GroupNormalization -> the groups of a batch as rows of a layer norm; scale and bias are the channels', or, before
    opset 21, the groups'. Computed in float32 at least, its default stash type."""
    x, dtype, groups = inputs[0], dtype_of(inputs[0]), int(attributes["num_groups"])
    shape = static_shape(x, "the input of GroupNormalization")
    if groups < 1 or shape[1] % groups:
        raise Refusal(f"num_groups={groups} does not divide {shape[1]} channels")
    if int(attributes.get("stash_type", 1)) != 1:
        raise Refusal(f"stash_type={attributes['stash_type']}: 1 (float32) is needed")
    x = x if dtype == "float64" else emit(relax.op.astype(x, "float32"))
    normal = _normal_groups(x, groups, float(attributes.get("epsilon", 1e-5)))
    scale, bias = (_of_channels(inputs[i], shape, groups) for i in (1, 2))
    return relax.op.add(relax.op.multiply(relax.op.astype(normal, dtype), scale), bias)


def instance_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """InstanceNormalization -> a group norm of one channel a group."""
    x, epsilon = inputs[0], float(attributes.get("epsilon", 1e-5))
    shape = static_shape(x, "the input of InstanceNormalization")
    scale, bias = (_of_channels(inputs[i], shape, shape[1]) for i in (1, 2))
    return relax.op.add(relax.op.multiply(_normal_groups(x, shape[1], epsilon), scale), bias)


def _normal_groups(x: Any, groups: int, epsilon: float) -> Any:
    """float32 or float64 (N, C, ...) of mean 0 and variance 1 over each group of each batch."""
    shape = static_shape(x, "what is normalized")
    extents = [shape[0] * groups, math.prod(shape[1:]) // groups]
    rows = emit(relax.op.reshape(x, extents))
    one, zero = (constant(np.full(extents[1:], value), "float32") for value in (1, 0))
    if dtype_of(x) == "float64":
        normal = _normal(rows, *_moments(rows, [1], epsilon))
    else:
        normal = relax.op.nn.layer_norm(rows, one, zero, [1], epsilon, False, False)
    return emit(relax.op.reshape(emit(normal), shape))


def rms_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """RMSNormalization; of float64, which the stock one would round to float32."""
    x, scale = inputs[0], inputs[1]
    if dtype_of(x) != "float64":
        return stock("RMSNormalization", inputs, attributes, opset)
    rank = int(x.ty.ndim)
    axes = list(range(int(attributes.get("axis", -1)) % rank, rank))
    square = emit(relax.op.mean(emit(relax.op.multiply(x, x)), axes, keepdims=True))
    inverse = relax.op.rsqrt(relax.op.add(square, scalar(float(attributes.get("epsilon", 1e-5)), x)))
    return relax.op.multiply(relax.op.multiply(x, inverse), relax.op.astype(scale, "float64"))


def _of_channels(vector: Any, shape: Sequence[int], groups: int) -> Any:
    """One number a channel, or a group, as it broadcasts over (N, C, ...)."""
    if shape_of(vector) == (groups,) != (shape[1],):
        each = emit(relax.op.reshape(vector, [groups, 1]))
        vector = emit(relax.op.broadcast_to(each, [groups, shape[1] // groups]))
    return emit(relax.op.reshape(vector, [shape[1], *[1] * (len(shape) - 2)]))


def mean_variance_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MeanVarianceNormalization -> (x - mean) / (deviation + 1e-9), as ONNX defines it.

    The mean is taken twice: what rounding left of a constant would be made 1 by its own deviation.
    """
    x = inputs[0]
    axes = [int(a) for a in attributes.get("axes", (0, 2, 3))]
    for _ in range(2):
        x = emit(relax.op.subtract(x, emit(relax.op.mean(x, axes, keepdims=True))))
    variance = emit(relax.op.mean(emit(relax.op.multiply(x, x)), axes, keepdims=True))
    return relax.op.divide(x, relax.op.add(relax.op.sqrt(variance), scalar(1e-9, x)))


def _hardmax(x: Any, axis: int) -> Any:
    """1 at the first largest element, else 0; all 0 where that is NaN, as in onnxruntime."""
    shape = static_shape(x, "the input of Hardmax")
    largest = emit(place_of_extreme(x, axis, largest=True, keep=True))
    places = np.arange(shape[axis]).reshape([-1 if d == axis % len(shape) else 1 for d in range(len(shape))])
    hit = relax.op.logical_and(relax.op.equal(constant(places), largest), relax.op.equal(x, x))
    return relax.op.astype(emit(hit), dtype_of(x))


def _broadcast(vector: Any, shape: list[Any]) -> Any:
    given = shape_of(vector)
    return vector if given is not None and list(given) == shape else relax.op.broadcast_to(vector, shape)


def batch_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BatchNormalization; in training mode by statistics of the batch, whose running mean and variance come out too.

    ONNX: running = running * momentum + current * (1 - momentum), with the variance of the batch itself (over N).
    Stock TVM weighs the other way round.
    """
    if not attributes.get("training_mode", 0):
        return stock("BatchNormalization", inputs, attributes, opset)
    dtype = dtype_of(inputs[0])
    wide = "float64" if dtype == "float64" else "float32"  # in which narrower floats are summed
    x, scale, bias = (emit(relax.op.astype(inputs[i], wide)) for i in range(3))
    rank, keep = int(x.ty.ndim), float(attributes.get("momentum", 0.9))
    axes, shape = [a for a in range(rank) if a != 1], [1, -1] + [1] * (rank - 2)
    mean, inverse = (emit(part) for part in _moments(x, axes, float(attributes.get("epsilon", 1e-5))))
    y = relax.op.add(
        relax.op.multiply(_normal(x, mean, inverse), relax.op.reshape(scale, shape)), relax.op.reshape(bias, shape)
    )
    batch = mean, emit(relax.op.variance(x, axes, keepdims=True))
    running = [_moved(inputs[3 + k], new, keep) for k, new in enumerate(batch)]
    return relax.Tuple([relax.op.astype(y, dtype), *running][: outputs_of(attributes)])


def _moved(old: Any, new: Any, keep: float) -> Any:
    new = relax.op.astype(relax.op.reshape(new, [-1]), dtype_of(old))
    return relax.op.add(relax.op.multiply(old, scalar(keep, old)), relax.op.multiply(new, scalar(1 - keep, old)))


def lp_normalization(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LpNormalization(x) -> x / |x|_p along an axis; 0 where the norm is 0."""
    x, axis, order = inputs[0], int(attributes.get("axis", -1)), int(attributes.get("p", 2))
    if order == 1:
        norm = relax.op.sum(relax.op.abs(x), axis, keepdims=True)
    else:
        norm = relax.op.sqrt(relax.op.sum(relax.op.multiply(x, x), axis, keepdims=True))
    empty = relax.op.equal(norm, scalar(0, x))
    return relax.op.where(empty, scalar(0, x), relax.op.divide(x, relax.op.where(empty, scalar(1, x), norm)))


def _softmax(function: Callable[..., Any]) -> Converter:
    """Softmax over one axis; before opset 13 over all dimensions from `axis` on, joined to one."""

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        x = inputs[0]
        axis, rank = int(attributes.get("axis", -1 if opset >= 13 else 1)), int(x.ty.ndim)
        if opset >= 13 or axis in (-1, rank - 1):
            return function(x, axis)
        shape = shape_of(x)
        if shape is None:
            raise Refusal(f"opset {opset} over dimensions {axis} and on, of a shape known at run time only")
        axis += rank if axis < 0 else 0
        rows = emit(relax.op.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:]))))
        return relax.op.reshape(function(rows, -1), shape)

    return converter


#: Operator -> converter.
CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "Hardmax": _softmax(_hardmax),
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "LogSoftmax": _softmax(relax.op.nn.log_softmax),
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_norm,
    "RMSNormalization": rms_norm,
    "Softmax": _softmax(relax.op.nn.softmax),
}
