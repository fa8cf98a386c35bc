"""Winograd transforms F(m x m, 3 x 3) for 2-d convolution, and the weight layout they need.

    Y = A^T [ (G g G^T) * (B^T d B) ] A        d: (m + 2)^2 input tile, g: 3 x 3 weight, Y: m x m outputs

A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016; interpolation points 0, 1, -1,
(2, -2,) infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from tvm_ext.core.layout import Layout


@dataclass(frozen=True)
class Transform:
    """The three matrices of F(m x m, 3 x 3), in float64."""

    bt: np.ndarray
    g: np.ndarray
    at: np.ndarray

    @property
    def m(self) -> int:
        """Outputs along one side of a tile."""
        return int(self.at.shape[0])

    @property
    def alpha(self) -> int:
        """Inputs along one side of a tile."""
        return int(self.bt.shape[0])

    @property
    def additions(self) -> tuple[int, int]:
        """Vector operations of the input and of the output transform of one tile: terms beyond the first, twice."""
        rows = [int(np.count_nonzero(matrix)) - matrix.shape[0] for matrix in (self.bt, self.at)]
        return 2 * self.alpha * rows[0], (self.alpha + self.m) * rows[1]


TRANSFORMS = {
    2: Transform(
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], "float64"),
        np.array([[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]], "float64"),
        np.array([[1, 1, 1, 0], [0, 1, -1, -1]], "float64"),
    ),
    4: Transform(
        np.array(
            [
                [4, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ],
            "float64",
        ),
        np.array(
            [
                [1 / 4, 0, 0],
                [-1 / 6, -1 / 6, -1 / 6],
                [-1 / 6, 1 / 6, -1 / 6],
                [1 / 24, 1 / 12, 1 / 6],
                [1 / 24, -1 / 12, 1 / 6],
                [0, 0, 1],
            ],
            "float64",
        ),
        np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], "float64"),
    ),
}


@dataclass(frozen=True)
class WinogradWeight(Layout):
    """G g G^T of a 3 x 3 weight: (alpha^2, blocks, I / inner, inner, out), made in float64 and rounded once.

    Attributes:
        m: outputs along one side of a tile.
        inner, out, blocks: as in :class:`tvm_ext.core.layout.PackedWeight`.
    """

    m: int = 4
    inner: int = 1
    out: int = 1
    blocks: int = 1

    @staticmethod
    def make(m: int, inner: int, out: int, blocks: int) -> WinogradWeight:
        return WinogradWeight((0, 1, 2, 3), None, m, inner, out, blocks)

    def __str__(self) -> str:
        return f"F({self.m}x{self.m},3x3):OI{self.inner}i{self.out}o"

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        alpha = TRANSFORMS[self.m].alpha
        return (alpha * alpha, self.blocks, shape[1] // self.inner, self.inner, self.out)

    def index(self, logical: Sequence[Any]) -> tuple[Any, ...]:
        raise TypeError("a transformed weight is read by its kernel only, through physical indices")

    def pack(self, array: np.ndarray) -> np.ndarray:
        o, i = array.shape[:2]
        short = self.blocks * self.out - o
        if short:
            array = np.concatenate([array, np.zeros((short, *array.shape[1:]), array.dtype)])
        g = TRANSFORMS[self.m].g
        packed = np.empty((len(g) ** 2, self.blocks, i, self.out), array.dtype)
        for block in range(self.blocks):  # one at a time: the float64 copy stays in cache
            w = array[block * self.out : (block + 1) * self.out].transpose(2, 3, 1, 0).astype("float64")
            columns = [[_weighted(row, w[:, y]) for y in range(3)] for row in g]
            for a, b in np.ndindex(len(g), len(g)):
                packed[a * len(g) + b, block] = _weighted(g[b], columns[a])
        return packed.reshape(len(g) ** 2, self.blocks, i // self.inner, self.inner, self.out)


def _weighted(row: np.ndarray, terms: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """sum of row[k] * terms[k]; elementwise on purpose: a matrix product would wake the threads of BLAS."""
    used = [(float(c), t) for c, t in zip(row, terms, strict=True) if c]
    out = used[0][0] * used[0][1]
    for c, t in used[1:]:
        out += c * t
    return out


def transformed(matrix: np.ndarray, row: Any, terms: Sequence[Any], dtype: str) -> Any:
    """sum over k of matrix[row, k] * terms[k], for a row that unrolling turns into a constant.

    Coefficients are chosen by `row` one by one: when it is a constant they are too, and zeros and ones fold away.
    """
    return sum(
        (_pick(row, [float(c) for c in matrix[:, k]], dtype) * term for k, term in enumerate(terms)),
        start=tirx.const(0, dtype),
    )


def _pick(index: Any, values: Sequence[float], dtype: str) -> Any:
    out = tirx.const(values[-1], dtype)
    for k in range(len(values) - 2, -1, -1):
        out = tirx.Select(index == k, tirx.const(values[k], dtype), out)
    return out
