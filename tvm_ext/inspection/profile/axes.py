"""Logarithmic axes around the points and the ridge of a roofline, in powers of two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .roofline import Roofline


@dataclass(frozen=True)
class LogAxes:
    """From a power of two to another one, on both axes.

    Attributes:
        left, right: exponents of operations a byte.
        bottom, top: exponents of 10^9 operations a second.
    """

    left: int
    right: int
    bottom: int
    top: int

    @classmethod
    def around(cls, roofline: Roofline) -> LogAxes:
        """Axes on which the points, and the ridges where roofs meet, have room."""
        points, roofs = roofline.points, roofline.roofs
        peaks = roofs.peaks.values()
        ridges = [peak / bandwidth for peak in peaks for bandwidth in (roofs.bandwidth, roofs.cache_bandwidth)]
        across = [math.log2(x) for x in (*(p.intensity for p in points), *ridges)]
        along = [math.log2(y / 1e9) for y in (*(p.rate for p in points), *peaks)]
        return cls(
            math.floor(min(across) - 0.3), math.ceil(max(across) + 0.3), math.floor(min(along) - 0.3),
            math.ceil(max(along) + 0.2),
        )  # fmt: skip

    def across(self, intensity: float) -> float:
        """Where it lies between left, 0, and right, 1."""
        return (math.log2(intensity) - self.left) / (self.right - self.left)

    def along(self, rate: float) -> float:
        """Where it lies between bottom, 0, and top, 1."""
        return (math.log2(rate / 1e9) - self.bottom) / (self.top - self.bottom)

    def roof(self, flops: float, bandwidth: float) -> list[tuple[float, float]]:
        """Corners of a roof, (operations a byte, operations a second): up by bandwidth, then level."""
        start = max(2.0**self.left, 2.0**self.bottom * 1e9 / bandwidth)
        return [(start, start * bandwidth), (flops / bandwidth, flops), (2.0**self.right, flops)]


def ticks(low: int, high: int, most: int = 12) -> range:
    """Exponents to label: not more than `most`."""
    return range(low, high + 1, max(1, -(-(high - low) // most)))


def power_text(exponent: int) -> str:
    """2**exponent, as a fraction below one."""
    return str(2**exponent) if exponent >= 0 else f"1/{2**-exponent}"
