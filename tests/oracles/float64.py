"""A model in other floats; its outputs in double precision: who is right where two float32 differ."""

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_WIDENED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: A zero point that is left out.
_ZERO = np.uint8(0)


def float64_outputs(
    model: bytes, feeds: Mapping[str, np.ndarray], operators: Sequence[Any] = ()
) -> dict[str, np.ndarray]:
    """Outputs by name, of the model with float64 in the place of narrower floats; up to minutes.

    Args:
        operators: classes of `onnx.reference`, beside those of its own.
    """
    from onnx.reference import ReferenceEvaluator

    proto = in_floats(onnx.ModelProto.FromString(model), TensorProto.DOUBLE, _WIDENED)
    floats = ("float16", "float32", "bfloat16")
    wide = {name: x.astype(np.float64) if x.dtype.name in floats else x for name, x in feeds.items()}
    names = [output.name for output in proto.graph.output]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        outputs = ReferenceEvaluator(proto, new_ops=[*_operators(), *casts(), *operators]).run(names, wide)
    return dict(zip(names, map(np.asarray, outputs), strict=True))


@functools.cache
def casts() -> list[Any]:
    """Cast and CastLike of ONNX's evaluator, with the low bits of what fits no integer of 2 or 4 bits, as of 8 or more:
    ONNX leaves that open, and ml_dtypes has another answer from version to version."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops.op_cast import cast_to

    def to_dtype(x: Any, to: int, saturate: Any, rounding: Any) -> Any:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(to))
        if dtype.name not in ("int2", "uint2", "int4", "uint4") or "float" not in x.dtype.name:
            return cast_to(x, to, saturate is None or bool(saturate), rounding or "up")
        wide, bits = x.astype(np.float64), int(dtype.name[-1])
        whole = np.where(np.abs(wide) < 2.0**31, np.trunc(wide), -(2.0**31)).astype(np.int64) % 2**bits
        return (whole - 2**bits * (dtype.name[0] == "i") * (whole >= 2 ** (bits - 1))).astype(dtype)

    def cast(self: Any, x: Any, to: Any = None, saturate: Any = None, round_mode: Any = None) -> Any:
        return (to_dtype(x, to, saturate, round_mode),)

    def cast_like(self: Any, x: Any, y: Any, saturate: Any = None, round_mode: Any = None) -> Any:
        return (to_dtype(x, helper.np_dtype_to_tensor_dtype(y.dtype), saturate, round_mode),)

    own = {"Cast": cast, "CastLike": cast_like}
    return [type(name, (OpRun,), {"op_domain": "", "_run": run}) for name, run in own.items()]


def in_floats(model: onnx.ModelProto, kind: int, replaced: Sequence[int] = (TensorProto.FLOAT,)) -> onnx.ModelProto:
    """A copy of a model with every float of some kinds one of another: so are exports in half precision."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    _convert(proto.graph, kind, replaced)
    return proto


def _convert(graph: onnx.GraphProto, kind: int, replaced: Sequence[int]) -> None:
    """Convert a graph, and those inside, in place."""
    del graph.value_info[:]
    for tensor in graph.initializer:
        _convert_tensor(tensor, kind, replaced)
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type in replaced:
            info.type.tensor_type.elem_type = kind
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _convert(attribute.g, kind, replaced)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _convert_tensor(attribute.t, kind, replaced)
            elif attribute.name == "to" and attribute.i in replaced:
                attribute.i = kind


def _convert_tensor(tensor: onnx.TensorProto, kind: int, replaced: Sequence[int]) -> None:
    if tensor.data_type in replaced:
        array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


@functools.cache
def _operators() -> list[Any]:
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

    def quantize(self: Any, x: Any, scale: Any, zero: Any = _ZERO, axis: Any = None, **rest: Any) -> Any:
        steps = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis)
        limits = np.iinfo(zero.dtype)
        return (np.clip(steps, limits.min, limits.max).astype(zero.dtype),)

    def dequantize(self: Any, x: Any, scale: Any, zero: Any = _ZERO, axis: Any = None, **rest: Any) -> Any:
        return ((x.astype(np.float64) - _along(zero, x, axis)) * _along(scale, x, axis),)

    def batch_norm(self: Any, x: Any, *parameters: Any, epsilon: Any = None, **rest: Any) -> Any:
        scale, shift, mean, variance = (_along(v, x, 1) for v in parameters)
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
