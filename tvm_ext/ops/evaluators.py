"""What Relax operators compute, in numpy: the evaluators that rows name, behind constant folding.

Floating point goes through float64 and is rounded once, integers wrap as on the machine. What an operator does not
define (integer division by zero) is not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .attributes import attrs_of
from .conversion import converted, quantized

if TYPE_CHECKING:
    from tvm.ir import Call


class NotEvaluated(Exception):
    """The operator is known, but has no defined or portable value for these operands; says why."""


Evaluator = Callable[[Any, Sequence[Any], np.dtype], Any]
"""(call, operand values, dtype of the result) -> an array, or a list of arrays for a tuple."""


def evaluate(evaluator: Evaluator, call: Call, values: Sequence[Any], dtype: str) -> np.ndarray | list[np.ndarray]:
    """The value of an operator call.

    Args:
        evaluator: of its operator.
        values: one value an argument: array, number, tuple of integers (a shape), list (a tuple of tensors).
        dtype: of the result, or of the first item of a tuple.

    Raises:
        NotEvaluated: see there.
    """
    want = np.dtype(dtype)
    try:
        with np.errstate(all="ignore"):
            result = evaluator(call, values, want)
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
def on_numbers(fn: Callable[..., Any]) -> Evaluator:
    """A function of numpy on anything but truth values; floats in float64."""

    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        if any(isinstance(v, np.ndarray) and v.dtype == bool for v in values):
            raise NotEvaluated("arithmetic on bool")
        return fn(*map(_wide, values))

    return run


def plainly(fn: Callable[..., Any]) -> Evaluator:
    """A function of numpy on what the operands are."""
    return lambda call, values, dtype: fn(*values)


def along(fn: Callable[..., Any], axes: str) -> Evaluator:
    """A function of numpy of one operand and of axes, an attribute of that name in Relax and in numpy."""
    return lambda call, values, dtype: fn(values[0], **attrs_of(call, [axes]))


def on_floats(fn: Callable[..., Any]) -> Evaluator:
    """A function of numpy on floats, in float64."""

    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        if dtype.kind != "f":
            raise NotEvaluated(f"defined on floats, not on {dtype}")
        return fn(*map(_wide, values))

    return run


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x), without a power that overflows."""
    small = np.exp(-abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _check_divisor(a: np.ndarray, b: np.ndarray) -> None:
    if np.any(b == 0):
        raise NotEvaluated("integer division by zero")
    if a.dtype.kind == "i" and np.any(a == np.iinfo(a.dtype).min) and np.any(b == -1):
        raise NotEvaluated("the smallest integer divided by -1 overflows")


def divide(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Quotients; of integers cut off towards zero."""
    a, b = values
    if a.dtype.kind == "f":
        return np.divide(_wide(a), _wide(b))
    _check_divisor(a, b)
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0))).astype(dtype)  # towards zero, as in C


def floor_divide(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Quotients rounded down."""
    a, b = values
    if a.dtype.kind == "f":
        return np.floor(np.divide(a, b))  # the quotient is rounded before the floor, so not in float64
    _check_divisor(a, b)
    return np.floor_divide(a, b)


def on_integers(fn: Callable[..., Any]) -> Evaluator:
    """A remainder of integers."""

    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        if dtype.kind not in "iu":
            raise NotEvaluated(f"remainder of {dtype}")
        _check_divisor(*values)
        return fn(*values)

    return run


def astype(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Values in another type."""
    return converted(values[0], dtype)


def clip(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Values within two bounds."""
    x, low, high = values
    return np.clip(x, np.asarray(low).astype(dtype), np.asarray(high).astype(dtype))


def quantize(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Whole numbers of a scale."""
    x, scale, zero = values
    return quantized(x, scale, zero, int(call.attrs.axis), str(dtype))


# ------------------------------------------------------------ data movement
def concat(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Tensors side by side."""
    axis = call.attrs.axis
    return np.concatenate([v.ravel() for v in values[0]] if axis is None else values[0], int(axis or 0))


def split(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Parts along an axis."""
    attrs = attrs_of(call, ["indices_or_sections", "axis"])
    return list(np.split(values[0], attrs["indices_or_sections"], attrs["axis"]))


def strided_slice(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """What begin, end and strides pick."""
    x, axes, begin, end = values[:4]
    strides = values[4] if len(values) > 4 else [1] * len(axes)
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, begin, end, strides, strict=True):
        index[int(axis)] = slice(*map(int, bounds))
    return x[tuple(index)]


def take(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Indices of an axis."""
    x, index = values
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    limit = x.size if axis is None else x.shape[axis]
    if str(call.attrs.mode) == "clip":
        index = np.clip(index, 0, limit - 1)
    elif np.any((np.asarray(index) < 0) | (np.asarray(index) >= limit)):
        raise NotEvaluated(f"an index lies outside 0 .. {limit - 1}")
    return np.take(x, index, axis)


# ------------------------------------------------------------ reductions and products
def reduction(fn: Callable[..., Any]) -> Evaluator:
    """A reduction of numpy, in float64 of floats."""

    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        attrs = attrs_of(call, ["axis", "keepdims"])
        wide = {"dtype": np.float64 if dtype.kind == "f" else dtype} if fn in (np.sum, np.mean, np.prod) else {}
        if fn is np.mean and dtype.kind != "f":
            raise NotEvaluated(f"mean of {dtype}")
        return fn(values[0], axis=attrs["axis"], keepdims=bool(attrs["keepdims"]), **wide)

    return run


def matmul(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """A product of matrices."""
    return np.matmul(*(v.astype(np.float64 if dtype.kind == "f" else dtype) for v in values))


# ------------------------------------------------------------ creation
def filled(value: float | None) -> Evaluator:
    """A tensor of one number; None: of the second operand."""

    def run(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
        shape = values[0] if isinstance(values[0], tuple) else values[0].shape
        return np.full(shape, values[1] if value is None else value, dtype)

    return run


def arange(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """Numbers of equal distance."""
    return np.arange(*values).astype(dtype)


def shape_to_tensor(call: Call, values: Sequence[Any], dtype: np.dtype) -> Any:
    """The extents of a shape."""
    return np.array(values[0], dtype)
