"""Bands: a layer of images, a few rows of its output at a time, and the rows of its input that these need.

Layers one behind the other go depth first by bands: of each result between them only the rows that the next layer needs
for its band are there at once (fused layers: Alwani et al., MICRO 2016). Rows that two bands need are computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .layer import GemmLayer, Matrix, Windows
from .program import Tensor


@dataclass(frozen=True)
class Band:
    """Rows [begin, end) of the images of a tensor [images, channels, height, width]."""

    whole: Tensor
    begin: int
    end: int

    @property
    def name(self) -> str:
        """Of the tensor that has these rows only."""
        return f"{self.whole.name}#{self.begin}-{self.end}"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        images, channels, _, width = self.whole.shape
        return images, channels, self.end - self.begin, width

    def matrix(self, matrix: Matrix) -> Matrix:
        """The same matrix in the tensor that has these rows only: its planes are smaller."""
        (_, _, height, width), plane = self.whole.shape, self.shape[2] * self.shape[3]
        col, batch = (stride // (height * width) * plane for stride in (matrix.col_stride, matrix.batch_stride))
        return replace(matrix, tensor=self.name, col_stride=col, batch_stride=batch)


def is_image(matrix: Matrix, tensor: Tensor, rows: int) -> bool:
    """Whether the rows of a matrix are the pixels of a tensor of images, and its columns whole planes."""
    if len(tensor.shape) != 4 or matrix.offset or matrix.row_stride != 1:
        return False
    plane = tensor.shape[2] * tensor.shape[3]
    return rows == plane and not (matrix.col_stride % plane or matrix.batch_stride % plane)


def reads_image(layer: GemmLayer, tensor: Tensor) -> bool:
    """Whether A of a layer can be read from a band of a tensor of images."""
    if isinstance(layer.a, Matrix):
        return is_image(layer.a, tensor, layer.m)
    return len(tensor.shape) == 4 and layer.a.geometry.size == tensor.shape[2:] and not layer.a.row


def rows_read(layer: GemmLayer, begin: int, end: int) -> tuple[int, int]:
    """Begin and end of the rows of its input image that rows [begin, end) of a layer's output need."""
    if isinstance(layer.a, Matrix):
        return begin, end
    first, last = rows_reached(layer.a, begin, end)
    return max(0, first), min(layer.a.geometry.size[0], last)


def rows_reached(windows: Windows, begin: int, end: int) -> tuple[int, int]:
    """Begin and end of the rows of an image that rows [begin, end) of its output need, padding included."""
    geometry = windows.geometry
    first = begin * geometry.strides[0] - geometry.padding[0]
    return first, first + (end - 1 - begin) * geometry.strides[0] + (geometry.kernel[0] - 1) * geometry.dilation[0] + 1


def banded(layer: GemmLayer, rows: Band, source: Band | None, is_last: bool) -> GemmLayer:
    """The layer that computes rows of an output.

    Args:
        layer: of all rows.
        rows: of its output.
        source: the rows of its input that there are; None where all are.
        is_last: whether it writes to the whole output; if not, to the tensor of `rows`.
    """
    width = rows.shape[3]
    first, count = rows.begin * width, (rows.end - rows.begin) * width

    def moved(matrix: Matrix) -> Matrix:
        return replace(matrix, offset=matrix.offset + first * matrix.row_stride)

    tiles = [None if step.tile is None else moved(step.tile) for step in layer.steps]
    steps = tuple(replace(step, tile=tile) for step, tile in zip(layer.steps, tiles, strict=True))
    a: Matrix | Windows
    if source is None:
        a = moved(layer.a) if isinstance(layer.a, Matrix) else replace(layer.a, row=layer.a.row + first)
    else:
        a = source.matrix(layer.a) if isinstance(layer.a, Matrix) else _windows(layer.a, rows, source)
    return replace(
        layer, name=f"{layer.name}[{rows.begin}:{rows.end}]", m=count, a=a, steps=steps,
        out=moved(layer.out) if is_last else rows.matrix(layer.out),
        facts={**layer.facts, "rows": [rows.begin, rows.end]},
    )  # fmt: skip


def _windows(windows: Windows, rows: Band, source: Band) -> Windows:
    """Windows of the rows of an output over those of its input; padding is what they reach beyond."""
    first, last = rows_reached(windows, rows.begin, rows.end)
    (_, left, _, right), (_, _, height, width) = windows.geometry.padding, source.shape
    padding = source.begin - first, left, last - source.end, right
    return replace(windows, tensor=source.name, geometry=replace(
        windows.geometry, size=(height, width), padding=padding
    ))  # fmt: skip
