"""Resize and Upsample along any axes, in every mode of ONNX: one axis after the other, each by a table of taps.

    y[.., o, ..] = sum over k of weight[o, k] * x[.., index[o, k], ..]

The common cases (nearest and linear, images, whole ratios) go to TVM's own kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import Attributes, constant, converts, emit, kernel, known, static_shape, stock, text

_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5), "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip
#: Modes of coordinates that TVM's kernel has right; and those with roundings of nearest elements at whole ratios:
#: others round a coordinate that may be an integer, or the middle of two, but for an error of float32.
_PLAIN = ("half_pixel", "asymmetric", "align_corners")
_PLAIN_NEAREST = (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"))
#: Taps up to which a sum is written out.
_WRITTEN_OUT = 4


@dataclass(frozen=True)
class _Axis:
    """One axis that changes: its number, sizes, scale, and the part of it that is cropped."""

    axis: int
    size: int
    wanted: int
    scale: float
    roi: tuple[float, float]


@dataclass(frozen=True)
class _Mode:
    """What the attributes say."""

    kind: str
    coordinates: str
    rounding: str
    coefficient: float
    exclude: bool
    antialias: bool
    extrapolation: float

    @classmethod
    def of(cls, attributes: Attributes, opset: int) -> _Mode:
        old = opset < 11
        return cls(
            text(attributes, "mode", "nearest"),
            text(attributes, "coordinate_transformation_mode", "asymmetric" if old else "half_pixel"),
            text(attributes, "nearest_mode", "floor" if old else "round_prefer_floor"),
            float(attributes.get("cubic_coeff_a", -0.75)), bool(attributes.get("exclude_outside", 0)),
            bool(attributes.get("antialias", 0)), float(attributes.get("extrapolation_value", 0.0)),
        )  # fmt: skip


@converts("Resize")
def resize(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Resize(x, roi, scales, sizes); before opset 11 Resize(x, scales)."""
    x, mode = inputs[0], _Mode.of(attributes, opset)
    shape = static_shape(x, "the input of Resize")
    operands = {"roi": inputs[1], "scales": inputs[2], "sizes": inputs[3]} if opset > 10 else {"scales": inputs[1]}
    values = {name: known(value, name) for name, value in operands.items() if value is not None}
    stated = {name: value for name, value in values.items() if value.size}
    if not {"scales", "sizes"} & set(stated):
        raise Refusal("neither scales nor sizes")
    axes = _axes(shape, stated, attributes)
    changed = _changed(axes)
    if changed and _is_common(axes, shape, mode) and opset > 10:
        there = [value if name in stated else None for name, value in operands.items()]  # what is empty is not stated
        return stock("Resize", [x, *there], attributes, opset)
    return _resized(x, changed, mode)


