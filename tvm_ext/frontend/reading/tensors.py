"""Initializers as numpy arrays: sizes checked against what they state, NaN and Inf counted."""

import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...core.errors import ModelError, UnsupportedError
from .shapes import NO_NUMBERS, type_name

_DAMAGED = "the tensor is not stored as ONNX says: export the model again, or write it with numpy_helper.from_array"


def array_of(tensor: onnx.TensorProto, owner: str, model: str) -> np.ndarray:
    """The value of a tensor whose data is inside, without a copy where the format allows.

    Args:
        owner: whose tensor it is, for messages.

    Raises:
        ModelError: it holds more or less data than its shape and dtype state.
        UnsupportedError: strings, complex numbers, or floats of 6 bits.
    """
    _check_type(tensor, owner, model)
    expected, held, unit = _amounts(tensor)
    if expected != held:
        what = f"{model}: {owner} of shape {tuple(tensor.dims)} and type {type_name(tensor.data_type)}"
        raise ModelError(f"{what} needs {expected} {unit} and has {held}", fix=_DAMAGED)
    return numpy_helper.to_array(tensor)


def _check_type(tensor: onnx.TensorProto, owner: str, model: str) -> None:
    name = type_name(tensor.data_type)
    if tensor.data_type == 0 or tensor.data_type not in onnx.TensorProto.DataType.values():
        raise ModelError(f"{model}: {owner} has element type {name}, which ONNX does not know", fix=_DAMAGED)
    if name in NO_NUMBERS:
        raise UnsupportedError(f"{model}: {owner} has elements of type {name}", fix="give the model numbers instead")
    if any(d < 0 for d in tensor.dims):
        raise ModelError(f"{model}: {owner} has shape {tuple(tensor.dims)}", fix=_DAMAGED)


def _amounts(tensor: onnx.TensorProto) -> tuple[int, int, str]:
    """(what the shape needs, what is held, unit)."""
    count, bits = math.prod(tensor.dims), bits_of(tensor.data_type)
    if tensor.HasField("raw_data"):
        return (count * bits + 7) // 8, len(tensor.raw_data), "bytes"
    held = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
    return math.ceil(count * bits / 8) if bits < 8 else count, held, "values"


def bits_of(code: int) -> int:
    """Bits one element takes in raw data."""
    digits = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}
    return digits.get(type_name(code)) or int(onnx.helper.tensor_dtype_to_np_dtype(code).itemsize) * 8


def count_nonfinite(array: np.ndarray) -> str:
    """What of a float array is NaN or infinite, in words; "" if nothing is."""
    if array.size == 0 or array.dtype.kind not in "fV":
        return ""
    if array.dtype.kind == "V":  # the small floats of ml_dtypes
        array = array.astype(np.float32)
    if np.isfinite(array).all():
        return ""
    nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    counts = [f"{n} {what}" for n, what in ((nan, "NaN"), (inf, "Inf")) if n]
    return f"{' and '.join(counts)} among {array.size} values"
