"""How weights of few bits lie in memory: words of 32 bits, so that a vector of words is of as many outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops.block_weights import unpacked
from ..layout import Layout


@dataclass(frozen=True)
class PackedCodes(Layout):
    """Codes of a weight, for kernels that stream it once and unpack it in registers.

    Logical (N, blocks, bytes) of uint8 -> physical (N / lanes, blocks, bytes / 4, lanes) of int32. Code k of a word is
    the bits from 8 * (k % 4) + bits * (k // 4) on: shifted by a multiple of `bits` and masked, its bytes are four
    neighbours of a row, as dot products of bytes want them. Outputs beyond N have codes of 0.

    Attributes:
        bits: of a code.
        lanes: outputs of a vector.
    """

    bits: int = 4
    lanes: int = 16

    @staticmethod
    def make(bits: int, lanes: int) -> PackedCodes:
        """For codes of so many bits."""
        return PackedCodes((0, 1, 2), None, bits, lanes)

    def __str__(self) -> str:
        return f"NBK{self.lanes}n{32 // self.bits}k"

    def element_type(self, dtype: str) -> str:
        return "int32"

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        rows, blocks, size = shape
        return (-(-rows // self.lanes), blocks, size // 4, self.lanes)

    def index(self, logical: Sequence[Any]) -> tuple[Any, ...]:
        raise TypeError("packed codes are read by their kernel only, through physical indices")

    def pack(self, array: np.ndarray) -> np.ndarray:
        rows, blocks, size = array.shape
        short = -rows % self.lanes
        array = np.pad(array, ((0, short), (0, 0), (0, 0)))
        parts = unpacked(array, self.bits).reshape(rows + short, blocks, size // 4, 8 // self.bits, 4)
        words = np.zeros((rows + short, blocks, size // 4, 4), np.uint8)
        for part in range(8 // self.bits):
            words |= parts[..., part, :] << (self.bits * part)
        whole = words.view("<i4").reshape(-1, self.lanes, blocks, size // 4)
        return np.ascontiguousarray(whole.transpose(0, 2, 3, 1))
