"""Comparing two arrays that should be equal: errors, ULP distance, cosine similarity, NaN and infinity; histograms.

Every metric is taken over the positions where both sides are finite; positions where only one side is NaN, or where
infinities differ, are counted apart and always fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.numbers.accuracy import value_range as value_range
from ..runtime.table import Cell, Column, Plain, Table, Value

#: Largest error of an output, as a part of the reference's range. A float32 network sums hundreds of products in an
#: order of its own choice, so two correct programs differ by some tens of roundings: 1e-5 is 84 units of float32's
#: 1.2e-7; float64 gets about as many units. Half types are usually summed in float32 and rounded once a layer, so
#: theirs are about five units of 9.8e-4 and 7.8e-3. Integers, booleans and strings must be equal.
TOLERANCES = {"float64": 1e-13, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}

#: An element this close to its reference agrees whatever the output's range is: a nearly constant output has a range
#: of rounding errors, and nothing can be asked of it beyond its own precision.
FREE_ULP = 4


@dataclass(frozen=True)
class OutputMetrics(Plain):
    """How one output compares with its reference.

    Attributes:
        name: ONNX name of the output.
        dtype, shape: of the output.
        reference_dtype, reference_shape: of the reference.
        max_abs: largest absolute error.
        of_range: `max_abs` over the range (max - min) of the reference; see :func:`value_range`.
        max_ulp: largest distance in representable values of the dtype; None for dtypes that are compared exactly.
        cosine: cosine similarity of the two as vectors; NaN if one is zero and the other is not.
        nan_mismatch: elements that are NaN on one side only.
        inf_mismatch: elements that are infinite on one side only, or with different signs.
        nan, inf: NaN and infinite elements of the output.
        mismatched: elements outside the tolerance, those two kinds included.
        worst_index: index of the worst element; None if there is none or the shapes differ.
        actual, expected: the values there, as text.
        tolerance: the bound on `of_range`; 0 means exact equality.
        reason: why it fails; empty if it does not.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    reference_dtype: str
    reference_shape: tuple[int, ...]
    max_abs: float = 0.0
    of_range: float = 0.0
    max_ulp: int | None = None
    cosine: float = 1.0
    nan_mismatch: int = 0
    inf_mismatch: int = 0
    nan: int = 0
    inf: int = 0
    mismatched: int = 0
    worst_index: tuple[int, ...] | None = None
    actual: str = ""
    expected: str = ""
    tolerance: float = 0.0
    reason: str = ""

    derived = ("ok",)

    @property
    def ok(self) -> bool:
        return not self.reason

    @property
    def finite(self) -> int:
        """Elements of the output that are neither NaN nor infinite."""
        return math.prod(self.shape) - self.nan - self.inf

    @property
    def severity(self) -> float:
        """Orders outputs from good to bad: 0 is equal, up to 1 is within tolerance, infinity is no comparison."""
        if self.nan_mismatch or self.inf_mismatch or self.worst_index is None:
            return math.inf if self.reason else 0.0
        within = self.of_range / self.tolerance if self.tolerance else 0.0
        return 1.0 + max(within, float(self.mismatched)) if self.reason else min(1.0, within)


