"""Two arrays that should be equal: the largest difference against an absolute bound, where it is, and its histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runtime.table import Cell, Column, Plain, Table, Value
from .metrics import Deviations

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
