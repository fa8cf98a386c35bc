"""Normalizations over axes: layer, batch and group norm, Lp norm, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from ...core.relax_graph import dtype_of, shape_of
from ..refusal import Refusal
from .base import Attributes, Converter, emit, kernel, narrowed, outputs_of, scalar, static_shape, stock, widened


def layer_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LayerNormalization -> relax.nn.layer_norm, with mean and inverse deviation where they are read.

    Stock TVM gives zeros for these two. Of other types than float32 and float16, which TVM's operator takes, and where
    scale or bias differ between rows, it is written out; the statistics of narrower types are of float32.
    """
    x, scale, bias = inputs[0], inputs[1], inputs[2]
    rank, epsilon = int(x.ty.ndim), float(attributes.get("epsilon", 1e-5))
    axes = list(range(int(attributes.get("axis", -1)) % rank, rank))
    shape, count = [x.ty.shape[a] for a in axes], outputs_of(attributes)
    plain = dtype_of(x) in ("float16", "float32") and all(s is None or _fits(s, shape) for s in (scale, bias))
    if plain and count == 1:
        bias = relax.op.zeros(shape, x.ty.dtype) if bias is None else _broadcast(bias, shape)
        return relax.op.nn.layer_norm(x, _broadcast(scale, shape), bias, axes, epsilon)
    normal, mean, inverse = _normalized(widened(x), axes, epsilon)
    y = emit(relax.op.multiply(normal, widened(scale)))
    y = narrowed(y if bias is None else relax.op.add(y, widened(bias)), x)
    statistics = [v if dtype_of(v) == "float32" else emit(relax.op.astype(v, "float32")) for v in (mean, inverse)]
    return relax.Tuple([y, *statistics][:count])


def _normalized(x: Any, axes: list[int], epsilon: float) -> tuple[Any, Any, Any]:
    """(x - mean) / deviation over axes, with the mean, and the inverse deviation."""
    mean = emit(relax.op.mean(x, axes, keepdims=True))
    centred = emit(relax.op.subtract(x, mean))
    variance = emit(relax.op.mean(emit(relax.op.multiply(centred, centred)), axes, keepdims=True))
    inverse = emit(relax.op.rsqrt(emit(relax.op.add(variance, scalar(epsilon, x)))))
    return emit(relax.op.multiply(centred, inverse)), mean, inverse


def _fits(vector: Any, shape: list[Any]) -> bool:
    """Whether a scale or bias broadcasts to one row."""
    given = shape_of(vector)
    own = [int(d) for d in (given or ())]
    return (
        given is not None
        and len(own) <= len(shape)
        and all(d in (1, int(s)) for d, s in zip(own[::-1], shape[::-1], strict=False))
    )


def _broadcast(vector: Any, shape: list[Any]) -> Any:
    given = shape_of(vector)
    return vector if given is not None and list(given) == shape else relax.op.broadcast_to(vector, shape)


def group_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GroupNormalization; before opset 21 by a scale and a bias for each group, in the type of x, not in float32."""
    if opset >= 21:
        return stock("GroupNormalization", inputs, attributes, opset)
    x, groups = inputs[0], int(attributes["num_groups"])
    n, channels, *spatial = static_shape(x, "the input of GroupNormalization")
    if groups <= 0 or channels % groups:
        raise Refusal(f"{channels} channels in {groups} groups")
    apart = emit(relax.op.reshape(widened(x), (n, groups, math.prod([channels // groups, *spatial]))))
    normal, _, _ = _normalized(apart, [2], float(attributes.get("epsilon", 1e-5)))
    scale, bias = (emit(relax.op.reshape(widened(inputs[i]), (groups, 1))) for i in (1, 2))
    y = relax.op.add(emit(relax.op.multiply(normal, scale)), bias)
    return narrowed(relax.op.reshape(emit(y), (n, channels, *spatial)), x)


def batch_norm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BatchNormalization; in training mode by statistics of the batch, whose running mean and variance come out too.

    ONNX: running = running * momentum + current * (1 - momentum), with the variance of the batch itself (over N).
    Stock TVM weighs the other way round. Of operands of float16, or of several types, it is computed in float32.
    """
    x, scale, bias, mean, variance = (inputs[i] for i in range(5))
    if not attributes.get("spatial", 1):  # of opset 7
        raise Refusal("spatial=0: a mean for each element instead of each channel")
    if {dtype_of(inputs[i]) for i in range(5)} not in ({"float32"}, {"float64"}):
        wide = batch_norm([widened(inputs[i]) for i in range(5)], attributes, opset)
        if not isinstance(wide, relax.Tuple):
            return narrowed(relax.TupleGetItem(emit(wide), 0), x)
        return relax.Tuple([narrowed(y, like) for y, like in zip(wide.fields, (x, mean, variance), strict=False)])
    if not attributes.get("training_mode", 0):
        return stock("BatchNormalization", inputs, attributes, opset)
    rank, epsilon = int(x.ty.ndim), float(attributes.get("epsilon", 1e-5))
    keep = float(attributes.get("momentum", 0.9))
    axes = [a for a in range(rank) if a != 1]
    shape = [1, -1] + [1] * (rank - 2)
    batch_mean, batch_variance = (emit(f(x, axes, keepdims=True)) for f in (relax.op.mean, relax.op.variance))
    normal = relax.op.multiply(
        relax.op.subtract(x, batch_mean), relax.op.rsqrt(relax.op.add(batch_variance, scalar(epsilon, x)))
    )
    y = relax.op.add(relax.op.multiply(normal, relax.op.reshape(scale, shape)), relax.op.reshape(bias, shape))
    running = [_moved(old, new, keep) for old, new in ((mean, batch_mean), (variance, batch_variance))]
    return relax.Tuple([y, *running][: outputs_of(attributes)])


def _moved(old: Any, new: Any, keep: float) -> Any:
    new = relax.op.astype(relax.op.reshape(new, [-1]), dtype_of(old))
    return relax.op.add(relax.op.multiply(old, scalar(keep, old)), relax.op.multiply(new, scalar(1 - keep, old)))


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
    total = relax.op.multiply(kernel(compute, x, name="lrn"), scalar(share, x))
    base = emit(relax.op.add(emit(total), scalar(float(attributes.get("bias", 1.0)), x)))
    return relax.op.divide(x, emit(relax.op.power(base, scalar(float(attributes.get("beta", 0.75)), x))))


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
        rows = relax.op.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        return relax.op.reshape(function(rows, -1), shape)

    return converter


#: Operator -> converter.
CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "LRN": lrn,
    "LayerNormalization": layer_norm,
    "LogSoftmax": _softmax(relax.op.nn.log_softmax),
    "LpNormalization": lp_normalization,
    "Softmax": _softmax(relax.op.nn.softmax),
}