def compare(name: str, actual: np.ndarray, expected: np.ndarray, tolerance: float | None = None) -> OutputMetrics:
    """Compare an output with its reference.

    Args:
        name: ONNX name of the output.
        actual: what was computed, any shape.
        expected: the reference.
        tolerance: largest error of a floating-point output, of the reference's range; None takes
            :data:`TOLERANCES` for the dtype. Other dtypes must always be equal.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    base: dict[str, Any] = {
        "name": name, "dtype": actual.dtype.name, "shape": actual.shape,
        "reference_dtype": expected.dtype.name, "reference_shape": expected.shape,
    }  # fmt: skip
    if actual.shape != expected.shape:
        return OutputMetrics(**base, reason=f"shape {actual.shape}, but the reference has {expected.shape}")
    if actual.dtype != expected.dtype:
        return OutputMetrics(**base, reason=f"dtype {actual.dtype.name}, but the reference has {expected.dtype.name}")
    is_float, is_number = actual.dtype.name in TOLERANCES, actual.dtype.name in TOLERANCES or actual.dtype.kind in "iub"
    if not is_float or tolerance is None:
        tolerance = TOLERANCES.get(actual.dtype.name, 0.0)
    span = value_range(expected) if is_number else 1.0
    elements = Deviations.of(actual, expected, tolerance * span)
    fields = {**elements.summary(), "tolerance": tolerance}
    if is_number:
        largest, finite = float(elements.errors.max(initial=0.0)), elements.finite
        fields |= {"max_abs": largest, "of_range": largest / span}
        fields["cosine"] = cosine_similarity(actual[finite], expected[finite])
    if is_float:
        fields |= {"nan": int(np.isnan(actual).sum()), "inf": int(np.isinf(actual).sum())}
        fields["max_ulp"] = int(elements.ulps.max(initial=np.uint64(0)))
    return OutputMetrics(**base, **fields, reason=_why(fields, actual.size))


def _why(fields: dict[str, Any], elements: int) -> str:
    if fields["nan_mismatch"]:
        return f"{fields['nan_mismatch']} elements are NaN on one side only"
    if fields["inf_mismatch"]:
        return f"{fields['inf_mismatch']} infinities differ"
    if fields["mismatched"] and "max_ulp" in fields:
        return f"error {fields['of_range']:.2e} of the range, more than {fields['tolerance']:.0e}"
    return f"{fields['mismatched']} of {elements} elements differ" if fields["mismatched"] else ""


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many representable values lie between two arrays of one float dtype, as uint64; -0 and +0 are the same.

    Finite values and infinities only: the distance of a NaN means nothing.
    """
    x, y = _ordered(a), _ordered(b)
    # int64 cannot hold the distance of the largest and the smallest float64, uint64 (which wraps) can
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64))


