"""Matrices of a language model: floats, or numbers of few bits in blocks as MatMulNBits has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BlockMatrix:
    """A matrix (N, K): (code - zero) * scale, the zero point being `points`, or half of the codes.

    Attributes:
        codes: (N, blocks, block * bits / 8) of uint8, the lowest bits first.
        scales: (N, blocks) of float32.
        points: the same; None for 2 ** (bits - 1).
        bits: of a code, 4 or 8.
        depth: K.
    """

    codes: np.ndarray
    scales: np.ndarray
    points: np.ndarray | None
    bits: int
    depth: int

    @property
    def block(self) -> int:
        """Numbers of a row with one scale."""
        return int(self.codes.shape[2]) * 8 // self.bits

    @property
    def rows(self) -> int:
        """N."""
        return len(self.codes)

    def alike(self, matrix: Matrix) -> bool:
        """Whether rows of a matrix may stand behind its own."""
        if not isinstance(matrix, BlockMatrix):
            return False
        own, theirs = ((m.bits, m.block, m.depth, m.points is None) for m in (self, matrix))
        return own == theirs


Matrix = BlockMatrix | np.ndarray
"""(N, K), of float32 where it is an array."""


def joined(matrices: Sequence[Matrix]) -> Matrix | None:
    """The rows of all; None if they are not alike."""
    first = matrices[0]
    if isinstance(first, np.ndarray):
        arrays = [m for m in matrices if isinstance(m, np.ndarray)]
        return np.concatenate(arrays) if len(arrays) == len(matrices) else None
    blocks = [m for m in matrices if isinstance(m, BlockMatrix) and first.alike(m)]
    if len(blocks) < len(matrices):
        return None
    points = None if first.points is None else np.concatenate([m.points for m in blocks if m.points is not None])
    codes, scales = (np.concatenate([getattr(m, name) for m in blocks]) for name in ("codes", "scales"))
    return BlockMatrix(codes, scales, points, first.bits, first.depth)


def nibbles(codes: np.ndarray) -> np.ndarray:
    """Numbers of 4 bits, two a byte, the first in the lower half."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def in_blocks(matrix: np.ndarray, bits: int, block: int) -> BlockMatrix:
    """A matrix of floats rounded to codes around the middle: the largest of a block is as far from 0 as one can be.

    Scales are numbers of float16, so that they can be stored as such, unless that would make one of the matrix 0,
    infinite or of fewer digits.
    """
    rows, depth = matrix.shape
    wide = np.pad(matrix.astype(np.float32), ((0, 0), (0, -depth % block))).reshape(rows, -1, block)
    middle = 1 << (bits - 1)
    place = np.abs(wide).argmax(-1)[..., None]
    scales = np.take_along_axis(wide, place, -1)[..., 0] / -middle  # the code 0 stands for the largest
    sizes, limits = np.abs(scales), np.finfo(np.float16)
    if ((sizes == 0) | ((sizes >= limits.smallest_normal) & (sizes <= limits.max))).all():
        scales = scales.astype(np.float16).astype(np.float32)
    steps = scales[..., None]
    whole = np.rint(np.divide(wide, steps, out=np.zeros_like(wide), where=steps != 0)) + middle
    codes = np.clip(whole, 0, 2 * middle - 1).astype(np.uint8)
    return BlockMatrix(nibbles(codes) if bits == 4 else codes, scales, None, bits, depth)
