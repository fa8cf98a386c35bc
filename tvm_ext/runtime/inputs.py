"""Inputs of a run: values as arrays, and the errors of those that do not fit."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError


def as_array(value: Any, name: str) -> np.ndarray:
    """The value of an input as numpy sees it.

    Raises:
        InputError: it is None, or nothing that numpy makes an array of.
    """
    if value is None:
        raise InputError(f"input {name!r} is None, not an array", fix="every input of the model needs a value")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"input {name!r}: {type(value).__name__} is no array: {error}") from error


def named(values: Any, what: str) -> Mapping[str, Any]:
    """What was passed by name; nothing of None.

    Raises:
        InputError: it is no mapping.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(f"{what} is {type(values).__name__}", fix="pass a dict: name -> array")
    return values


def names_error(names: Sequence[Any], expected: Sequence[str], fix: str = "") -> InputError:
    """The error of inputs whose names are not those that the model has."""
    missing = [name for name in expected if name not in names]
    unknown = [name for name in names if name not in expected]
    parts = [f"missing {missing}"] * bool(missing) + [f"unknown {unknown}"] * bool(unknown)
    return InputError(f"inputs do not fit: {' and '.join(parts)}", fix=fix or f"the model takes {list(expected)}")


def in_native_order(value: Any, array: np.ndarray, name: str, dtype: np.dtype[Any]) -> np.ndarray:
    """The array in a dtype that it has already, or has in the other byte order.

    Raises:
        InputError: it has another one; `array` is the value as numpy sees it.
    """
    if array.dtype.newbyteorder("=") != dtype:
        raise dtype_error(value, array, name, dtype)
    return array.astype(dtype, copy=False)


def dtype_error(value: Any, array: np.ndarray, name: str, dtype: np.dtype[Any]) -> InputError:
    """The error of an input of another dtype; `array` is the value as numpy sees it."""
    wanted = "bool" if dtype.kind == "b" else f"{'ml_dtypes' if dtype.kind == 'V' else 'np'}.{dtype}"
    fix = f"pass x.astype({wanted})" if isinstance(value, np.ndarray) else f"pass np.asarray(x, {wanted})"
    return InputError(f"input {name!r} has dtype {array.dtype}, the model takes {dtype}", fix=fix)


def shape_error(array: np.ndarray, name: str, shape: Sequence[int | str | None]) -> InputError:
    """The error of an input of another shape; free dimensions of `shape` are names, or None."""
    wanted = f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
    if array.ndim != len(shape):
        rank = f"{array.ndim} dimensions, {list(array.shape)}; the model takes {wanted}"
    else:
        axis = next(i for i, dim in enumerate(shape) if isinstance(dim, int) and dim != array.shape[i])
        rank = f"shape {list(array.shape)}; the model takes {wanted}: dimension {axis} is {array.shape[axis]}"
        rank += f", not {shape[axis]}"
    fixed = all(isinstance(dim, int) for dim in shape)
    fix = "compile the model with shapes={...} for another shape" if fixed else "give the dimensions that are numbers"
    if fixed and array.size == math.prod(dim for dim in shape if isinstance(dim, int)):
        fix = f"the number of elements fits: pass x.reshape({tuple(shape)})"
    return InputError(f"input {name!r} has {rank}", fix=fix)
