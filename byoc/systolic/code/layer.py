"""What code is made of: a GEMM over a batch, where its operands lie in DRAM, and the steps of its epilogue.

Dense, matmul and conv2d all become such a layer; a convolution by reading its image as the im2col matrix::

    C[b, m, n] = epilogue(sum over k of A[b, m, k] B[b, k, n])

What keeps channels apart is the vector unit's: each column of C has an A of its own::

    pooling, depthwise    C[b, m, n] = epilogue(max or sum over k of A[b, m, n, k], or sum of A[b, m, n, k] B[b, k, n])
    elementwise           C[b, m, n] = epilogue(A[b, m, n]), a sum of k = 1
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....core.errors import ProgramError
from ..config import Dataflow
from ..simulation.cycles import are_sizes
from .check import ITEMSIZE
from .problem import MATRIX_ROWS, GemmProblem, ImageRows
from .sparse import why_dense


@dataclass(frozen=True)
class Matrix:
    """A batch of matrices in a tensor; `at` says where an element of one is.

    A transposed matrix has row_stride 1; an output in NCHW has row_stride 1 too, its rows being pixels. A stride of 0
    reads the same again: a row that is added to all rows has row_stride 0.

    Attributes:
        batches: how many matrices there are; batch elements take them in turn.
        repeat: how many batch elements one after the other take the same.
    """

    tensor: str
    row_stride: int
    col_stride: int = 1
    batch_stride: int = 0
    batches: int = 1
    offset: int = 0
    repeat: int = 1

    def index(self, batch: int) -> int:
        """Which of the matrices a batch element takes."""
        return batch // self.repeat % self.batches

    def at(self, batch: int, row: int, col: int) -> int:
        """Index of an element in the tensor."""
        return self.offset + self.index(batch) * self.batch_stride + row * self.row_stride + col * self.col_stride


@dataclass(frozen=True)
class ConvGeometry:
    """A two-dimensional convolution: sizes as (height, width), padding as (top, left, bottom, right)."""

    channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        large, padded = (self.channels, *self.size), (1 + pad for pad in self.padding)
        small = (*self.kernel, *self.strides, *self.dilation, *self.padding)
        if not are_sizes(*large, *self.kernel, *self.strides, *self.dilation, *padded):
            raise ProgramError(f"{self}: sizes, kernel, strides and dilation are 1 or more, padding 0 or more")
        if max(small) > 255 or max(large) > 0xFFFF:
            raise ProgramError(f"{self}: kernel, stride, dilation and padding go up to 255, sizes up to 65535")
        if min(self.out_size) < 1:
            raise ProgramError(f"{self}: the padded image is smaller than the kernel")

    @functools.cached_property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        height, width = (
            (size + self.padding[axis] + self.padding[axis + 2] - (kernel - 1) * dilation - 1) // stride + 1
            for axis, (size, kernel, stride, dilation) in enumerate(
                zip(self.size, self.kernel, self.strides, self.dilation, strict=True)
            )
        )
        return height, width

    def problem(self) -> str:
        """What no window load can do; "" if it can."""
        for axis in (0, 1):
            reach = (self.kernel[axis] - 1) * self.dilation[axis]
            if max(self.padding[axis], self.padding[axis + 2]) > reach:
                return f"padding {self.padding} goes beyond windows of {self.kernel} with dilation {self.dilation}"
        return ""


@dataclass(frozen=True)
class Windows:
    """The im2col matrices of the images of a tensor; batch element b is the image at b times channels x height x width.

    `pad_value` is what lies around an image: the zero point of an int8 tensor, as it is in the scratchpad. Row 0 of A
    is row `row` of the matrix.
    """

    tensor: str
    geometry: ConvGeometry
    batches: int = 1
    pad_value: int = 0
    row: int = 0

    def index(self, batch: int) -> int:
        """Which of the images a batch element takes."""
        return batch % self.batches

    def offset(self, batch: int) -> int:
        """Index of the first element of that image."""
        height, width = self.geometry.size
        return self.index(batch) * self.geometry.channels * height * width


@dataclass(frozen=True, eq=False)
class Step:
    """One operation of an epilogue; `op`, `scale`, `zero_point` and `low` as in :class:`.isa.Vector`.

    Attributes:
        row: values [n], or [row batches, n]; float32 or int32.
        tile: a matrix as large as C, in a tensor.
        dtype: of a row or tile (relu: of what is there).
    """

    op: str
    row: np.ndarray | None = None
    tile: Matrix | None = None
    dtype: str = "float32"
    scale: float = 1.0
    zero_point: int = 0
    low: float = 0.0

    @property
    def source(self) -> str:
        return "row" if self.row is not None else "tile" if self.tile is not None else "none"


@dataclass(frozen=True, eq=False)
class GemmLayer:
    """One layer.

    Attributes:
        name: for reports.
        m, k, n, batch: sizes.
        a: where A lies; `Windows` for a convolution.
        b: where B lies, or its values [b_batches, parts * k, n] of the accelerator's `tensor_dtype`; with more than one
            part, k is walked through once a part. None where `reduce` reads none.
        out: where C goes.
        steps: the epilogue, in order.
        parts: see b.
        facts: JSON values for reports, kept in the program.
        reduce: "" for a GEMM; "max", "sum" or "dot" for the vector unit: see :class:`.isa.Reduce`.
        is_sparse: whether B goes as weights of 2:4 (:mod:`.sparse`).
    """

    name: str
    m: int
    k: int
    n: int
    a: Matrix | Windows
    b: Matrix | np.ndarray | None
    out: Matrix
    batch: int = 1
    steps: tuple[Step, ...] = ()
    parts: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    reduce: str = ""
    is_sparse: bool = False

    @property
    def operands(self) -> dict[str, tuple[str, ...]]:
        """Tensors, by the operand for which they are read or written: "a", "b", "tiles" of the epilogue, "out"."""
        b = (self.b.tensor,) if isinstance(self.b, Matrix) else ()
        tiles = tuple(step.tile.tensor for step in self.steps if step.tile is not None)
        return {"a": (self.a.tensor,), "b": b, "tiles": tiles, "out": (self.out.tensor,)}

    def problem(self, out_dtype: str, dataflow: str | None = None) -> GemmProblem:
        """What the tiling of this layer depends on; with the dataflow that is asked for, if one is."""
        rows = [step.row for step in self.steps if step.row is not None]
        return GemmProblem(
            m=self.m, k=self.k, n=self.n, batch=self.batch, parts=self.parts, a_batches=self.a.batches,
            b_batches=1 if self.b is None else self.b.shape[0] if isinstance(self.b, np.ndarray) else self.b.batches,
            row_batches=max((row.shape[0] for row in rows if row.ndim == 2), default=1), rows=len(rows),
            tile_bytes=sum(ITEMSIZE[step.dtype] for step in self.steps if step.tile is not None),
            vector_steps=len(self.steps), out_bytes=ITEMSIZE[out_dtype], reduce=self.reduce,
            b_is_constant=isinstance(self.b, np.ndarray),
            image=self._image_rows() if dataflow == Dataflow.RS and not self.reduce else None,
            is_sparse=self.is_sparse,
        )  # fmt: skip

    def with_sparsity(self) -> GemmLayer:
        """The layer as an array for weights of 2:4 has it: compressed, or dense; its facts name which, and why."""
        if self.reduce:
            return self
        b = self.b
        why = why_dense(b.reshape(-1, self.k, self.n)) if isinstance(b, np.ndarray) else "they are computed"
        weights = f"dense: {why}" if why else "2:4"
        return replace(self, is_sparse=not why, facts={**self.facts, "weights": weights})

    def _image_rows(self) -> ImageRows:
        if isinstance(self.a, Matrix):
            return MATRIX_ROWS
        of = self.a.geometry
        return ImageRows(of.size, of.out_size[1], of.kernel, of.strides, of.dilation)


def matmul(name: str, a: str, b: str | np.ndarray, out: str, sizes: tuple[int, int, int], **options: Any) -> GemmLayer:
    """C[m, n] = A[m, k] B[k, n], dense; sizes are (m, k, n). For other strides make the layer yourself.

    Args:
        name: for reports.
        a, out: names of tensors.
        b: name of a tensor, or values [k, n].
        sizes: m, k, n.
        **options: steps, facts.
    """
    m, k, n = sizes
    right = b[None] if isinstance(b, np.ndarray) else Matrix(b, n)
    return GemmLayer(name, m, k, n, Matrix(a, k), right, Matrix(out, n), **options)


def conv2d(
    name: str, x: str, filters: np.ndarray, out: str, geometry: ConvGeometry, *, images: int = 1, groups: int = 1,
    pad_value: int = 0, **options: Any,
) -> GemmLayer:  # fmt: skip
    """Convolution of an NCHW tensor, to NCHW.

    Args:
        name: for reports.
        x, out: names of tensors.
        filters: :func:`filter_matrices` of the weights, in the dtype of the accelerator; with `parts` (see
            :class:`GemmLayer`) that many times as deep.
        geometry: of one group: `channels` are those of a group.
        images, groups: N of NCHW, groups; the batch of the layer is images times groups.
        pad_value: see :class:`Windows`.
        **options: steps, parts, facts. A residual's matrix is :func:`nchw`; rows are [n] or [groups, n].
    """
    batch, (height, width), n = images * groups, geometry.out_size, filters.shape[2]
    a = Windows(x, geometry, batches=batch, pad_value=pad_value)
    depth = geometry.channels * geometry.kernel[0] * geometry.kernel[1]
    output = nchw(out, n, (height, width), batch)
    return GemmLayer(name, height * width, depth, n, a, filters, output, batch=batch, **options)


def windowed(
    name: str, reduce: str, x: str, filters: np.ndarray | None, out: str, geometry: ConvGeometry, *,
    images: int = 1, pad_value: int = 0, **options: Any,
) -> GemmLayer:  # fmt: skip
    """Pooling or depthwise convolution of an NCHW tensor, to NCHW, by the vector unit.

    Args:
        name: for reports.
        reduce: "max", "sum", or "dot" with filters.
        x, out: names of tensors.
        filters: [1, parts * height * width, channels] in the dtype of the accelerator; None of a pooling.
        geometry: with all channels.
        images: N of NCHW.
        pad_value: see :class:`.isa.LoadWindows`.
        **options: steps, parts, facts; rows are [channels].
    """
    (height, width), n = geometry.out_size, geometry.channels
    a = Windows(x, geometry, batches=images, pad_value=pad_value)
    taps, output = geometry.kernel[0] * geometry.kernel[1], nchw(out, n, (height, width), images)
    return GemmLayer(name, height * width, taps, n, a, filters, output, batch=images, reduce=reduce, **options)


def filter_matrices(weights: np.ndarray, groups: int = 1) -> np.ndarray:
    """Weights [filters, channels / groups, height, width] (ONNX, OIHW) as B of each group: [groups, k, n]."""
    return weights.reshape(groups, weights.shape[0] // groups, -1).transpose(0, 2, 1)


def nchw(tensor: str, channels: int, size: tuple[int, int], batches: int) -> Matrix:
    """An NCHW tensor as matrices [pixels, channels], one for each image (and group)."""
    pixels = size[0] * size[1]
    return Matrix(tensor, 1, pixels, channels * pixels, batches)
