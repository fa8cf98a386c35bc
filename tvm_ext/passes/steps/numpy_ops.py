"""What Relax operators compute, in numpy: the table behind constant folding.

Floating point goes through float64 and is rounded once, integers wrap as on the machine. What an operator does not
define (integer division by zero) is not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm.ir import Call

from ...core.graph.relax_graph import attrs_of
from ...core.numbers.conversion import converted
from .quantized_numpy import quantized


class NotEvaluated(Exception):
    """The operator is known, but has no defined or portable value for these operands; says why."""


Evaluator = Callable[[Call, Sequence[Any], np.dtype], Any]
"""(call, operand values, dtype of the result) -> an array, or a list of arrays for a tuple."""


def evaluate(call: Call, values: Sequence[Any], dtype: str) -> np.ndarray | list[np.ndarray]:
    """The value of an operator call.

    Args:
        call: a call whose operator is in :data:`EVALUATORS`.
        values: one value an argument: array, number, tuple of integers (a shape), list (a tuple of tensors).
        dtype: of the result, or of the first item of a tuple.

    Raises:
        NotEvaluated: see there.
    """
    want = np.dtype(dtype)
    try:
        with np.errstate(all="ignore"):
            result = EVALUATORS[str(call.op.name)](call, values, want)
            return [_rounded(r, want) for r in result] if isinstance(result, list) else _rounded(result, want)
    except (ValueError, IndexError, OverflowError) as error:
        raise NotEvaluated(str(error)) from error


def _rounded(value: Any, dtype: np.dtype) -> np.ndarray:
    array = np.asarray(value)
    floats = array.dtype.kind == "f" and dtype.kind == "f"
    return np.ascontiguousarray(array, dtype=dtype if floats else None).reshape(array.shape)


def _wide(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


# ------------------------------------------------------------ elementwise
def _numeric(fn: Callable[..., Any]) -> Evaluator:
    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        if any(isinstance(v, np.ndarray) and v.dtype == bool for v in values):
            raise NotEvaluated("arithmetic on bool")
        return fn(*map(_wide, values))

    return run


def _plain(fn: Callable[..., Any]) -> Evaluator:
    return lambda call, values, dtype: fn(*values)


def _float_only(fn: Callable[..., Any]) -> Evaluator:
    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        if dtype.kind != "f":
            raise NotEvaluated(f"defined on floats, not on {dtype}")
        return fn(*map(_wide, values))

    return run


def _erf(x: np.ndarray) -> np.ndarray:
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def _check_divisor(a: np.ndarray, b: np.ndarray) -> None:
    if np.any(b == 0):
        raise NotEvaluated("integer division by zero")
    if a.dtype.kind == "i" and np.any(a == np.iinfo(a.dtype).min) and np.any(b == -1):
        raise NotEvaluated("the smallest integer divided by -1 overflows")


def _divide(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    a, b = values
    if a.dtype.kind == "f":
        return np.divide(_wide(a), _wide(b))
    _check_divisor(a, b)
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0))).astype(dtype)  # towards zero, as in C


def _floor_divide(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    a, b = values
    if a.dtype.kind == "f":
        return np.floor(np.divide(a, b))  # the quotient is rounded before the floor, so not in float64
    _check_divisor(a, b)
    return np.floor_divide(a, b)


def _integer_modulo(fn: Callable[..., Any]) -> Evaluator:
    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        if dtype.kind not in "iu":
            raise NotEvaluated(f"remainder of {dtype}")
        _check_divisor(*values)
        return fn(*values)

    return run


def _clip(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    x, low, high = values
    return np.clip(x, np.asarray(low).astype(dtype), np.asarray(high).astype(dtype))


def _quantize(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    x, scale, zero = values
    return quantized(x, scale, zero, int(call.attrs.axis), str(dtype))


# ------------------------------------------------------------ data movement
def _permute_dims(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    return np.transpose(values[0], attrs_of(call, ["axes"])["axes"])


def _squeeze(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    return np.squeeze(values[0], axis=attrs_of(call, ["axis"])["axis"])


def _expand_dims(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    return np.expand_dims(values[0], attrs_of(call, ["axis"])["axis"])


def _concat(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    axis = call.attrs.axis
    return np.concatenate([v.ravel() for v in values[0]] if axis is None else values[0], int(axis or 0))


def _split(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    attrs = attrs_of(call, ["indices_or_sections", "axis"])
    return list(np.split(values[0], attrs["indices_or_sections"], attrs["axis"]))


def _strided_slice(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    x, axes, begin, end = values[:4]
    strides = values[4] if len(values) > 4 else [1] * len(axes)
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, begin, end, strides, strict=True):
        index[int(axis)] = slice(*map(int, bounds))
    return x[tuple(index)]


def _take(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    x, index = values
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    limit = x.size if axis is None else x.shape[axis]
    if str(call.attrs.mode) == "clip":
        index = np.clip(index, 0, limit - 1)
    elif np.any((np.asarray(index) < 0) | (np.asarray(index) >= limit)):
        raise NotEvaluated(f"an index lies outside 0 .. {limit - 1}")
    return np.take(x, index, axis)


# ------------------------------------------------------------ reductions and products
def _reduction(fn: Callable[..., Any]) -> Evaluator:
    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        attrs = attrs_of(call, ["axis", "keepdims"])
        wide = {"dtype": np.float64 if dtype.kind == "f" else dtype} if fn in (np.sum, np.mean, np.prod) else {}
        if fn is np.mean and dtype.kind != "f":
            raise NotEvaluated(f"mean of {dtype}")
        return fn(values[0], axis=attrs["axis"], keepdims=bool(attrs["keepdims"]), **wide)

    return run


def _matmul(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    compute = np.float64 if dtype.kind == "f" else dtype
    return np.matmul(*(v.astype(compute) for v in values))


# ------------------------------------------------------------ creation
def _filled(value: float | None) -> Evaluator:
    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        shape = values[0] if isinstance(values[0], tuple) else values[0].shape
        return np.full(shape, values[1] if value is None else value, dtype)

    return run


EVALUATORS: dict[str, Evaluator] = {
    "relax.reshape": lambda call, values, dtype: np.reshape(values[0], values[1]),
    "relax.flatten": lambda call, values, dtype: np.ravel(values[0]),
    "relax.nn.batch_flatten": lambda call, values, dtype: values[0].reshape(values[0].shape[0], -1),
    "relax.permute_dims": _permute_dims,
    "relax.squeeze": _squeeze,
    "relax.expand_dims": _expand_dims,
    "relax.broadcast_to": _plain(np.broadcast_to),
    "relax.concat": _concat,
    "relax.split": _split,
    "relax.strided_slice": _strided_slice,
    "relax.take": _take,
    "relax.astype": lambda call, values, dtype: converted(values[0], dtype),
    "relax.clip": _clip,
    "relax.quantize": _quantize,
    "relax.where": _plain(np.where),
    "relax.divide": _divide,
    "relax.floor_divide": _floor_divide,
    "relax.mod": _integer_modulo(np.fmod),
    "relax.floor_mod": _integer_modulo(np.mod),
    "relax.matmul": _matmul,
    "relax.arange": lambda call, values, dtype: np.arange(*values).astype(dtype),
    "relax.full": _filled(None),
    "relax.full_like": _filled(None),
    "relax.zeros": _filled(0),
    "relax.zeros_like": _filled(0),
    "relax.ones": _filled(1),
    "relax.ones_like": _filled(1),
    "relax.shape_to_tensor": lambda call, values, dtype: np.array(values[0], dtype),
    "relax.erf": _float_only(_erf),
    "relax.sigmoid": _float_only(lambda x: np.where(x >= 0, 1.0, np.exp(-abs(x))) / (1.0 + np.exp(-abs(x)))),
    "relax.rsqrt": _float_only(lambda x: 1.0 / np.sqrt(x)),
    "relax.nn.relu": _numeric(lambda x: np.maximum(x, x.dtype.type(0))),
    **{
        f"relax.{n}": _float_only(getattr(np, n))
        for n in ("exp", "log", "sqrt", "tanh", "sin", "cos", "floor", "ceil", "trunc")
    },
    **{f"relax.{n}": _numeric(getattr(np, n)) for n in ("add", "subtract", "multiply", "power", "maximum", "minimum")},
    **{f"relax.{n}": _numeric(getattr(np, n)) for n in ("negative", "abs", "square")},
    **{f"relax.{n}": _plain(getattr(np, n)) for n in ("equal", "not_equal", "less", "less_equal", "greater")},
    **{f"relax.{n}": _plain(getattr(np, n)) for n in ("greater_equal", "logical_and", "logical_or", "logical_not")},
    **{f"relax.{n}": _reduction(getattr(np, n)) for n in ("sum", "mean", "max", "min", "prod")},
}
"""Relax operator name -> its evaluator. `relax.dequantize` is left out on purpose."""
