"""Normalizations over axes: layer, group and batch norm, mean and variance, Lp norm, softmax, hardmax.

A variance is the mean of squared differences from the mean: E[x^2] - E[x]^2 has no digit left where the mean is much
larger than the deviation.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ...core.graph.relax_graph import dtype_of, shape_of
from ..checks.refusal import Refusal
from .base import (
    Attributes,
    Converter,
    as_dtype,
    constant,
    converts,
    emit,
    graph_of,
    kernel,
    outputs_of,
    scalar,
    static_shape,
    stock,
    widest,
)
from .reductions import place_of_extreme


@converts("LayerNormalization")
def layer_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LayerNormalization -> relax.nn.layer_norm, with mean and inverse deviation where they are read.

    Stock TVM gives zeros for these two. Of float64, which TVM's operator does not take, and where scale or bias differ
    between rows, it is written out; the statistics are of float32.
    """
    x, scale, bias = inputs[0], inputs[1], inputs[2]
    rank, epsilon = int(x.ty.ndim), float(attributes.get("epsilon", 1e-5))
    axes = list(range(int(attributes.get("axis", -1)) % rank, rank))
    shape, count = [x.ty.shape[a] for a in axes], outputs_of(attributes)
    if 0 in shape and count > 1:
        raise Refusal("the mean of no elements")
    plain = dtype_of(x) == "float32" and all(s is None or _fits(s, shape) for s in (scale, bias))
    if plain and count == 1:
        bias = relax.op.zeros(shape, x.ty.dtype) if bias is None else _broadcast(bias, shape)
        return relax.op.nn.layer_norm(x, _broadcast(scale, shape), bias, axes, epsilon)
    normal, mean, inverse = _normalized(x, axes, epsilon)
    y = emit(normal * scale)
    y = y if bias is None else emit(y + bias)
    return relax.Tuple([y, *(as_dtype(part, "float32") for part in (mean, inverse))][:count])


def _normalized(x: Any, axes: list[int], epsilon: float) -> tuple[Any, Any, Any]:
    """(x - mean) / deviation over axes, with the mean, and the inverse deviation."""
    mean = emit(relax.op.mean(x, axes, keepdims=True))
    centred = emit(x - mean)
    variance = emit(relax.op.mean(centred * centred, axes, keepdims=True))
    inverse = emit(relax.op.rsqrt(variance + scalar(epsilon, x)))
    return emit(centred * inverse), mean, inverse


def _fits(vector: Any, shape: list[Any]) -> bool:
    """Whether a scale or bias broadcasts to one row."""
    own = shape_of(vector)
    if own is None or len(own) > len(shape):
        return False
    return all(d in (1, int(s)) for d, s in zip(own[::-1], shape[::-1], strict=False))


@converts("GroupNormalization")
def group_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GroupNormalization -> the groups of a batch as rows of a layer norm; scale and bias are the channels', or, before
    opset 21, the groups'. Computed in float32 at least, its default stash type."""
    x, groups = inputs[0], int(attributes["num_groups"])
    shape = static_shape(x, "the input of GroupNormalization")
    if groups < 1 or shape[1] % groups:
        raise Refusal(f"num_groups={groups} does not divide {shape[1]} channels")
    if int(attributes.get("stash_type", 1)) != 1:
        raise Refusal(f"stash_type={attributes['stash_type']}: 1 (float32) is needed")
    normal = _normal_groups(x, groups, float(attributes.get("epsilon", 1e-5)))
    scale, bias = (_of_channels(inputs[i], shape, groups) for i in (1, 2))
    return normal * scale + bias


@converts("InstanceNormalization")
def instance_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """InstanceNormalization -> a group norm of one channel a group."""
    channels = static_shape(inputs[0], "the input of InstanceNormalization")[1]
    return group_norm(inputs, {**attributes, "num_groups": channels}, opset)


