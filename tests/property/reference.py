"""ONNX's reference implementation on a graph with every float as float64: who is right where two float32 differ."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


def float64_outputs(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs; floats are float64."""
    from onnx.reference import ReferenceEvaluator

    proto = onnx.ModelProto.FromString(model)
    _widen(proto.graph)
    wide = {name: _double(x) for name, x in feeds.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [np.asarray(v) for v in ReferenceEvaluator(proto, new_ops=_own()).run(None, wide)]


def _double(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _widen(graph: onnx.GraphProto) -> None:
    """Every float of a graph, and of those inside, becomes a double, in place."""
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type in _FLOATS:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _widen(attribute.g)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name == "to" and attribute.i in _FLOATS:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        tensor.CopyFrom(numpy_helper.from_array(_double(numpy_helper.to_array(tensor)), tensor.name))


@functools.cache
def _own() -> list[Any]:
    """Operators of which onnx's package has no implementation of older opsets, or one of less than ONNX defines."""
    from onnx.reference.op_run import OpRun

    def gather(self: Any, data: Any, indices: Any, axis: Any = None) -> Any:
        return (data[_places(data.shape, indices, axis or 0)],)

    def scatter(self: Any, data: Any, indices: Any, updates: Any, axis: Any = None, reduction: Any = None) -> Any:
        out = data.copy()
        place = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}.get(reduction or "none")
        where = _places(data.shape, indices, axis or 0)
        if place is None:
            out[where] = updates
        else:
            place.at(out, where, updates)
        return (out,)

    def quantize(self: Any, x: Any, scale: Any, zero: Any, axis: Any = None, **rest: Any) -> Any:
        steps = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis)
        limits = np.iinfo(zero.dtype)
        return (np.clip(steps, limits.min, limits.max).astype(zero.dtype),)

    def dequantize(self: Any, x: Any, scale: Any, zero: Any, axis: Any = None, **rest: Any) -> Any:
        return ((x.astype(np.float64) - _along(zero, x, axis)) * _along(scale, x, axis),)

    def batch_norm(self: Any, x: Any, *given: Any, epsilon: Any = None, **rest: Any) -> Any:
        scale, shift, mean, variance = (_along(v, x, 1) for v in given)
        return ((x - mean) / np.sqrt(variance + (1e-5 if epsilon is None else epsilon)) * scale + shift,)

    def local_response(self: Any, x: Any, size: Any = 1, alpha: Any = 1e-4, beta: Any = 0.75, bias: Any = 1.0) -> Any:
        before = (size - 1) // 2
        squares = np.pad(x**2, [(before if a == 1 else 0, size - 1 - before if a == 1 else 0) for a in range(x.ndim)])
        total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
        return (x / (bias + alpha / size * total) ** beta,)

    def largest(self: Any, x: Any) -> Any:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)

    def erf(self: Any, x: Any) -> Any:
        return (np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),)

    own = {
        "GatherElements": gather, "ScatterElements": scatter, "QuantizeLinear": quantize,
        "DequantizeLinear": dequantize, "BatchNormalization": batch_norm, "LRN": local_response,
        "Erf": erf, "GlobalMaxPool": largest,
    }  # fmt: skip
    return [type(name, (OpRun,), {"op_domain": "", "_run": run}) for name, run in own.items()]


def _along(values: np.ndarray, x: np.ndarray, axis: int | None) -> np.ndarray:
    """Values of the rows along an axis, to be broadcast; one value as it is."""
    wide = values.astype(np.float64)
    return wide if wide.ndim == 0 else wide.reshape([-1 if a == (axis or 0) % x.ndim else 1 for a in range(x.ndim)])


def _places(shape: tuple[int, ...], indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """For each index the place that it stands for."""
    at = list(np.indices(indices.shape))
    at[axis] = np.where(indices < 0, indices + shape[axis], indices)
    return tuple(at)