@converts("Upsample")
def upsample(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Upsample(x, scales), the Resize of old, in its coordinates."""
    x = inputs[0]
    scales = attributes["scales"] if "scales" in attributes else known(inputs[1], "scales")
    shape = static_shape(x, "the input of Upsample")
    kind = text(attributes, "mode", "nearest")
    return _resized(x, _changed(_axes(shape, {"scales": np.asarray(scales)}, {})), _Mode.of({"mode": kind}, 10))


def _axes(shape: Sequence[int], stated: Mapping[str, np.ndarray], attributes: Attributes) -> list[_Axis]:
    rank = len(shape)
    numbers = [int(a) % rank for a in attributes.get("axes", range(rank))]
    sizes = [shape[a] for a in numbers]
    if "sizes" in stated:
        wanted, scales = _from_sizes(sizes, [int(s) for s in stated["sizes"]], attributes)
    else:
        scales = [float(s) for s in stated["scales"]]
        wanted = [math.floor(n * s) for n, s in zip(sizes, scales, strict=True)]
    roi = [float(r) for r in stated.get("roi", ())] or [0.0] * len(numbers) + [1.0] * len(numbers)
    if len(roi) != 2 * len(numbers):
        raise Refusal(f"{len(roi)} numbers in roi for {len(numbers)} axes; 2 for each are needed")
    crops = zip(roi[: len(numbers)], roi[len(numbers) :], strict=True)
    return [_Axis(*fields) for fields in zip(numbers, sizes, wanted, scales, crops, strict=True)]


def _changed(axes: Sequence[_Axis]) -> list[_Axis]:
    """Without those along which every element stays: there a neighbour that is infinite, times 0, would be NaN."""
    return [a for a in axes if a.wanted != a.size or a.scale != 1 or a.roi != (0.0, 1.0)]


def _from_sizes(sizes: list[int], wanted: list[int], attributes: Attributes) -> tuple[list[int], list[float]]:
    ratios = [w / n for w, n in zip(wanted, sizes, strict=True)]
    policy = text(attributes, "keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return wanted, ratios
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(ratio * n + 0.5) for n in sizes], [ratio] * len(sizes)


def _is_common(axes: Sequence[_Axis], shape: Sequence[int], mode: _Mode) -> bool:
    """Whether TVM's kernel for images is right; it divides by the wanted size less one where corners are aligned."""
    if mode.coordinates == "align_corners" and any(a.wanted == 1 for a in axes[2:]):
        return False
    if len(shape) != 4 or [a.axis for a in axes] != [0, 1, 2, 3] or any(a.wanted != a.size for a in axes[:2]):
        return False
    if mode.kind == "nearest" and (
        any(a.wanted % a.size for a in axes) or (mode.coordinates, mode.rounding) not in _PLAIN_NEAREST
    ):
        return False  # coordinates may lie in the middle of two elements, where rounding decides
    whole = all(math.isclose(a.scale * a.size, a.wanted, rel_tol=1e-7) for a in axes)
    return whole and mode.kind in ("nearest", "linear") and mode.coordinates in _PLAIN and not mode.antialias


def _resized(x: Any, axes: Sequence[_Axis], mode: _Mode) -> Any:
    dtype = dtype_of(x)
    if mode.kind != "nearest" and "float" not in dtype:
        raise Refusal(f"{mode.kind} interpolation of {dtype}")
    wide = x if mode.kind == "nearest" or dtype in ("float32", "float64") else relax.op.astype(x, "float32")
    result, outside = emit(wide) if wide is not x else x, []
    for axis in axes:
        at = _coordinates(axis, mode.coordinates)
        if mode.coordinates == "tf_crop_and_resize":
            outside.append((axis.axis, (at < 0) | (at > axis.size - 1)))
        result = emit(_along(result, axis, at, mode))
    if any(mask.any() for _, mask in outside):
        result = _extrapolated(result, outside, mode.extrapolation)
    return result if dtype_of(result) == dtype else relax.op.astype(result, dtype)


def _coordinates(axis: _Axis, mode: str) -> np.ndarray:
    """Where each element of the output lies in the input."""
    i, size, scale = np.arange(axis.wanted, dtype=np.float64), axis.size, axis.scale
    width = scale * size
    if mode == "align_corners":
        return np.zeros(axis.wanted) if width == 1 else i * (size - 1) / (width - 1)
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_crop_and_resize":
        first, last = axis.roi
        step = i * (last - first) * (size - 1) / (width - 1) if width != 1 else (last - first) * (size - 1) / 2 + 0 * i
        return step + first * (size - 1)
    if mode == "pytorch_half_pixel" and width == 1:
        return np.full(axis.wanted, -0.5)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (i + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - axis.wanted / width) + (i + 0.5) / scale - 0.5
    raise Refusal(f"coordinate_transformation_mode {mode!r}")


def _along(x: Any, axis: _Axis, at: np.ndarray, mode: _Mode) -> Any:
    """The input, resized along one axis."""
    if mode.kind == "nearest":
        rows = np.clip(_ROUND[mode.rounding](at), 0, axis.size - 1).astype(np.int64)
        return relax.op.take(x, constant(rows), axis.axis, mode="wrap")
    index, weight = _taps(axis, at, mode)
    operands = constant(index.astype(np.int32)), constant(weight.astype(dtype_of(x)))

    def compute(data: te.Tensor, rows: te.Tensor, weights: te.Tensor) -> te.Tensor:
        shape = [axis.wanted if i == axis.axis else d for i, d in enumerate(data.shape)]

        def term(at: Sequence[Any], k: Any) -> Any:
            o = at[axis.axis]
            source = [rows[o, k] if i == axis.axis else p for i, p in enumerate(at)]
            return data(*source) * weights[o, k]

        if index.shape[1] <= _WRITTEN_OUT:
            return te.compute(shape, lambda *i: sum((term(i, k) for k in range(1, index.shape[1])), term(i, 0)), "out")
        k = te.reduce_axis((0, index.shape[1]), name="k")
        return te.compute(shape, lambda *i: te.sum(term(i, k), axis=k), name="out")

    return kernel(compute, x, *operands, name="resize")


def _taps(axis: _Axis, at: np.ndarray, mode: _Mode) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights (outputs, taps); beyond the edges the outermost elements repeat."""
    narrow = min(axis.scale, 1.0) if mode.antialias else 1.0
    linear = mode.kind == "linear"
    count = 2 * math.ceil((1 if linear else 2) / narrow)
    index = np.floor(at)[:, None] + np.arange(1 - count // 2, 1 + count // 2)
    distance = np.abs(index - at[:, None]) * narrow
    weight = np.clip(1 - distance, 0, 1) if linear else _cubic(distance, mode.coefficient)
    inside = (index >= 0) & (index < axis.size)
    if mode.exclude:
        weight = np.where(inside, weight, 0.0)
    if mode.exclude or mode.antialias:
        weight = weight / weight.sum(1, keepdims=True)
    return np.clip(index, 0, axis.size - 1), weight


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel (Cubic convolution interpolation for digital image processing, 1981)."""
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _extrapolated(x: Any, outside: Sequence[tuple[int, np.ndarray]], value: float) -> Any:
    """The value where any coordinate lies outside."""
    dtype = dtype_of(x)
    masks = [constant(mask) for _, mask in outside]

    def compute(data: te.Tensor, *masks_read: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            beyond = tirx.any(*(mask[i[axis]] for (axis, _), mask in zip(outside, masks_read, strict=True)))
            return tirx.Select(beyond, tirx.const(value, dtype), data(*i))

        return te.compute(data.shape, element, name="out")

    return kernel(compute, x, *masks, name="extrapolate")
