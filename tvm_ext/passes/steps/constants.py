"""Looking at constants without copying them, and making new ones: shared steps of the simplification passes."""

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of, shape_of

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMPY_DTYPES = frozenset(["bool", "float16", "float32", "float64", *_INTEGERS])
"""dtypes that plain numpy computes with."""


def view_of(expr: Any) -> np.ndarray | None:
    """The value of a constant as a read-only numpy view; None for anything else, or a dtype numpy lacks."""
    if not isinstance(expr, GenericConst) or dtype_of(expr) not in NUMPY_DTYPES:
        return None
    try:
        view = np.from_dlpack(expr.value)
    except (BufferError, RuntimeError, TypeError):  # numpy before 2.0 has no bool there
        view = expr.value.numpy()
    view.flags.writeable = False
    return view


def constant(value: np.ndarray, dtype: str | None = None) -> GenericConst:
    """A constant of `value`, rounded to `dtype` if given."""
    array = np.ascontiguousarray(value, dtype=dtype).reshape(value.shape)
    # Of a numpy array, relax.const makes one more copy, and narrows int64 and float64.
    return relax.const(tvm.runtime.tensor(array), str(array.dtype))


def filled_with(expr: Any, value: float) -> bool:
    """Whether `expr` is a constant and every element of it equals `value`."""
    view = view_of(expr)
    if view is None or view.size == 0 or view.flat[0] != value:
        return False
    return bool((view == value).all())


def same_type(first: Any, other: Any) -> bool:
    """Whether two expressions have the same dtype and shape, symbolic dimensions included."""
    return bool(tvm_ffi.structural_equal(first.ty, other.ty))


def channel_vector(expr: Any, rank: int, axis: int, channels: int) -> np.ndarray | None:
    """The constant `expr`, broadcast into a tensor of `rank` dimensions, as float64 vector over dimension `axis`.

    None if it is no constant of a numpy dtype, or differs along any other dimension.
    """
    shape, view = shape_of(expr), view_of(expr)
    if view is None or shape is None or len(shape) > rank:
        return None
    full = (1,) * (rank - len(shape)) + shape
    if full[axis] not in (1, channels) or any(d != 1 for i, d in enumerate(full) if i != axis):
        return None
    return np.broadcast_to(view.reshape(-1).astype(np.float64), (channels,))


def channel_constant(vector: np.ndarray, rank: int, axis: int, dtype: str) -> GenericConst:
    """`vector` as a constant of shape (1, ..., C, ..., 1), with C at dimension `axis`."""
    shape = [1] * rank
    shape[axis] = vector.size
    with np.errstate(over="ignore"):
        return constant(vector.reshape(shape), dtype)
