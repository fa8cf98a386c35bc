"""Conversions in numpy: floats cut off to whole numbers, as kernels do it (:func:`tvm_ext.ops.scalars.functions.cast`);
relax.quantize and relax.dequantize, in float32 as kernels and onnxruntime compute them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Integers of 2 and 4 bits, dtypes of ml_dtypes -> bits.
NARROW = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}


def converted(x: np.ndarray, dtype: Any) -> np.ndarray:
    """An array in another dtype; floats that fit no whole number, NaN among them, as x86-64 and onnxruntime have them.

    What does not fit is the least number of int32, of int64 if uint32 or 64 bits are asked for, and of that the low
    bits are left. numpy itself says nothing of these, and gives several answers, ml_dtypes others by its version.
    """
    to = np.dtype(dtype)
    if (bits := NARROW.get(to.name)) and x.dtype.kind not in "b":
        whole = x if x.dtype.kind in "iu" or x.dtype.name in NARROW else _cut(x.astype(np.float64), np.int32)
        low, sign = whole.astype(np.int64) & ((1 << bits) - 1), 1 << (bits - 1)
        return (low if to.name.startswith("u") else (low ^ sign) - sign).astype(to)
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


# ------------------------------------------------------------ a scale and a zero point
def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int, dtype: str) -> np.ndarray:
    """saturate(round(x / scale) + zero), halves to even; of NaN the smallest number."""
    info, start = np.iinfo(dtype), along(zero, axis, x).astype(np.int64)
    with np.errstate(all="ignore"):
        steps = x.astype(np.float32) / along(scale, axis, x).astype(np.float32)
    low, high = info.min - start, info.max - start
    steps = np.where(steps > low, steps, low)  # a comparison with NaN is false
    return np.asarray(np.rint(np.where(steps < high, steps, high)).astype(np.int64) + start, dtype)


def dequantized(q: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int) -> np.ndarray:
    """(q - zero) * scale."""
    steps = q.astype(np.int64) - along(zero, axis, q).astype(np.int64)
    with np.errstate(over="ignore"):
        return np.asarray(steps.astype(np.float32) * along(scale, axis, q).astype(np.float32), np.float32)


def along(parameter: np.ndarray, axis: int, x: np.ndarray) -> np.ndarray:
    """One number, or one for each index of an axis, as it broadcasts over x."""
    if parameter.size == 1:
        return parameter.reshape(())
    shape: Sequence[int] = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    return parameter.reshape(shape)
