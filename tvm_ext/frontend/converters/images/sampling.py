"""Values read between elements, at places that are computed: GridSample, RoiAlign."""

import functools
import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import (
    Attributes,
    as_dtype,
    constant,
    converts,
    emit,
    kernel,
    known,
    scalar,
    static_shape,
    stock,
    text,
    widest,
)
from ..recurrent import columns
from ..reductions import extreme_reducer

#: Pixels from which on a place lies beyond all images.
_FAR = 2.0**24


@converts("GridSample")
def grid_sample(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GridSample over any number of axes: a weighted sum of the 1, 2 or 4 elements beside a place along each axis.

    It is computed in float32, or in float64 if an operand is; with mode "nearest" an element stays as it is.
    """
    x, grid = inputs[0], inputs[1]
    dtype, kind = widest(x, grid), text(attributes, "mode", "linear").removeprefix("bi")
    sampling = _GridSample(
        dtype, static_shape(x, "the input of GridSample")[2:], kind, text(attributes, "padding_mode", "zeros"),
        bool(attributes.get("align_corners", 0)),
    )  # fmt: skip
    data = x if kind == "nearest" else as_dtype(x, dtype)
    return as_dtype(emit(kernel(sampling.compute, data, as_dtype(grid, dtype), name="grid_sample")), dtype_of(x))


@dataclass(frozen=True)
class _GridSample:
    """The kernel: elements and weights of every place once, for all channels; then their sums.

    Attributes:
        dtype: that places and weights are computed in.
        sizes: of the axes; the last number of a place is along the first of them.
        mode, padding: "nearest", "linear" or "cubic"; "zeros", "border" or "reflection".
        corners: whether -1 and 1 are the centres of the first and the last element, or their far sides.
    """

    dtype: str
    sizes: tuple[int, ...]
    mode: str
    padding: str
    corners: bool

    def compute(self, data: te.Tensor, grid: te.Tensor) -> te.Tensor:
        sides = [self._side(grid, axis) for axis in range(len(self.sizes))]

        def element(n: Any, c: Any, *at: Any) -> Any:
            def along(read: tuple[Any, ...], inside: list[Any]) -> Any:
                if len(read) == len(sides):
                    value = data(n, c, *read)
                    return tirx.Select(tirx.all(*inside), value, tirx.const(0, data.dtype)) if inside else value
                taps, weights = sides[len(read)]
                parts = []
                for k in range(int(taps.shape[-1])):
                    tap = taps(n, *at, k)
                    within = [*inside, tap >= 0] if self.padding == "zeros" else inside
                    part = along((*read, tirx.max(tap, 0)), within)
                    parts.append(part if self.mode == "nearest" else weights(n, *at, k) * part)
                return functools.reduce(operator.add, parts)

            return along((), [])

        return te.compute([grid.shape[0], data.shape[1], *grid.shape[1:-1]], element, name="out")

    def _side(self, grid: te.Tensor, axis: int) -> tuple[te.Tensor, te.Tensor]:
        """Of each place the elements beside it along an axis, and their weights."""
        places, size = self._places(grid, axis), self.sizes[axis]
        shape = [*grid.shape[:-1], {"nearest": 1, "linear": 2, "cubic": 4}[self.mode]]
        taps = te.compute(shape, lambda *i: self._tap(places(*i[:-1]), size, i[-1]), name=f"tap{axis}")
        return taps, te.compute(shape, lambda *i: self._weight(places(*i[:-1]), i[-1]), name=f"weight{axis}")

    def _places(self, grid: te.Tensor, axis: int) -> te.Tensor:
        """Along an axis the element that each place is at, and a part of the distance to the next one."""
        size, rank = self.sizes[axis], len(self.sizes)
        least, most = (0.0, size - 1.0) if self.corners else (-0.5, size - 0.5)

        def place(*i: Any) -> Any:
            unit = grid(*i, rank - 1 - axis) + self._const(1)
            half = self._const(2)
            at = unit / half * self._const(size - 1) if self.corners else (unit * self._const(size) - 1) / half
            at = tirx.nearbyint(at) if self.mode == "nearest" else at
            if self.padding == "border" and self.mode != "cubic":
                return tirx.Select(at < least, self._const(0), tirx.Select(at > most, self._const(size - 1), at))
            return self._reflected(at, least, most) if self.padding == "reflection" else at

        return te.compute(grid.shape[:-1], place, name=f"place{axis}")

    def _reflected(self, at: Any, least: float, most: float) -> Any:
        """A place between two mirrors, as often as its light is thrown back; as it is where it lies between them."""
        if most == least:
            return self._const(least)
        apart = self._const(most - least)
        low, high = self._const(least), self._const(most)
        beyond = tirx.Select(at < low, low - at, at - high)
        times = tirx.trunc(beyond / apart)
        rest = beyond - times * apart
        even = times == self._const(2) * tirx.floor(times / self._const(2))
        near, far = tirx.Select(at < low, low + rest, high - rest), tirx.Select(at < low, high - rest, low + rest)
        return tirx.Select(tirx.all(at >= low, at <= high), at, tirx.Select(even, near, far))

    def _tap(self, place: Any, size: int, number: Any) -> Any:
        """The element of one of the weights, below `size`; -1 outside, where it is zero. NaN lies far before all."""
        far = self._const(4 * size + 8)
        near = tirx.Select(place > -far, tirx.min(place, far), -far)
        tap = tirx.floor(near).astype("int32") + number.astype("int32") - (1 if self.mode == "cubic" else 0)
        if self.padding == "zeros":
            return tirx.Select(tirx.all(tap >= 0, tap < size), tap, -1)
        if self.padding == "reflection" and size > 1:
            period = 2 * (size - 1) if self.corners else 2 * size
            tap = tirx.floormod(tap, period)
            tap = tirx.min(tap, period - tap if self.corners else period - 1 - tap)
        return tirx.max(0, tirx.min(tap, size - 1))

    def _weight(self, place: Any, number: Any) -> Any:
        """Of a tap: its distance from the other one, or a cubic of that (Keys, 1981, with a = -0.75)."""
        part = place - tirx.floor(place)
        if self.mode != "cubic":
            return tirx.Select(number == 0, self._const(1) - part, part)
        a = -0.75
        distance = tirx.abs(part + self._const(1) - number.astype(self.dtype))
        near = ((a + 2) * distance - (a + 3)) * distance * distance + self._const(1)
        return tirx.Select(distance <= 1, near, ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a)

    def _const(self, value: float) -> Any:
        return tirx.const(value, self.dtype)


def _scale_of(attributes: Attributes) -> float:
    """`spatial_scale`; of one that is no number TVM's folds make a region whose samples it reads from anywhere."""
    scale = float(attributes.get("spatial_scale", 1.0))
    if not math.isfinite(scale):
        raise Refusal(f"spatial_scale {scale}: a finite number is needed")
    return scale


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
        int(attributes.get("sampling_ratio", 0)), _scale_of(attributes), half == "half_pixel",
        text(attributes, "mode", "avg") == "max",
    )  # fmt: skip
    y = kernel(align.compute, as_dtype(x, dtype), as_dtype(rois, dtype), as_dtype(batch, "int32"), name="roi_align")
    return as_dtype(emit(y), dtype_of(x))


@converts("MaxRoiPool")
def max_roi_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MaxRoiPool(x, regions) of images that are there: of a number that is none, the nearest one.

    TVM's kernel reads foreign memory there, and rounds halves below 0 up. Places are rounded here, away from 0, in
    float32 at least.
    """
    x, dtype = inputs[0], widest(*inputs[:2])
    regions, count = as_dtype(inputs[1], dtype), static_shape(inputs[0], "the input of MaxRoiPool")[0]
    number = as_dtype(emit(relax.op.clip(columns(regions, 0, 1), 0, count - 1)), "int32")
    number = emit(relax.op.clip(number, 0, count - 1))  # NaN is any integer
    scaled = emit(columns(regions, 1, 5) * scalar(_scale_of(attributes), regions))
    places = emit(relax.op.clip(scaled, -_FAR, _FAR))
    whole = relax.op.floor(emit(relax.op.abs(places) + scalar(0.5, places)))
    regions = emit(relax.op.concat([as_dtype(number, dtype), emit(relax.op.sign(places) * whole)], 1))
    y = stock("MaxRoiPool", [as_dtype(x, dtype), regions], {**attributes, "spatial_scale": 1.0}, opset)
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
