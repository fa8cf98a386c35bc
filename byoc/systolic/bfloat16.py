"""Numbers of bfloat16 as their bits, uint16: numpy by itself has no such dtype. It is the upper half of a float32."""

from __future__ import annotations

import numpy as np


def to_bits(values: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bfloat16, of two equally near ones to the even one; a NaN stays one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """The same numbers in float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
