"""The elements that an element of a resized axis is made of, and their weights: as arrays where sizes are numbers, as
kernels where they are known when a program runs.

    at = (o + 0.5) / scale - 0.5        index[o, k] = floor(at) - 1 + k        weight[o, k] = cubic(index[o, k] - at)

Both are computed in float64, by the same formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import te, tirx

from ...checks.refusal import Refusal
from ..base import Attributes, text


@dataclass(frozen=True)
class _Functions:
    """What formulas need, of arrays or of expressions."""

    floor: Callable[[Any], Any]
    ceil: Callable[[Any], Any]
    absolute: Callable[[Any], Any]
    least: Callable[[Any, Any], Any]
    most: Callable[[Any, Any], Any]
    where: Callable[[Any, Any, Any], Any]


def _wide(x: Any) -> Any:
    """A number, or an expression, of float64."""
    return tirx.const(float(x), "float64") if isinstance(x, int | float) else x


_ARRAYS = _Functions(np.floor, np.ceil, np.abs, np.minimum, np.maximum, np.where)
_EXPRESSIONS = _Functions(
    tirx.floor, tirx.ceil, tirx.abs, lambda a, b: tirx.min(_wide(a), _wide(b)),
    lambda a, b: tirx.max(_wide(a), _wide(b)), lambda c, a, b: tirx.Select(c, _wide(a), _wide(b)),
)  # fmt: skip
_ROUND: dict[str, Callable[[Any, _Functions], Any]] = {
    "round_prefer_floor": lambda x, f: f.ceil(x - 0.5), "round_prefer_ceil": lambda x, f: f.floor(x + 0.5),
    "floor": lambda x, f: f.floor(x), "ceil": lambda x, f: f.ceil(x),
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        number: of the axis.
        size, wanted: its elements, and those of the result.
        scale: how many times as many there are.
        roi: first and last part of it that is cropped.
        ratio: whole numbers whose quotient the scale is; empty where a scale is stated.
    """

    number: int
    size: Any
    wanted: Any
    scale: Any
    roi: tuple[Any, Any]
    ratio: tuple[Any, ...] = ()

    @property
    def width(self) -> Any:
        """Elements of the result, before they are rounded down."""
        return self.wanted if self.ratio else self.scale * self.size

    @property
    def numbers(self) -> np.ndarray:
        """What follows from the sizes of a call, for :meth:`of`."""
        return np.array([self.size, self.wanted, *self.ratio], np.int64)

    def of(self, numbers: te.Tensor) -> Axis:
        """The axis in expressions of a tensor of its numbers."""
        size, wanted, *ratio = (numbers[n].astype("float64") for n in range(2 + len(self.ratio)))
        scale = ratio[0] / ratio[1] if ratio else _wide(self.scale)
        roi = (_wide(self.roi[0]), _wide(self.roi[1]))
        return replace(self, size=size, wanted=wanted, scale=scale, roi=roi, ratio=tuple(ratio))


@dataclass(frozen=True)
class Mode:
    """What the attributes say; no rounding before opset 11, where onnxruntime rounds up on axes that shrink."""

    kind: str
    coordinates: str
    rounding: str
    coefficient: float
    exclude: bool
    antialias: bool
    extrapolation: float

    @classmethod
    def of(cls, attributes: Attributes, opset: int) -> Mode:
        """Those of a node of Resize, or of Upsample."""
        old = opset < 11
        return cls(
            text(attributes, "mode", "nearest"),
            text(attributes, "coordinate_transformation_mode", "asymmetric" if old else "half_pixel"),
            text(attributes, "nearest_mode", "" if old else "round_prefer_floor"),
            float(attributes.get("cubic_coeff_a", -0.75)), bool(attributes.get("exclude_outside", 0)),
            bool(attributes.get("antialias", 0)), float(attributes.get("extrapolation_value", 0.0)),
        )  # fmt: skip

    @property
    def divides(self) -> bool:
        """Whether weights are divided by their sum."""
        return self.exclude or self.antialias

    def taps(self, scale: float) -> int:
        """Elements that an element is made of."""
        return 2 * math.ceil((1 if self.kind == "linear" else 2) / (min(scale, 1.0) if self.antialias else 1.0))


