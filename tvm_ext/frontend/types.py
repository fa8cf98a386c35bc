"""ONNX's types of values that are converted already, for definitions of operators that depend on them."""

from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..core.graph.relax_graph import dtype_of, shape_of
from .control_flow.counted import Counted
from .control_flow.sequences import TensorList, is_tensor
from .control_flow.subgraph import as_tensor


def type_of(value: Any, dtype: str = "") -> onnx.TypeProto:
    """The type of a value.

    Args:
        value: a Relax expression or a sequence.
        dtype: of its elements, where that is not the one that the program holds them in.

    Returns:
        A tensor type, with a name for a size that values decide, or a sequence type; an empty one of anything else.
    """
    value = as_tensor(value)
    if isinstance(value, TensorList):
        element = helper.make_tensor_type_proto(_code(value.dtype), None)
        if value.elements and len({shape_of(e) for e in value.elements}) == 1:
            element = type_of(value.elements[0])
        return helper.make_sequence_type_proto(element)
    if isinstance(value, Counted):
        dims = [value.size if axis == value.axis else size for axis, size in enumerate(shape_of(value.tensor) or ())]
        return helper.make_tensor_type_proto(_code(dtype or dtype_of(value.tensor)), dims)
    if not is_tensor(value) or not (element := dtype or dtype_of(value)):
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(_code(element), shape_of(value))


def dtype_name(kind: onnx.TypeProto) -> str:
    """numpy's name, or ml_dtypes', of a tensor type's elements; "" of anything else."""
    code = kind.tensor_type.elem_type
    return str(helper.tensor_dtype_to_np_dtype(code)) if code else ""


def _code(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
