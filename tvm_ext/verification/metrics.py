"""Comparing one output with its reference: errors, ULP distance, cosine similarity, NaN and infinity.

Every metric is taken over the positions where both sides are finite; positions where only one side is NaN, or where
infinities differ, are counted apart and always fail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.numbers.accuracy import value_range as value_range
from ..runtime.table import plain

#: Largest error of an output, as a part of the reference's range. A float32 network sums hundreds of products in an
#: order of its own choice, so two correct programs differ by some tens of roundings: 1e-5 is 84 units of float32's
#: 1.2e-7; float64 gets about as many units. Half types are usually summed in float32 and rounded once a layer, so
#: theirs are about five units of 9.8e-4 and 7.8e-3. Integers, booleans and strings must be equal.
TOLERANCES = {"float64": 1e-13, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}

#: An element this close to its reference agrees whatever the output's range is: a nearly constant output has a range
#: of rounding errors, and nothing can be asked of it beyond its own precision.
FREE_ULP = 4


@dataclass(frozen=True)
class OutputMetrics:
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

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: NaN and infinity become text, which JSON has no numbers for."""
        return dict(plain(self, "ok"))


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
    if actual.dtype.name not in TOLERANCES:
        return _exact(base, actual, expected)
    return _floating(base, actual, expected, TOLERANCES[actual.dtype.name] if tolerance is None else tolerance)


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


class Deviations(NamedTuple):
    """Two floating-point (or integer) arrays, element by element, in float64.

    Attributes:
        errors: absolute differences; 0 where one side is not finite.
        nans: where one side alone is NaN; infs: where one side alone is infinite, or with another sign.
        finite: where both sides are.
    """

    errors: np.ndarray
    nans: np.ndarray
    infs: np.ndarray
    finite: np.ndarray

    @classmethod
    def of(cls, actual: np.ndarray, expected: np.ndarray) -> Deviations:
        a, e = (np.asarray(v, np.float64) for v in (actual, expected))
        infs = (np.isinf(a) | np.isinf(e)) & (a != e)
        finite = np.isfinite(a) & np.isfinite(e)
        with np.errstate(over="ignore"):  # the error of +max against -max is infinite, and shall be
            errors = np.abs(np.subtract(a, e, where=finite, out=np.zeros_like(a)))
        return cls(errors, np.isnan(a) != np.isnan(e), infs, finite)


def _floating(base: dict[str, Any], actual: np.ndarray, expected: np.ndarray, tolerance: float) -> OutputMetrics:
    errors, nans, infs, finite = Deviations.of(actual, expected)
    ulps = np.where(finite, ulp_distance(actual, expected), np.uint64(0))
    span = value_range(expected)
    wrong = nans | infs | ((errors > tolerance * span) & (ulps > (FREE_ULP if tolerance else 0)))
    found: dict[str, Any] = {
        "max_abs": float(errors.max(initial=0.0)), "of_range": float(errors.max(initial=0.0)) / span,
        "max_ulp": int(ulps.max(initial=np.uint64(0))), "cosine": cosine_similarity(actual[finite], expected[finite]),
        "nan_mismatch": int(nans.sum()), "inf_mismatch": int(infs.sum()),
        "nan": int(np.isnan(actual).sum()), "inf": int(np.isinf(actual).sum()),
        "mismatched": int(wrong.sum()), "tolerance": tolerance,
    }  # fmt: skip
    score = np.where(nans | infs, np.inf, errors + np.where(wrong, span * 2, 0.0))
    return OutputMetrics(**base, **found, **worst(actual, expected, score), reason=_why(found))


def _why(found: dict[str, Any]) -> str:
    if found["nan_mismatch"]:
        return f"{found['nan_mismatch']} elements are NaN on one side only"
    if found["inf_mismatch"]:
        return f"{found['inf_mismatch']} infinities differ"
    if found["mismatched"]:
        return f"error {found['of_range']:.2e} of the range, more than {found['tolerance']:.0e}"
    return ""


def _exact(base: dict[str, Any], actual: np.ndarray, expected: np.ndarray) -> OutputMetrics:
    unequal = np.asarray(actual != expected)
    found: dict[str, Any] = {"mismatched": int(unequal.sum())}
    score = unequal.astype(np.float64)
    if actual.dtype.kind in "iub":
        # Python's float division of wide integers is inexact, but never turns unequal into equal here
        score = np.where(unequal, np.abs(actual.astype(np.float64) - expected.astype(np.float64)) + 1.0, 0.0)
        found["max_abs"] = max(float(score.max(initial=0.0)) - 1.0, 0.0)
        found["of_range"] = found["max_abs"] / value_range(expected.astype(np.float64))
        found["cosine"] = cosine_similarity(actual, expected)
    total = max(actual.size, 1)
    reason = f"{found['mismatched']} of {total} elements differ" if found["mismatched"] else ""
    return OutputMetrics(**base, **found, **worst(actual, expected, score), reason=reason)


def worst(actual: np.ndarray, expected: np.ndarray, score: np.ndarray) -> dict[str, Any]:
    """Index of the largest score, and what both arrays have there, as text; empty of empty arrays."""
    if not score.size:
        return {}
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(score)), score.shape))
    return {"worst_index": index, "actual": str(actual[index]), "expected": str(expected[index])}