def cosine_similarity(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two arrays taken as vectors, in float64; 1 if both are zero or empty."""
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    # scaled first: the squares of large values would overflow, those of small ones vanish
    x, y = (v / (np.abs(v).max(initial=0.0) or 1.0) for v in (x, y))
    norms = float(np.linalg.norm(x)) * float(np.linalg.norm(y))
    if norms:
        return max(-1.0, min(1.0, float(x @ y) / norms))
    return 1.0 if not x.any() and not y.any() else math.nan


def _ordered(values: np.ndarray) -> np.ndarray:
    """The bits of floats as int64 that sort as the floats do, neighbours one apart."""
    width = values.dtype.itemsize
    bits = np.array(values, order="C").view(f"i{width}").astype(np.int64)
    lowest = -(1 << (8 * width - 1))
    return np.where(bits >= 0, bits, lowest - bits)


@dataclass(frozen=True)
class Deviations:
    """Two arrays of one shape and dtype, element by element.

    Attributes:
        actual, expected: the arrays.
        errors: absolute differences in float64; 0 where one side is not finite. Of what are no numbers 1 where they
            differ.
        ulps: of floats, how many representable values they are apart where both sides are finite; else 0.
        nans: where one side alone is NaN; infs: where one side alone is infinite, or with another sign.
        finite: where both sides are.
        wrong: beyond the bound, those with NaN and infinity on one side included.
    """

    actual: np.ndarray
    expected: np.ndarray
    errors: np.ndarray
    ulps: np.ndarray
    nans: np.ndarray
    infs: np.ndarray
    finite: np.ndarray
    wrong: np.ndarray

    @classmethod
    def of(cls, actual: np.ndarray, expected: np.ndarray, bound: float) -> Deviations:
        """Compare two arrays.

        Args:
            actual: what was computed.
            expected: the reference.
            bound: largest error; 0 means equal. Floats within :data:`FREE_ULP` agree whatever the bound is, unless it
                is 0.
        """
        is_float, unequal = actual.dtype.name in TOLERANCES, np.asarray(actual != expected)
        if not is_float and actual.dtype.kind not in "iub":
            none = np.zeros_like(unequal)
            return cls(actual, expected, unequal.astype(np.float64), none, none, none, ~none, unequal)
        a, e = (np.asarray(v, np.float64) for v in (actual, expected))
        infs = (np.isinf(a) | np.isinf(e)) & (a != e)
        nans, finite = np.isnan(a) != np.isnan(e), np.isfinite(a) & np.isfinite(e)
        with np.errstate(over="ignore"):  # the error of +max against -max is infinite, and shall be
            errors = np.abs(np.subtract(a, e, where=finite, out=np.zeros_like(a)))
        ulps = np.where(finite, ulp_distance(actual, expected) if is_float else 0, np.uint64(0))
        # Truth values have no steps, and the error of wide integers in float64 may be 0.
        beyond = errors > bound if bound and actual.dtype.kind != "b" else unequal & finite
        free = (ulps <= FREE_ULP) & (is_float and bound > 0)
        return cls(actual, expected, errors, ulps, nans, infs, finite, nans | infs | (beyond & ~free))

    def summary(self) -> dict[str, Any]:
        """Numbers of elements that are wrong, index of the worst one (None of no elements), and both values there."""
        counts = {"mismatched": self.wrong, "nan_mismatch": self.nans, "inf_mismatch": self.infs}
        fields: dict[str, Any] = {name: int(where.sum()) for name, where in counts.items()}
        if not self.errors.size:
            return fields
        score = self.errors + np.where(self.wrong, self.errors.max() + 1.0, 0.0)
        flat = int(np.argmax(np.where(self.nans | self.infs, np.inf, score)))
        index = tuple(int(i) for i in np.unravel_index(flat, score.shape))
        values = {"actual": str(self.actual[index]), "expected": str(self.expected[index])}
        return {**fields, "worst_index": index, **values}


# ------------------------------------------------------------ against an absolute bound
Bins = tuple[tuple[int | None, int], ...]
"""(power of ten, elements whose difference has it), rising; None for elements that are equal."""


@dataclass(frozen=True)
class Difference(Plain):
    """How one array differs from its reference.

    Attributes:
        largest: largest absolute difference of finite elements.
        ratio: the largest difference beyond a few ulp, over the bound: up to 1 is within it; infinite if elements had
            to be equal, or if NaN or infinity are on one side only.
        mismatched: elements beyond the bound, those with NaN and infinity on one side included.
        nan_mismatch, inf_mismatch: elements that are NaN on one side only; infinities that differ.
        worst_index: index of the worst element; None if there is none.
        actual, expected: the values there, as text.
        bins: histogram of differences.
    """

    largest: float
    ratio: float
    mismatched: int
    nan_mismatch: int = 0
    inf_mismatch: int = 0
    worst_index: tuple[int, ...] | None = None
    actual: str = ""
    expected: str = ""
    bins: Bins = ()

    @property
    def ok(self) -> bool:
        return not self.mismatched


def difference(actual: np.ndarray, expected: np.ndarray, bound: float) -> Difference:
    """Compare two arrays of one shape and dtype.

    Args:
        actual: what was computed.
        expected: the reference.
        bound: largest difference; 0 means equal. Elements a few ulp apart agree whatever the bound is, unless it is 0.
    """
    elements = Deviations.of(actual, expected, bound)
    if not elements.errors.size:
        return Difference(0.0, 0.0, 0)
    largest = float(elements.errors.max())
    ratio = min(1.0, largest / bound) if bound else 0.0
    if elements.wrong.any():
        uncountable = not bound or elements.nans.any() or elements.infs.any()
        ratio = math.inf if uncountable else float(elements.errors[elements.wrong].max()) / bound
    return Difference(largest, ratio, **elements.summary(), bins=bins_of(elements.errors))


def bins_of(errors: np.ndarray) -> Bins:
    """Histogram by powers of ten; powers between that no element has are there with 0."""
    positive = errors[errors > 0]
    powers = np.floor(np.log10(positive)).astype(int)
    counts = dict(zip(*(v.tolist() for v in np.unique(powers, return_counts=True)), strict=True))
    zero = errors.size - positive.size
    between = range(min(counts), max(counts) + 1) if counts else ()
    return (*([(None, zero)] if zero else []), *((power, counts.get(power, 0)) for power in between))


def histogram(bins: Sequence[tuple[int | None, int]], bound: float, caption: str = "differences") -> Table:
    """A bar for each power of ten; roots, so that a few elements among a million can be seen.

    Args:
        bins: of :class:`Difference`.
        bound: differences beyond it are marked.
        caption: of the table.
    """
    most = max((count for _, count in bins), default=0) or 1
    rows: list[list[Value]] = []
    for power, count in bins:
        beyond = power is not None and 10.0**power >= bound and count > 0
        name = "equal" if power is None else f"1e{power:+03d} to 1e{power + 1:+03d}"
        bar = Cell(count, share=math.sqrt(count / most), tone="bad" if beyond else "")
        label = Cell(name, -math.inf if power is None else float(power))
        rows.append([label, bar, "beyond the tolerance" if beyond else ""])
    return Table(("difference", Column("elements", bar=40), ""), rows, caption)