class Tables:
    """The tables of an axis.

    Args:
        axis: of numbers.
        taps: of an element: those of the mode at the scale of the axis, or more; 0 of tables of rows.

    Attributes:
        shape: of a table: (wanted, taps), or (wanted,).
    """

    def __init__(self, axis: Axis, mode: Mode, taps: int = 0) -> None:
        self.axis, self._mode, self._taps = axis, mode, taps
        self.shape = (axis.wanted, taps) if taps else (axis.wanted,)

    def array(self, table: Callable[..., Any]) -> np.ndarray:
        """The elements of a table: a method of this class that takes (o, k, axis, functions)."""
        o = np.arange(self.axis.wanted, dtype=np.float64)[:, None]
        k = np.arange(max(self._taps, 1), dtype=np.float64)[None]
        with np.errstate(all="ignore"):
            elements = np.broadcast_to(table(o, k, self.axis, _ARRAYS), (o.size, k.size))
        return elements.reshape(self.shape)

    def tensor(self, numbers: te.Tensor, table: Callable[..., Any], dtype: str) -> te.Tensor:
        """The elements of one table as expressions of a tensor of :attr:`Axis.numbers`."""
        axis, shape = self.axis.of(numbers), [tirx.IntImm("int64", n) for n in self.shape]

        def element(*at: Any) -> Any:
            o, k = [i.astype("float64") for i in at] + [_wide(0)] * (2 - len(at))
            return table(o, k, axis, _EXPRESSIONS).astype(dtype)

        return te.compute(shape, element, name="table")

    def weights(self) -> np.ndarray:
        """The weights (wanted, taps), whose sums are 1 where the mode divides by them."""
        weight = self.array(self.weight)
        return weight / weight.sum(1, keepdims=True) if self._mode.divides else weight

    def weights_of(self, numbers: te.Tensor, dtype: str) -> te.Tensor:
        """The same as expressions."""
        weight = self.tensor(numbers, self.weight, "float64" if self._mode.divides else dtype)
        if not self._mode.divides:
            return weight
        k = te.reduce_axis((0, self._taps), name="k")
        total = te.compute(weight.shape[:1], lambda o: te.sum(weight[o, k], axis=k), name="total")
        return te.compute(weight.shape, lambda o, k: (weight[o, k] / total[o]).astype(dtype), name="weight")

    def row(self, o: Any, k: Any, axis: Axis, f: _Functions) -> Any:
        """The nearest element."""
        rounding = self._mode.rounding or ("ceil" if self.axis.scale < 1 else "floor")
        return _inside(_ROUND[rounding](_at(o, axis, self._mode.coordinates, f), f), axis, f)

    def beyond(self, o: Any, k: Any, axis: Axis, f: _Functions) -> Any:
        """Whether an element lies outside of the input: 1 or 0."""
        at = _at(o, axis, self._mode.coordinates, f)
        return f.where(at < 0, 1.0, f.where(at > axis.size - 1, 1.0, 0.0))

    def index(self, o: Any, k: Any, axis: Axis, f: _Functions) -> Any:
        """The element of a tap; beyond the edges the outermost ones repeat."""
        return _inside(self._place(o, k, axis, f), axis, f)

    def weight(self, o: Any, k: Any, axis: Axis, f: _Functions) -> Any:
        """The weight of a tap, before weights are divided by their sum."""
        mode, place = self._mode, self._place(o, k, axis, f)
        distance = f.absolute(place - _at(o, axis, mode.coordinates, f))
        distance = distance * f.least(axis.scale, 1.0) if mode.antialias else distance
        weight = f.most(1.0 - distance, 0.0) if mode.kind == "linear" else _cubic(distance, mode.coefficient, f)
        if not mode.exclude:
            return weight
        return f.where(place >= 0, f.where(place < axis.size, weight, 0.0), 0.0)

    def _place(self, o: Any, k: Any, axis: Axis, f: _Functions) -> Any:
        return f.floor(_at(o, axis, self._mode.coordinates, f)) + (k + float(1 - self._taps // 2))


def _inside(index: Any, axis: Axis, f: _Functions) -> Any:
    return f.most(f.least(index, axis.size - 1), 0.0)


def _at(o: Any, axis: Axis, mode: str, f: _Functions) -> Any:
    """Where an element of the result lies in the input."""
    size, scale, width, alone = axis.size, axis.scale, axis.width, axis.wanted <= 1
    if mode == "align_corners":
        return f.where(alone, 0.0, o * (size - 1) / (width - 1))
    if mode == "asymmetric":
        return o / scale
    if mode == "tf_crop_and_resize":
        first, last = axis.roi
        middle = (last - first) * (size - 1) / 2
        return f.where(alone, middle, o * (last - first) * (size - 1) / (width - 1)) + first * (size - 1)
    plain = (o + 0.5) / scale - 0.5
    if mode == "half_pixel":
        return plain
    if mode == "pytorch_half_pixel":
        return f.where(alone, 0.0, plain)
    if mode == "half_pixel_symmetric":
        whole = axis.ratio[0] * size / axis.ratio[1] if axis.ratio else width  # not rounded, as by a policy
        return size / 2 * (1 - axis.wanted / whole) + plain
    raise Refusal(f"coordinate_transformation_mode {mode!r}")


def _cubic(d: Any, coefficient: float, f: _Functions) -> Any:
    """Keys' kernel (Cubic convolution interpolation for digital image processing, 1981)."""
    a = coefficient if f is _ARRAYS else _wide(coefficient)
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return f.where(d <= 1, near, f.where(d < 2, far, 0.0))
