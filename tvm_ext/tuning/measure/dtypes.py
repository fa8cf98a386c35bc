"""Arrays of every dtype that tensors are stored in: numpy's own, and bfloat16, which numpy takes for raw bytes.

numpy calls bfloat16 a void of two bytes: its kind is "V", a file gives it back as such, and DLPack does not know it.
"""

from typing import Any

import numpy as np

from ...runtime.memory.arrays import to_tensor, zero_copy
from ...verification.metrics import TOLERANCES


def is_float(dtype: Any) -> bool:
    """Whether numbers of a dtype are rounded: float64, float32, float16 or bfloat16."""
    return np.dtype(dtype).name in TOLERANCES


def poison_of(dtype: Any) -> Any:
    """A value that no kernel computes of random inputs, where the dtype has one: NaN, else one below the largest."""
    dtype = np.dtype(dtype)
    if is_float(dtype):
        return np.array(np.nan, dtype)
    return np.array(True if dtype.kind == "b" else np.iinfo(dtype).max - 1, dtype)


def bits_of(array: np.ndarray) -> np.ndarray:
    """The same memory, of bfloat16 as unsigned integers; kernels do not ask an argument for its dtype."""
    return array if is_native(array) else array.view(f"u{array.itemsize}")


def is_native(array: np.ndarray) -> bool:
    """Whether numpy's files and DLPack know the dtype; a file gives any other back as bytes: view them."""
    return array.dtype.kind in "biuf" and array.dtype.type.__module__ == "numpy"


def lent(array: np.ndarray) -> Any:
    """A TVM tensor over an aligned array's own memory."""
    bits = bits_of(array)
    assert zero_copy(bits.dtype, bits.shape) or not bits.size
    return to_tensor(bits)
