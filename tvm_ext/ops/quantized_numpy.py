"""relax.quantize and relax.dequantize in numpy, in float32 as kernels and onnxruntime compute them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
