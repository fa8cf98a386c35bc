"""onnxruntime's values (`OrtValue`) and numpy's arrays, of every element type that both have."""

from typing import Any

import numpy as np

from ...core.errors import InputError
from ...runtime.memory.arrays import memory_at
from .node_args import dtype_of

_CODES = {"bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20}
"""ONNX's codes of types that onnxruntime has no arrays of: it takes, and gives, their bits."""


def is_ort_value(value: Any) -> bool:
    """Whether it is one of onnxruntime's values, of either of its classes; onnxruntime is not imported."""
    return type(value).__name__ == "OrtValue" and type(value).__module__.startswith("onnxruntime.")


def has_arrays(dtype: np.dtype[Any] | None) -> bool:
    """Whether onnxruntime takes and gives arrays of a dtype; None stands for what is no tensor of numbers."""
    return dtype is None or str(dtype) not in _CODES


def ort_value_of(array: Any) -> Any:
    """The array as an `onnxruntime.OrtValue` on the CPU, over the same memory where that is contiguous.

    Raises:
        InputError: it is a sequence or a map.
    """
    import onnxruntime

    if not isinstance(array, np.ndarray | np.generic):
        raise InputError(f"{type(array).__name__} has no OrtValue here: only tensors have", fix="call run")

    array = np.ascontiguousarray(array).reshape(array.shape)  # numpy makes one dimension of none
    if has_arrays(array.dtype):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(f"u{array.dtype.itemsize}")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _CODES[str(array.dtype)])


def array_of(value: Any, what: str) -> Any:
    """The array of an OrtValue; what is no tensor of numbers as onnxruntime gives it.

    Args:
        value: the OrtValue.
        what: it is, for messages: "input 'x'".

    Raises:
        InputError: it holds nothing, or lies in another memory than the CPU's.
    """
    if not value.has_value():
        raise InputError(f"{what} is an OrtValue without a value", fix="OrtValue.ortvalue_from_numpy(array)")
    dtype = dtype_of(value.data_type())
    return value.numpy() if has_arrays(dtype) else memory_of(value, what).copy()


def memory_of(value: Any, what: str) -> np.ndarray:
    """The memory of an OrtValue that is a tensor of numbers; what is written to it is the value.

    Raises:
        InputError: it lies in another memory than the CPU's, or is no tensor of numbers.
    """
    tensor = is_ort_value(value) and value.has_value() and value.is_tensor()
    dtype = dtype_of(value.data_type()) if tensor else None
    if dtype is None or value.device_name().lower() != "cpu":
        wrong = f"{what} is {type(value).__name__}; an OrtValue that is a tensor of numbers on the CPU is needed"
        raise InputError(wrong, fix="OrtValue.ortvalue_from_numpy(array)")
    return memory_at(value.data_ptr(), value.shape(), dtype, value)
