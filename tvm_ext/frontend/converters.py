"""Converters for ONNX operators that TVM's importer lacks or converts in a way that costs something."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from ..core.relax_graph import numpy_of, shape_of

Converter = Callable[[Any, dict[str, Any], int], Any]
"""(inputs, attributes, opset) -> Relax expression, or a `relax.Tuple` of one expression an output.

Inputs are a list that gives None beyond its end; `attributes["tvm_custom"]["num_outputs"]` counts the outputs.
"""


def dropout(inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
    """Dropout(x) -> x: in inference nothing is dropped. Stock TVM leaves a call that stands in fusion's way."""
    x, training = inputs[0], inputs[2]
    if training is not None and not (isinstance(training, GenericConst) and not training.value.numpy().any()):
        raise NotImplementedError("training_mode must be a constant false")
    if attributes["tvm_custom"]["num_outputs"] == 1:
        return x
    return relax.Tuple([x, relax.op.ones(x.ty.shape, "bool")])


def clip(inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
    """Clip(x, min, max) -> relax.clip, maximum or minimum, which passes can fuse; stock TVM leaves opaque kernels.

    A bound that is NaN, or missing, does not bind. Before opset 11 the bounds are attributes.
    """
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    low = _bound(inputs[1], attributes.get("min"), dtype, -math.inf)
    high = _bound(inputs[2], attributes.get("max"), dtype, math.inf)
    if isinstance(low, float | int) and isinstance(high, float | int) and low <= high:
        return relax.op.clip(x, low, high)
    if low is not None:  # with the bounds crossed ONNX gives `max`, TVM's clip `min`
        x = relax.op.maximum(x, _tensor(low, dtype))
    return x if high is None else relax.op.minimum(x, _tensor(high, dtype))


def _bound(given: Any, attribute: float | None, dtype: str, unbound: float) -> Any:
    """A bound as a Python number, a Relax expression if it is computed, or None if it does not bind."""
    if isinstance(given, GenericConst):
        attribute = given.value.numpy().reshape(()).item()
    elif given is not None:
        if "float" not in dtype:
            return given
        return relax.op.where(relax.op.isnan(given), relax.const(unbound, dtype), given)
    return None if attribute is None or attribute != attribute else attribute


def _tensor(bound: Any, dtype: str) -> Any:
    return relax.const(bound, dtype) if isinstance(bound, float | int) else bound


# ------------------------------------------------------------ several operands
def _folded(combine: Callable[[Any, Any], Any]) -> Converter:
    """Max(a, b, c) -> maximum(maximum(a, b), c); stock TVM stacks the operands and reduces the stack."""

    def converter(inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        return functools.reduce(combine, inputs)

    return converter


def mean(inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
    """Mean(a, b, c) -> ((a + b) + c) / 3."""
    total = functools.reduce(relax.op.add, inputs)
    if len(inputs) == 1:
        return total
    return relax.op.divide(total, relax.const(len(inputs), str(inputs[0].ty.dtype)))


# ------------------------------------------------------------ rows
def gather(inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
    """Gather(x, i) -> take that wraps around: -1 is the last row, and no index leaves the tensor.

    Stock TVM emits a `take` whose kernel reads foreign memory where an index is out of bounds (and says so on
    stderr). ONNX defines indices from -n to n - 1; constant ones are checked here.
    """
    data, indices = inputs[0], inputs[1]
    if isinstance(data, relax.ShapeExpr):
        data = relax.op.shape_to_tensor(data)
    if isinstance(indices, relax.ShapeExpr):
        indices = relax.op.shape_to_tensor(indices)
    axis, shape = int(attributes.get("axis", 0)), shape_of(data)
    known = numpy_of(indices)
    if known is not None and shape is not None:
        indices = relax.const(_row_numbers(known, shape[axis]), str(known.dtype))
    return relax.op.take(data, indices, axis, mode="wrap")


def _row_numbers(indices: np.ndarray, rows: int) -> np.ndarray:
    wrong = indices[(indices < -rows) | (indices >= rows)]
    if wrong.size:
        raise ValueError(f"index {wrong.flat[0]} lies outside -{rows} .. {rows - 1}")
    return np.where(indices < 0, indices + rows, indices).astype(indices.dtype)


def layer_norm(inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
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
    if (count := attributes["tvm_custom"]["num_outputs"]) == 1:
        return result
    deviation = relax.op.add(relax.op.variance(x, axes, keepdims=True), relax.const(epsilon, str(x.ty.dtype)))
    return relax.Tuple([result, relax.op.mean(x, axes, keepdims=True), relax.op.rsqrt(deviation)][:count])


def _broadcast(vector: Any, shape: list[Any]) -> Any:
    given = shape_of(vector)
    return vector if given is not None and list(given) == shape else relax.op.broadcast_to(vector, shape)


def _softmax(function: Callable[..., Any]) -> Converter:
    """Softmax over one axis; before opset 13 over all dimensions from `axis` on, joined to one."""

    def converter(inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        x = inputs[0]
        axis, rank = int(attributes.get("axis", -1 if opset >= 13 else 1)), int(x.ty.ndim)
        if opset >= 13 or axis in (-1, rank - 1):
            return function(x, axis)
        shape = shape_of(x)
        if shape is None:
            raise NotImplementedError(f"opset {opset} over dimensions {axis} and on, of a shape known at run time only")
        axis += rank if axis < 0 else 0
        rows = relax.op.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        return relax.op.reshape(function(rows, -1), shape)

    return converter


#: Operator of the standard domain -> converter; these go before the stock ones.
CONVERTERS: dict[str, Converter] = {
    "Clip": clip,
    "Dropout": dropout,
    "Gather": gather,
    "LayerNormalization": layer_norm,
    "LogSoftmax": _softmax(relax.op.nn.log_softmax),
    "Max": _folded(relax.op.maximum),
    "Mean": mean,
    "Min": _folded(relax.op.minimum),
    "Softmax": _softmax(relax.op.nn.softmax),
    "Sum": _folded(relax.op.add),
}
