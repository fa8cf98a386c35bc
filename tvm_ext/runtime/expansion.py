"""Weights that an artifact stores smaller than kernels read them, and how they are expanded when it is loaded.

    stored (r, r, ...)   ->   M stored M^T (n, n, ...)        Winograd: G g G^T, F(4x4, 3x3): four times as large as g

Transformed weights would make an artifact several times as large as its model; reading and checking those bytes takes
longer than this arithmetic does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Columns at a time: all intermediate values of float64 stay in the L2 cache.
_COLUMNS = 8192


@dataclass(frozen=True)
class Expansion:
    """A linear map of the first two axes, the same for both.

    Attributes:
        matrix: M (n, r).
    """

    matrix: tuple[tuple[float, ...], ...]

    @staticmethod
    def of(matrix: np.ndarray) -> Expansion:
        """From M as an array."""
        return Expansion(tuple(tuple(map(float, row)) for row in matrix))

    def into(self, stored: np.ndarray, out: np.ndarray) -> None:
        """Write M stored M^T, computed in float64 and rounded once; the same bits each time.

        Args:
            stored: (r, r, ...).
            out: contiguous; n * n times as many elements as the axes of `stored` after the second have.
        """
        size, taps = len(self.matrix), len(self.matrix[0])
        source, target = stored.reshape(taps, taps, -1), out.reshape(size * size, -1)
        for start in range(0, source.shape[2], _COLUMNS):
            part = source[:, :, start : start + _COLUMNS].astype("float64")
            columns = [[_weighted(row, part[:, v]) for v in range(taps)] for row in self.matrix]
            for a, b in np.ndindex(size, size):
                target[a * size + b, start : start + _COLUMNS] = _weighted(self.matrix[b], columns[a])


def _weighted(row: Sequence[float], terms: Sequence[np.ndarray] | np.ndarray) -> Any:
    """sum of row[k] * terms[k]; elementwise on purpose: a matrix product would wake the threads of BLAS."""
    used = [(c, t) for c, t in zip(row, terms, strict=True) if c]
    out = used[0][0] * used[0][1]
    for c, t in used[1:]:
        out += c * t
    return out


@dataclass(frozen=True)
class Compact:
    """The stored form of a weight.

    Attributes:
        weight: which of the artifact's weights.
        shape: of the stored array, of the weight's dtype.
        expansion: what makes the weight of it.
    """

    weight: int
    shape: tuple[int, ...]
    expansion: Expansion

    @property
    def count(self) -> int:
        """Values of the weight."""
        return len(self.expansion.matrix) ** 2 * math.prod(self.shape[2:])
