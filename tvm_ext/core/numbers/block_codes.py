"""How weights of few bits lie in memory: in the order in which a row of outputs consumes them.

Vectors of outputs stand side by side, so that what a register tile reads of a block, and of the next one, is one
stream; words of 32 bits, so that a vector of words is of as many outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ops.block_weights import unpacked
from ..layout import OpaqueLayout


@dataclass(frozen=True)
class _Streamed(OpaqueLayout):
    """Outputs first, blocks of a row behind them; outputs beyond the last one are zeros.

    Attributes:
        lanes: outputs of a vector.
        side: vectors that stand side by side.
    """

    lanes: int = 16
    side: int = 1

    def _groups(self, rows: int) -> int:
        return -(-rows // (self.lanes * self.side))

    def _padded(self, array: np.ndarray) -> np.ndarray:
        short = -len(array) % (self.lanes * self.side)
        return np.concatenate([array, np.zeros((short, *array.shape[1:]), array.dtype)]) if short else array


@dataclass(frozen=True)
class PackedCodes(_Streamed):
    """Codes of a weight, for kernels that stream it once and unpack it in registers.

    Logical (N, blocks, bytes) of uint8 -> physical (N / lanes / side, blocks, side, bytes / 4, lanes) of int32. Code k
    of a word is the bits from 8 * (k % 4) + bits * (k // 4) on: shifted by a multiple of `bits` and masked, its bytes
    are four neighbours of a row, as dot products of bytes want them.

    Attributes:
        bits: of a code.
    """

    bits: int = 4

    @staticmethod
    def make(bits: int, lanes: int, side: int) -> PackedCodes:
        """For codes of so many bits."""
        return PackedCodes((0, 1, 2), None, lanes, side, bits)

    def __str__(self) -> str:
        return f"NBK{self.side}x{self.lanes}n{32 // self.bits}k"

    def element_type(self, dtype: str) -> str:
        return "int32"

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        rows, blocks, size = shape
        return (self._groups(rows), blocks, self.side, size // 4, self.lanes)

    def pack(self, array: np.ndarray) -> np.ndarray:
        array = self._padded(array)
        rows, blocks, size = array.shape
        parts = unpacked(array, self.bits).reshape(rows, blocks, size // 4, 8 // self.bits, 4)
        words = np.zeros((rows, blocks, size // 4, 4), np.uint8)
        for part in range(8 // self.bits):
            words |= parts[..., part, :] << (self.bits * part)
        whole = words.view("<i4").reshape(-1, self.side, self.lanes, blocks, size // 4)
        return np.ascontiguousarray(whole.transpose(0, 3, 1, 4, 2))


@dataclass(frozen=True)
class PackedScales(_Streamed):
    """Scales or zero points of a weight: logical (N, blocks) -> physical (N / lanes / side, blocks, side, lanes).

    Attributes:
        widened: whether halves lie as float32.
    """

    widened: bool = False

    @staticmethod
    def make(lanes: int, side: int, widened: bool) -> PackedScales:
        """For kernels of so many lanes."""
        return PackedScales((0, 1), None, lanes, side, widened)

    def __str__(self) -> str:
        return f"NB{self.side}x{self.lanes}n"

    def element_type(self, dtype: str) -> str:
        return "float32" if self.widened else dtype

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (self._groups(shape[0]), shape[1], self.side, self.lanes)

    def pack(self, array: np.ndarray) -> np.ndarray:
        array = self._padded(array.astype("float32") if self.widened else array)
        whole = array.reshape(-1, self.side, self.lanes, array.shape[1])
        return np.ascontiguousarray(whole.transpose(0, 3, 1, 2))
