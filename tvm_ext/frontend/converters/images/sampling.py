"""Values read between elements, at places that are computed: GridSample, RoiAlign."""

import operator
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import Attributes, as_dtype, constant, converts, emit, kernel, known, static_shape, stock, text, widest
from ..reductions import extreme_reducer


@converts("GridSample")
def grid_sample(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GridSample, computed in float32 or float64 whatever its operands are: stock TVM mixes their types."""
    x, grid = inputs[0], inputs[1]
    dtype = widest(x, grid)
    if text(attributes, "padding_mode", "zeros") == "reflection":
        for axis, size in list(enumerate(static_shape(x, "the input of GridSample")))[2:]:
            if size == 1:  # TVM divides by the distance of its corners: two equal elements have one
                x = emit(relax.op.concat([x, x], axis))
    picks = text(attributes, "mode", "bilinear") == "nearest"  # an element as it is, of any type
    y = stock("GridSample", [x if picks else as_dtype(x, dtype), as_dtype(grid, dtype)], attributes, opset)
    return as_dtype(emit(y), dtype_of(x))


@converts("RoiAlign")
def roi_align(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """RoiAlign: a grid of samples in each bin of each region, read bilinearly; their mean, or the largest.

    He et al., Mask R-CNN, 2017. From opset 16 on coordinates are of pixels' centres (`half_pixel`): half a pixel goes
    off after scaling; TVM takes it off before. The largest is that of the four weighted corners of all samples, as
    ONNX's evaluator and onnxruntime have it; TVM takes that of the interpolated values.
    """
    x, rois, batch = inputs[0], inputs[1], inputs[2]
    dtype = widest(x)
    half = text(attributes, "coordinate_transformation_mode", "half_pixel" if opset >= 16 else "output_half_pixel")
    align = _RoiAlign(
        dtype, static_shape(x, "the input of RoiAlign")[2:],
        (int(attributes.get("output_height", 1)), int(attributes.get("output_width", 1))),
        int(attributes.get("sampling_ratio", 0)), float(attributes.get("spatial_scale", 1.0)), half == "half_pixel",
        text(attributes, "mode", "avg") == "max",
    )  # fmt: skip
    y = kernel(align.compute, as_dtype(x, dtype), as_dtype(rois, dtype), as_dtype(batch, "int32"), name="roi_align")
    return as_dtype(emit(y), dtype_of(x))


@converts("AffineGrid")
def affine_grid(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """AffineGrid(theta, size); corners of one pixel are -1, 1 or neither, by who computes them.

    Stock TVM drops an infinite number times the place of a single pixel, which is 0.
    """
    theta, corners = inputs[0], bool(attributes.get("align_corners", 0))
    batch, _, *sizes = (int(d) for d in known(inputs[1], "size"))
    if corners and 1 in sizes:
        raise Refusal(f"align_corners with size {sizes}: ONNX does not say where one pixel lies between two corners")
    rank = len(sizes)
    columns = [emit(relax.op.reshape(column, (batch, *[1] * rank, rank)))
               for column in emit(relax.op.split(theta, rank + 1, axis=2))]  # fmt: skip
    grid = columns[-1]
    for column, axis in zip(columns, reversed(range(rank)), strict=False):  # x is along the last axis
        size = sizes[axis]
        pixels = np.linspace(-1, 1, size) if corners else (2 * np.arange(size) + 1) / size - 1
        along = constant(pixels.reshape([size if a == axis else 1 for a in range(rank)] + [1]), dtype_of(theta))
        grid = emit(grid + column * along)
    return grid


class _RoiAlign:
    """The kernel: `bins` of each region, `ratio` samples along each side of a bin, or as many as it has pixels."""

    def __init__(
        self, dtype: str, sizes: tuple[int, ...], bins: tuple[int, int], ratio: int, scale: float, half: bool,
        largest: bool,
    ) -> None:  # fmt: skip
        self._dtype, self._sizes, self._bins, self._ratio = dtype, sizes, bins, ratio
        self._scale, self._half, self._largest = scale, half, largest

    def compute(self, data: te.Tensor, rois: te.Tensor, batch: te.Tensor) -> te.Tensor:
        def element(r: Any, c: Any, p: Any, q: Any) -> Any:
            (y, bin_h, rows), (x, bin_w, columns) = self._side(rois, r, 0), self._side(rois, r, 1)
            # a region of no size has no sample: one that counts nothing keeps the sum from starting nowhere
            i, j = (te.reduce_axis((0, tirx.max(n, 1)), name=name) for n, name in ((rows, "i"), (columns, "j")))
            value = self._sample(
                lambda v, w: data(batch(r), c, v, w),
                y + self._at(p, bin_h, i, rows), x + self._at(q, bin_w, j, columns),
            )  # fmt: skip
            samples = (tirx.max(rows, 1) * tirx.max(columns, 1)).astype(self._dtype)
            part = value if self._largest else value / samples
            reduced = extreme_reducer(largest=True) if self._largest else te.sum
            some = tirx.all(rows > 0, columns > 0)
            return reduced(tirx.if_then_else(some, part, self._const(0)), axis=[i, j])

        return te.compute([rois.shape[0], data.shape[1], *self._bins], element, name="out")

    def _side(self, rois: te.Tensor, r: Any, d: int) -> tuple[Any, Any, Any]:
        """Of a region along y (0) or x (1): where it begins, the size of its bins, and the samples in one."""
        off = self._const(0.5 if self._half else 0.0)
        first, last = (rois(r, k) * self._const(self._scale) - off for k in (1 - d, 3 - d))
        size = last - first if self._half else tirx.max(last - first, self._const(1))
        bin_size = size / self._const(self._bins[d])
        count = tirx.const(self._ratio, "int32") if self._ratio > 0 else tirx.ceil(bin_size).astype("int32")
        return first, bin_size, count

    def _at(self, number: Any, size: Any, sample: Any, count: Any) -> Any:
        """Where a sample of a bin lies in its region."""
        inside = (sample.astype(self._dtype) + self._const(0.5)) * size / tirx.max(count, 1).astype(self._dtype)
        return number.astype(self._dtype) * size + inside

    def _sample(self, read: Any, y: Any, x: Any) -> Any:
        """The value between four elements, or the largest of these by their weights; 0 more than a pixel outside."""
        height, width = self._sizes
        outside = tirx.any(y < -1, y > height, x < -1, x > width)
        (top, bottom, ty), (left, right, tx) = self._corners(y, height), self._corners(x, width)
        join = tirx.max if self._largest else operator.add
        above, below = (
            join(read(row, left) * (1 - tx) * weight, read(row, right) * tx * weight)
            for row, weight in ((top, 1 - ty), (bottom, ty))
        )
        return tirx.if_then_else(outside, self._const(0), join(above, below))

    def _corners(self, at: Any, size: int) -> tuple[Any, Any, Any]:
        """The elements before and after a place, and its distance from the first; NaN lies at the beginning."""
        inside = tirx.if_then_else(at > 0, tirx.min(at, self._const(size - 1)), self._const(0))
        low = tirx.max(0, tirx.min(tirx.floor(inside).astype("int32"), size - 1))
        return low, tirx.min(low + 1, size - 1), inside - low.astype(self._dtype)

    def _const(self, value: float) -> Any:
        return tirx.const(value, self._dtype)