def _normal_groups(x: Any, groups: int, epsilon: float) -> Any:
    """float32 or float64 (N, C, ...) of mean 0 and variance 1 over each group of each batch."""
    shape = static_shape(x, "what is normalized")
    extents = [shape[0] * groups, math.prod(shape[1:]) // groups]
    rows = emit(relax.op.reshape(x, extents))
    one, zero = (constant(np.full(extents[1:], value), "float32") for value in (1, 0))
    if dtype_of(x) == "float64":
        normal = _normalized(rows, [1], epsilon)[0]
    else:
        normal = relax.op.nn.layer_norm(rows, one, zero, [1], epsilon, False, False)
    return emit(relax.op.reshape(emit(normal), shape))


@converts("RMSNormalization")
def rms_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """RMSNormalization; of float64, which the stock one would round to float32, or of a scale that broadcasts.

    What has no other axis than those gets one: TVM has no kernel for a mean without axes.
    """
    x, scale = inputs[0], inputs[1]
    shape = static_shape(x, "the input of RMSNormalization")
    axes = list(range(int(attributes.get("axis", -1)) % len(shape), len(shape)))
    if dtype_of(x) != "float64" and shape_of(scale) == shape[axes[0] :]:
        if axes[0] == 0:
            size = math.prod(shape)
            rows = emit(relax.op.reshape(x, [1, size]))
            flat = [rows, emit(relax.op.reshape(scale, [size]))]
            normal = emit(stock("RMSNormalization", flat, {**attributes, "axis": -1}, opset))
            return emit(relax.op.reshape(normal, shape))
        return stock("RMSNormalization", inputs, attributes, opset)
    square = emit(relax.op.mean(x * x, axes, keepdims=True))
    inverse = relax.op.rsqrt(square + scalar(float(attributes.get("epsilon", 1e-5)), x))
    return x * inverse * as_dtype(scale, dtype_of(x))


def _of_channels(vector: Any, shape: Sequence[int], groups: int) -> Any:
    """One number a channel, or a group, as it broadcasts over (N, C, ...)."""
    if shape_of(vector) == (groups,) != (shape[1],):
        each = emit(relax.op.reshape(vector, [groups, 1]))
        vector = emit(relax.op.broadcast_to(each, [groups, shape[1] // groups]))
    return emit(relax.op.reshape(vector, [shape[1], *[1] * (len(shape) - 2)]))


@converts("MeanVarianceNormalization")
def mean_variance_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MeanVarianceNormalization -> (x - mean) / (deviation + 1e-9), as ONNX defines it.

    The mean is taken twice: what rounding left of a constant would be made 1 by its own deviation.
    """
    x = inputs[0]
    axes, rank = [int(a) for a in attributes.get("axes", (0, 2, 3))], int(x.ty.ndim)
    if any(not -rank <= a < rank for a in axes):
        raise Refusal(f"axes {axes} of a tensor of {rank} dimensions")
    for _ in range(2):
        x = emit(x - relax.op.mean(x, axes, keepdims=True))
    variance = emit(relax.op.mean(x * x, axes, keepdims=True))
    return x / (relax.op.sqrt(variance) + scalar(1e-9, x))


def _hardmax(x: Any, axis: int) -> Any:
    """1 at the first largest element, else 0; all 0 where that is NaN, as in onnxruntime."""
    shape = static_shape(x, "the input of Hardmax")
    largest = emit(place_of_extreme(x, axis, largest=True, keep=True))
    places = np.arange(shape[axis]).reshape([-1 if d == axis % len(shape) else 1 for d in range(len(shape))])
    hit = relax.op.logical_and(relax.op.equal(constant(places), largest), relax.op.equal(x, x))
    return relax.op.astype(emit(hit), dtype_of(x))


def _broadcast(vector: Any, shape: list[Any]) -> Any:
    own = shape_of(vector)
    return vector if own is not None and list(own) == shape else relax.op.broadcast_to(vector, shape)


@converts("BatchNormalization")
def batch_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BatchNormalization; in training mode by statistics of the batch, whose running mean and variance come out too.

    ONNX: running = running * momentum + current * (1 - momentum), with the variance of the batch itself (over N).
    Stock TVM weighs the other way round. Operands of several types are computed in the widest of them.
    """
    operands = x, scale, bias, mean, variance = [inputs[i] for i in range(5)]
    if not attributes.get("spatial", 1):  # of opset 7
        raise Refusal("spatial=0: a mean for each element instead of each channel")
    dtype = widest(*operands)
    if any(dtype_of(operand) != dtype for operand in operands):
        wide = batch_norm([as_dtype(operand, dtype) for operand in operands], attributes, opset)
        results = wide.fields if isinstance(wide, relax.Tuple) else [relax.TupleGetItem(emit(wide), 0)]
        owners = zip(results, (x, mean, variance, mean, variance), strict=False)
        return relax.Tuple([as_dtype(emit(y), dtype_of(owner)) for y, owner in owners])
    if not attributes.get("training_mode", 0):
        graph = graph_of(attributes)
        if any(name and graph.is_read(name) for name in graph.node.output[1:]):
            raise Refusal("outputs of training are read, and it is no training")
        y = stock("BatchNormalization", inputs, attributes, opset).fields[0]
        return relax.Tuple([y, mean, variance, mean, variance])
    rank, epsilon = int(x.ty.ndim), float(attributes.get("epsilon", 1e-5))
    keep, axes = float(attributes.get("momentum", 0.9)), [a for a in range(rank) if a != 1]
    shape = [1, -1] + [1] * (rank - 2)
    normal, batch_mean, _ = _normalized(x, axes, epsilon)
    y = normal * relax.op.reshape(scale, shape) + relax.op.reshape(bias, shape)
    batch_variance = emit(relax.op.variance(x, axes, keepdims=True))
    running = [_moved(old, new, keep) for old, new in ((mean, batch_mean), (variance, batch_variance))]
    return relax.Tuple([y, *running][: outputs_of(attributes)])


def _moved(old: Any, new: Any, keep: float) -> Any:
    new = relax.op.astype(relax.op.reshape(new, [-1]), dtype_of(old))
    return old * scalar(keep, old) + new * scalar(1 - keep, old)


@converts("LRN")
def lrn(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LRN(x) -> x / (bias + alpha / size * sum of squares over `size` channels around each) ^ beta.

    Stock TVM takes three and four dimensions of float32 and odd sizes only.
    """
    x, size = inputs[0], int(attributes["size"])
    channels, before = static_shape(x, "the input of LRN")[1], (size - 1) // 2

    def compute(data: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, size), name="k")

        def element(n: Any, c: Any, *at: Any) -> Any:
            near = c - before + k
            value = data(n, tirx.max(0, tirx.min(near, channels - 1)), *at)
            inside = tirx.all(near >= 0, near < channels)
            return te.sum(tirx.Select(inside, value * value, tirx.const(0, data.dtype)), axis=k)

        return te.compute(data.shape, element, name="out")

    share = float(attributes.get("alpha", 1e-4)) / size
    total = kernel(compute, x, name="lrn") * scalar(share, x)
    base = emit(emit(total) + scalar(float(attributes.get("bias", 1.0)), x))
    return x / relax.op.power(base, scalar(float(attributes.get("beta", 0.75)), x))


@converts("LpNormalization")
def lp_normalization(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LpNormalization(x) -> x / |x|_p along an axis; 0 where the norm is 0."""
    x, axis, order = inputs[0], int(attributes.get("axis", -1)), int(attributes.get("p", 2))
    if order not in (1, 2):
        raise Refusal(f"p={order}: 1 or 2 is needed")
    if order == 1:
        norm = relax.op.sum(relax.op.abs(x), axis, keepdims=True)
    else:
        norm = relax.op.sqrt(relax.op.sum(x * x, axis, keepdims=True))
    empty = relax.op.equal(norm, scalar(0, x))
    return relax.op.where(empty, scalar(0, x), x / relax.op.where(empty, scalar(1, x), norm))


def _softmax(function: Callable[..., Any]) -> Converter:
    """Softmax over one axis; before opset 13 over all dimensions from `axis` on, joined to one."""

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        x = inputs[0]
        axis, rank = int(attributes.get("axis", -1 if opset >= 13 else 1)), int(x.ty.ndim)
        if not rank:
            return relax.op.reshape(function(emit(relax.op.reshape(x, (1,))), -1), ())
        return function(x, axis) if opset >= 13 else joined_softmax(x, axis, function)

    return converter


def joined_softmax(x: Any, axis: int, function: Callable[..., Any] = relax.op.nn.softmax) -> Any:
    """A softmax over all dimensions from an axis on, joined to one."""
    rank = int(x.ty.ndim)
    if axis in (-1, rank - 1):
        return function(x, axis)
    shape = static_shape(x, f"what a softmax over dimensions {axis} and on is of")
    axis %= rank
    rows = emit(relax.op.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:]))))
    return relax.op.reshape(function(rows, -1), shape)


converts("Hardmax")(_softmax(_hardmax))
converts("LogSoftmax")(_softmax(relax.op.nn.log_softmax))
converts("Softmax")(_softmax(relax.op.nn.softmax))
