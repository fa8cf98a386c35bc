"""Normalizations over axes: layer and batch norm, Lp norm, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from ...core.relax_graph import dtype_of, shape_of
from ..refusal import Refusal
from .base import Attributes, Converter, emit, outputs_of, scalar, stock


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
    result = relax.op.nn.layer_norm(x, scale, bias, axes, epsilon)
    if (count := outputs_of(attributes)) == 1:
        return result
    deviation = relax.op.add(relax.op.variance(x, axes, keepdims=True), relax.const(epsilon, str(x.ty.dtype)))
    return relax.Tuple([result, relax.op.mean(x, axes, keepdims=True), relax.op.rsqrt(deviation)][:count])


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
    x, scale, bias, mean, variance = (inputs[i] for i in range(5))
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
    "LayerNormalization": layer_norm,
    "LogSoftmax": _softmax(relax.op.nn.log_softmax),
    "LpNormalization": lp_normalization,
    "Softmax": _softmax(relax.op.nn.softmax),
}
