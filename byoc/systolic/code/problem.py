"""What of a layer its tiling depends on: the sizes of a GEMM, and the image of a convolution that goes by rows."""

from __future__ import annotations

from dataclasses import dataclass

from ..simulation.row_stationary import RowShape
from .sparse import BLOCK, kept_depth, sparse_bytes


@dataclass(frozen=True)
class ImageRows:
    """A as a row-stationary array reads it: an image [channels, height, width] in the place of its im2col matrix.

    Attributes:
        size: height and width of the image; (0, 0): A is a matrix, its rows the pixels of an image of one row.
        out_width: of the output.
        kernel, strides, dilation: as (height, width).
    """

    size: tuple[int, int] = (0, 0)
    out_width: int = 1
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    @property
    def grain(self) -> tuple[int, int]:
        """Rows and columns of the im2col matrix that are never cut: a row of the output, the taps of a channel."""
        return self.out_width, self.kernel[0] * self.kernel[1]

    def shape(self, m: int, k: int, n: int) -> RowShape:
        """The convolution of a tile of m rows and k columns of the matrix with n filters."""
        out_size = (m // self.out_width, self.out_width) if self.size[1] else (1, m)
        return RowShape(k // self.grain[1], n, out_size, self.kernel, self.strides, self.dilation)

    def elements(self, m: int, k: int) -> int:
        """Elements of the image that such a tile reads, without padding."""
        if not self.size[1]:
            return m * k
        rows = (m // self.out_width - 1) * self.strides[0] + (self.kernel[0] - 1) * self.dilation[0] + 1
        return k // self.grain[1] * min(rows, self.size[0]) * self.size[1]


#: Of a GEMM: a convolution of 1x1 over an image of one row.
MATRIX_ROWS = ImageRows()


@dataclass(frozen=True)
class GemmProblem:
    """What of a layer its tiling depends on: batch times C[m, n] = A[m, k] B[k, n], with an epilogue.

    Attributes:
        batch, m, k, n: sizes.
        parts: how often k is walked through, with another B each time (weights that need more than 8 bits).
        a_batches, b_batches, row_batches: how many of the batch have an A, B, row operands of their own, in turn.
        rows: row operands of the epilogue, [n] of 4 bytes each.
        tile_bytes: per element of C, bytes of epilogue operands as large as C (a residual).
        vector_steps: operations of the epilogue.
        out_bytes: of an element of the result.
        b_is_constant: whether B is packed at compile time.
        local: which of "a", "b", "tiles" and "out" lie in the scratchpad, not in DRAM.
        reduce: "" for the product of matrices; else what :class:`.isa.Reduce` makes of the k values that each element
            of C has of its own in A.
        image: what A is to a row-stationary array; None for the other dataflows.
        is_sparse: whether B, constant and of int8, is of 2:4 (:mod:`.sparse`).
    """

    m: int
    k: int
    n: int
    batch: int = 1
    parts: int = 1
    a_batches: int = 1
    b_batches: int = 1
    row_batches: int = 1
    rows: int = 0
    tile_bytes: int = 0
    vector_steps: int = 0
    out_bytes: int = 4
    reduce: str = ""
    b_is_constant: bool = False
    local: frozenset[str] = frozenset()
    image: ImageRows | None = None
    is_sparse: bool = False

    @property
    def macs(self) -> int:
        return self.batch * self.m * self.depth(self.k) * self.n * self.parts

    def depth(self, k: int) -> int:
        """Rows that the array has of k rows of B."""
        return kept_depth(k) if self.is_sparse else k

    @property
    def grain(self) -> tuple[int, int]:
        """Rows and columns of A of which a tile has whole multiples."""
        dense = (1, 1) if self.image is None else self.image.grain
        return (1, BLOCK) if self.is_sparse else dense

    def operand_elements(self, m: int, k: int, n: int) -> tuple[int, int]:
        """Elements of A and of B that m x n elements of C of depth k read."""
        if self.is_sparse:
            return m * k, sparse_bytes(k, n)
        if self.image is not None:
            return self.image.elements(m, k), k * n
        if not self.reduce:
            return m * k, k * n
        return m * k * n, k * n if self.reduce == "dot" else 0
