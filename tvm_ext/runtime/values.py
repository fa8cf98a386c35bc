"""Values of a run: as callers have them, as the tensors of a program that they are, and the errors of those that do not
fit.

A sequence is a list of tensors, which are named by their places; an optional without an element is None.

    {"seq": [a, b], "opt": None, "x": c}   <->   {"seq[0]": a, "seq[1]": b, "x": c}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InputError

if TYPE_CHECKING:
    from .interface import TensorSpec

#: Kinds of values.
TENSOR, SEQUENCE, ABSENT = "tensor", "sequence", "absent"
#: numpy's name of a dtype (or ml_dtypes') -> ONNX's, where they differ.
ONNX_TYPES = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2", "float8_e5m2fnuz": "float8e5m2fnuz", "float4_e2m1fn": "float4e2m1",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """An input or output as callers have it.

    Attributes:
        name: in the model.
        kind: "tensor", "sequence" or "absent".
        type: as onnxruntime writes it: "seq(tensor(float))".
        tensors: names of the tensors that it is, in order.
    """

    name: str
    kind: str
    type: str
    tensors: tuple[str, ...]


def element_of(name: str, place: int) -> str:
    """The name of an element of a sequence."""
    return f"{name}[{place}]"


def plain_values(specs: Iterable[TensorSpec]) -> tuple[Value, ...]:
    """Inputs or outputs all of which are tensors."""
    typed = ((spec.name, f"tensor({ONNX_TYPES.get(spec.dtype, spec.dtype)})") for spec in specs)
    return tuple(Value(name, TENSOR, kind, (name,)) for name, kind in typed)


def tensors_of(values: Mapping[str, Any], taken: Sequence[Value]) -> dict[str, Any]:
    """The tensors of a call by their names.

    Args:
        values: by the names of `taken`; or by those of the tensors. What is absent, or empty, may be left out.
        taken: the inputs of the program.

    Raises:
        InputError: a name is missing or unknown, a value is of another kind, or a sequence of another length.
    """
    tensors: dict[str, Any] = {}
    known = set()
    for value in taken:
        whole = value.name in values
        elements = _elements(values[value.name], value) if whole else [values.get(name) for name in value.tensors]
        there = [name for name in value.tensors if whole or name in values]
        tensors.update((name, x) for name, x in zip(value.tensors, elements, strict=True) if name in there)
        known.update([value.name] if whole else there)
    unknown = [name for name in values if name not in known]
    missing = {value.name for value in taken if any(name not in tensors for name in value.tensors)}
    if missing or unknown:
        names = [value.name for value in taken]
        raise names_error([*(name for name in names if name not in missing), *unknown], names)
    return tensors


def _elements(whole: Any, value: Value) -> Sequence[Any]:
    """The tensors of one value.

    Raises:
        InputError: it is of another kind than the program was compiled for, or of another length.
    """
    what = f"input {value.name!r}, {value.type},"
    if value.kind == ABSENT:
        if whole is not None:
            wrong = f"{what} is {type(whole).__name__}, and the program was compiled without it"
            fix = f"pass None, or compile the model with its shape: shapes={{{value.name!r}: ...}}"
            raise InputError(wrong, fix=fix)
        return ()
    if whole is None and value.type.startswith("optional("):
        fix = f"shapes={{{value.name!r}: None}} compiles the model without it"
        raise InputError(f"{what} is None, and the program was compiled with it", fix=fix)
    if value.kind == TENSOR:
        return (whole,)
    length = len(value.tensors)
    if not isinstance(whole, list | tuple):
        raise InputError(f"{what} is {type(whole).__name__}", fix=f"pass a list of {length} arrays")
    if len(whole) != length:
        fix = f"compile the model for this length: shapes={{{value.name!r}: [a shape for each of {len(whole)}]}}"
        raise InputError(f"{what} has {len(whole)} elements; the program takes {length}", fix=fix)
    return whole


def values_of(tensors: Mapping[str, Any], values: Iterable[Value]) -> dict[str, Any]:
    """Values as callers have them: an array, a list of arrays, or None."""
    return {value.name: _whole(value, tensors) for value in values}


def _whole(value: Value, tensors: Mapping[str, Any]) -> Any:
    if value.kind == ABSENT:
        return None
    elements = [tensors[name] for name in value.tensors]
    return elements if value.kind == SEQUENCE else elements[0]


def spread(values: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of values by their names, whatever they are values of; None has none."""
    tensors: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            tensors.update((element_of(name, place), element) for place, element in enumerate(value))
        elif value is not None:
            tensors[name] = value
    return tensors


def described(values: Iterable[Value], specs: Iterable[TensorSpec]) -> list[tuple[str, str]]:
    """Name of each value, and what it is: "float32[2, 3]", "[float32[2, 3], float32[1, 3]]" or "None"."""
    texts = {spec.name: str(spec) for spec in specs}
    written = values_of(texts, values)
    return [(name, f"[{', '.join(text)}]" if isinstance(text, list) else str(text)) for name, text in written.items()]


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
