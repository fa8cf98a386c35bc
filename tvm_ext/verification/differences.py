"""Two arrays that should be equal: the largest difference against an absolute bound, where it is, and its histogram."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .metrics import FREE_ULP, ulp_distance
from .tolerance import UNIT_ROUNDOFF

Bins = tuple[tuple[int | None, int], ...]
"""(power of ten, elements whose difference has it), rising; None for elements that are equal."""


@dataclass(frozen=True)
class Difference:
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

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; infinities as text."""
        plain = asdict(self)
        plain |= {k: str(v) for k, v in plain.items() if isinstance(v, float) and not math.isfinite(v)}
        plain["worst_index"] = None if self.worst_index is None else list(self.worst_index)
        return {**plain, "bins": [list(one) for one in self.bins]}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Difference:
        """The inverse of :meth:`as_dict`."""
        index = row["worst_index"]
        bins = tuple((None if power is None else int(power), int(count)) for power, count in row["bins"])
        return cls(
            float(row["largest"]), float(row["ratio"]), row["mismatched"], row["nan_mismatch"], row["inf_mismatch"],
            None if index is None else tuple(index), row["actual"], row["expected"], bins,
        )  # fmt: skip


def difference(actual: np.ndarray, expected: np.ndarray, bound: float) -> Difference:
    """Compare two arrays of one shape and dtype.

    Args:
        actual: what was computed.
        expected: the reference.
        bound: largest difference; 0 means equal. Elements a few ulp apart agree whatever the bound is, unless it is 0.
    """
    if actual.dtype.name not in UNIT_ROUNDOFF and actual.dtype.kind not in "iu":
        unequal = np.asarray(actual != expected)
        return _of(actual, expected, unequal.astype(np.float64), unequal, unequal & False, unequal & False, 0.0)
    a, e = (np.asarray(v, np.float64) for v in (actual, expected))
    nans = np.isnan(a) != np.isnan(e)
    infs = (np.isinf(a) | np.isinf(e)) & (a != e) & ~(np.isnan(a) | np.isnan(e))
    finite = np.isfinite(a) & np.isfinite(e)
    with np.errstate(over="ignore"):
        errors = np.abs(np.subtract(a, e, where=finite, out=np.zeros_like(a)))
    wrong = errors > bound
    if bound and actual.dtype.name in UNIT_ROUNDOFF:
        wrong &= np.where(finite, ulp_distance(actual, expected), np.uint64(0)) > FREE_ULP
    return _of(actual, expected, errors, wrong | nans | infs, nans, infs, bound)


def _of(
    actual: np.ndarray, expected: np.ndarray, errors: np.ndarray, wrong: np.ndarray, nans: np.ndarray,
    infs: np.ndarray, bound: float,
) -> Difference:  # fmt: skip
    if not errors.size:
        return Difference(0.0, 0.0, 0)
    score = np.where(nans | infs, np.inf, np.where(wrong, errors + errors.max(), errors))
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(score)), score.shape))
    mismatched, largest = int(wrong.sum()), float(errors.max())
    ratio = min(1.0, largest / bound) if bound else 0.0
    if mismatched:
        ratio = math.inf if not bound or nans.any() or infs.any() else float(errors[wrong].max()) / bound
    return Difference(
        largest, ratio, mismatched, int(nans.sum()), int(infs.sum()), index, str(actual[index]), str(expected[index]),
        bins_of(errors),
    )  # fmt: skip


def bins_of(errors: np.ndarray) -> Bins:
    """Histogram by powers of ten; powers between that no element has are there with 0."""
    positive = errors[errors > 0]
    powers = np.floor(np.log10(positive)).astype(int)
    found = dict(zip(*(v.tolist() for v in np.unique(powers, return_counts=True)), strict=True))
    zero = errors.size - positive.size
    between = range(min(found), max(found) + 1) if found else ()
    return (*([(None, zero)] if zero else []), *((power, found.get(power, 0)) for power in between))


def bars(bins: Sequence[tuple[int | None, int]], bound: float, width: int = 40) -> list[str]:
    """A histogram as lines of text; lines beyond the bound are marked."""
    most = max((count for _, count in bins), default=0)
    lines = []
    for power, count in bins:
        label = "equal" if power is None else f"1e{power:+03d} to 1e{power + 1:+03d}"
        beyond = power is not None and 10.0**power >= bound
        # roots: a handful of wrong elements among a million right ones is a bar that can be seen
        bar = "#" * max(round(width * math.sqrt(count / most)), 1 if count else 0) if most else ""
        lines.append(f"  {label:>14}  {count:>9}  {bar}{'  beyond the tolerance' if beyond and count else ''}".rstrip())
    return lines
