"""Winograd transforms F(m x m, r x r) for 2-d convolution, and the weight layout they need.

    Y = A^T [ (G g G^T) * (B^T d B) ] A        d: (m + r - 1)^2 input tile, g: r x r weight, Y: m x m outputs

The matrices are those of Toom and Cook's interpolation, at 0, 1, -1, 2, ... and infinity (S. Winograd, "Arithmetic
Complexity of Computations", SIAM 1980; A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR
2016). A convolution of stride s is the sum of s * s convolutions of stride 1, of every s-th row and column by every
s-th tap (its phases): they share one transform, as s * s times as many input channels with ceil(k / s)^2 taps.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import tirx

from tvm_ext.core.layout import OpaqueLayout
from tvm_ext.runtime.expansion import Expansion

#: Interpolation points in the order they are used: small magnitudes first, each next to its negative.
_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2), Fraction(1, 2), Fraction(-1, 2))
#: Taps of a phase -> outputs along one side of a tile: up to seven points the rounding stays within 1e-4 of a layer.
TILES = {2: (2, 4), 3: (2, 4), 4: (2, 4), 5: (2,)}


@dataclass(frozen=True)
class Transform:
    """The three matrices of F(m x m, r x r), in float64.

    Attributes:
        bt: B^T (m + r - 1, m + r - 1), of the input.
        g: G (m + r - 1, r), of the weight.
        at: A^T (m, m + r - 1), of the output.
    """

    bt: np.ndarray
    g: np.ndarray
    at: np.ndarray

    @staticmethod
    @functools.cache
    def of(m: int, r: int) -> Transform:
        """F(m, r), for at most eight points."""
        points = _POINTS[: m + r - 2]
        others = [[q for q in points if q != p] for p in points]
        bt = [[*_product(rest), Fraction(0)] for rest in others] + [_product(points)]
        scale = [_value(_product(rest), p) for rest, p in zip(others, points, strict=True)]
        g = [[p**j / s for j in range(r)] for p, s in zip(points, scale, strict=True)]
        g.append([Fraction(int(j == r - 1)) for j in range(r)])
        at = [[*(p**i for p in points), Fraction(int(i == m - 1))] for i in range(m)]
        return Transform(*(np.array(rows, "float64") for rows in (bt, g, at)))

    @property
    def m(self) -> int:
        """Outputs along one side of a tile."""
        return int(self.at.shape[0])

    @property
    def taps(self) -> int:
        """Taps along one side of the weight."""
        return int(self.g.shape[1])

    @property
    def alpha(self) -> int:
        """Inputs along one side of a tile."""
        return int(self.bt.shape[0])

    @functools.cached_property
    def additions(self) -> tuple[int, int]:
        """Vector operations of the input and of the output transform of one tile: terms beyond the first, twice."""
        rows = [int(np.count_nonzero(matrix)) - matrix.shape[0] for matrix in (self.bt, self.at)]
        return 2 * self.alpha * rows[0], (self.alpha + self.m) * rows[1]


def _product(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the product of (x - root), the constant one first."""
    out = [Fraction(1)]
    for root in roots:
        out = [low - root * high for low, high in zip([Fraction(0), *out], [*out, Fraction(0)], strict=True)]
    return out


def _value(coefficients: Sequence[Fraction], x: Fraction) -> Fraction:
    return sum((c * x**i for i, c in enumerate(coefficients)), start=Fraction(0))


@dataclass(frozen=True)
class WinogradWeight(OpaqueLayout):
    """G g G^T of a k x k weight: (alpha^2, blocks, phases I / inner, inner, out), made in float64 and rounded once.

    Attributes:
        m: outputs along one side of a tile.
        stride: of the convolution; phases are its square, (row, column) in C order.
        inner, out, blocks: as in :class:`tvm_ext.core.layout.PackedWeight`; `inner` divides phases times I.
    """

    m: int = 4
    stride: int = 1
    inner: int = 1
    out: int = 1
    blocks: int = 1

    @staticmethod
    def make(m: int, stride: int, inner: int, out: int, blocks: int) -> WinogradWeight:
        return WinogradWeight((0, 1, 2, 3), None, m, stride, inner, out, blocks)

    def __str__(self) -> str:
        phases = f"s{self.stride}" if self.stride > 1 else ""
        return f"F({self.m}x{self.m}){phases}:OI{self.inner}i{self.out}o"

    def transform(self, kernel: int) -> Transform:
        """The transform for a kernel of so many rows and columns."""
        return Transform.of(self.m, -(-kernel // self.stride))

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        alpha, depth = self.transform(shape[2]).alpha, self.stride**2 * shape[1]
        return (alpha * alpha, self.blocks, depth // self.inner, self.inner, self.out)

    def pack(self, array: np.ndarray) -> np.ndarray:
        stored, expansion = self.compact(array)
        packed = np.empty(self.physical_shape(array.shape), array.dtype)
        expansion.into(stored, packed)
        return packed

    def compact(self, array: np.ndarray) -> tuple[np.ndarray, Expansion]:
        """The taps in the order of the packed weight, (r, r, blocks, phases, I, out), which G g G^T is made of."""
        o, i, k, _ = array.shape
        transform, s = self.transform(k), self.stride
        taps = transform.taps
        whole = np.zeros((self.blocks * self.out, i, taps * s, taps * s), array.dtype)
        whole[:o, :, :k, :k] = array
        split = whole.reshape(self.blocks, self.out, i, taps, s, taps, s)
        return np.ascontiguousarray(split.transpose(3, 5, 0, 4, 6, 2, 1)), Expansion.of(transform.g)


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
