"""Floats cut off to whole numbers in numpy, as kernels do it (:func:`tvm_ext.ops.scalars.functions.cast`)."""

from __future__ import annotations

from typing import Any

import numpy as np


def converted(x: np.ndarray, dtype: Any) -> np.ndarray:
    """An array in another dtype; floats that fit no whole number, NaN among them, as x86-64 and onnxruntime have them.

    What does not fit is the least number of int32, of int64 if uint32 or 64 bits are asked for, and of that the low
    bits are left. numpy itself says nothing of these, and gives several answers.
    """
    to = np.dtype(dtype)
    if x.dtype.kind in "iub" or to.kind not in "iu":
        return x.astype(to)
    x = x.astype(np.float64)
    if to == np.uint64:
        upper = x >= 2.0**63
        return np.where(upper, _cut(x - 2.0**63, np.int64) ^ np.iinfo(np.int64).min, _cut(x, np.int64)).astype(to)
    return _cut(x, np.int64 if to.itemsize == 8 or to == np.uint32 else np.int32).astype(to)


def _cut(x: np.ndarray, wide: Any) -> np.ndarray:
    least = np.iinfo(wide).min
    inside = np.abs(x) < -float(least)
    return np.where(inside, np.where(inside, x, 0.0).astype(wide), wide(least))
