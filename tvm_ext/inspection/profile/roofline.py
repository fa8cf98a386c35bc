"""Kernels on the roofline of the machine: how fast each is, of what its operations a byte allow.

A kernel that executes `x` operations for each byte of its arguments cannot do more of them a second than either roof
allows (Williams, Waterman and Patterson, CACM 2009)::

    operations a second <= min(multiply-adds in registers, x * bytes a second of memory)

A kernel whose products another instruction adds (dot products, tile registers) has the peak of that one. What lies in a
cache comes faster: the roof of L2 is drawn too, and a kernel may stand above that of memory.
"""

from __future__ import annotations

import math
import os
import string
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.errors import OptionError, ToolError, UnsupportedError
from ...core.pages.charts import Chart, Roof, RooflinePoint, longest, roofline_chart
from ...runtime.files import write_whole
from ...runtime.table import Cell, Column, Markup, Table, few, percent
from .roofs import Roofs
from .rows import Row

if TYPE_CHECKING:
    from .profile import Profile

#: Sizes of the picture for terminals, of a full bar and of a kernel's name in its table; and its marks.
_COLUMNS, _LINES, _BAR, _LABEL = 76, 20, 20, 34
_LETTERS = string.ascii_lowercase + string.ascii_uppercase
_MANY, _OTHER = "*", "."


@dataclass(frozen=True)
class Roofline:
    """Points below (or, from caches, above) the roofs of a machine.

    Attributes:
        title, about: what it shows, and on which machine.
        points: in the order of the rows: intensities of arguments and results, rates and roofs a second.
        roofs: measured.
        left_out: labels of rows without operations or bytes, which have no place.
    """

    title: str
    about: str
    points: tuple[RooflinePoint, ...]
    roofs: Roofs
    left_out: tuple[str, ...] = ()

    def chart(self) -> Chart:
        """The picture: a dot a row, whose area is its time, and the names of those that take longest.

        Raises:
            ToolError: matplotlib is not installed.
        """
        bandwidths = (("L2", self.roofs.cache_bandwidth), ("memory", self.roofs.bandwidth))
        roofs = [
            Roof(f"{kind} {rate / 1e9:.1f} GB/s{f', {name}' if name else ''}", rate / 1e9, peak / 1e9, kind == "L2")
            for kind, rate in bandwidths
            for name, peak in self.roofs.peaks.items()
        ]
        dots = [replace(point, rate=point.rate / 1e9, roof=point.roof / 1e9) for point in self.points]
        units = ("operations executed for each byte of arguments and results", "GFLOP/s executed")
        notes = [f"no place: {few(self.left_out)}"] if self.left_out else []
        return roofline_chart(self.title, self.about, dots, roofs, units, notes)

    def svg(self) -> Markup:
        """The picture, as SVG that needs nothing else.

        Raises:
            ToolError: matplotlib is not installed.
        """
        return self.chart().svg()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it, as the end of the name says: .svg or .png (by matplotlib, extra `plots`), or .txt.

        Raises:
            OptionError: another ending.
            ToolError: the file cannot be written, or matplotlib is missing.
        """
        makers = {
            ".png": lambda: self.chart().png(), ".svg": lambda: f"{self.svg()}\n".encode(),
            ".txt": lambda: f"{self}\n".encode(),
        }  # fmt: skip
        make = makers.get(os.path.splitext(os.fspath(path))[1].lower())
        if make is None:
            raise OptionError(f"roofline {os.fspath(path)!r}: a name that ends in .svg, .png or .txt is needed")
        data = make()
        write_whole(path, lambda stream: stream.write(data))

    def __str__(self) -> str:
        points = longest(self.points, len(_LETTERS))  # others are dots
        marks = {point.number: letter for point, letter in zip(points, _LETTERS, strict=False)}
        return "\n".join([self.title, self.about, *_picture(self, marks), "", *_table(self, marks)])

    def _repr_svg_(self) -> str | None:
        """For notebooks; None, for the text, where matplotlib is not installed."""
        try:
            return self.svg()
        except ToolError:
            return None


def roofline_of(profile: Profile, group_by: str = "launch") -> Roofline:
    """The rows of a profile on its machine.

    Raises:
        OptionError: no such grouping.
        UnsupportedError: no row has operations and bytes.
    """
    rows = profile.rows(group_by)
    drawn = [(number, row) for number, row in enumerate(rows, start=1) if row.executed and row.work.bytes]
    drawn = [(number, row) for number, row in drawn if row.median]
    if not drawn:
        fix = "profile it at the sizes that it is planned at: those of its bounds" if profile.sizes else ""
        wrong = f"{profile.name}: no kernel's operations and bytes are known: there is nothing to draw"
        raise UnsupportedError(wrong, fix=fix)
    numbers = {number for number, _ in drawn}
    threads = f"{profile.threads} thread{'s' if profile.threads > 1 else ''}"
    products = "".join(f"{rate / 1e9:.0f} by {name}, " for name, rate in profile.roofs.instructions.items())
    return Roofline(
        f"{profile.name}: {'launches' if group_by == 'launch' else f'by {group_by}'} on the roofline",
        f"{profile.machine.get('cpu', '')}, {profile.machine.get('isa', '')}, {threads}; "
        f"{profile.roofs.flops / 1e9:.0f} GFLOP/s, {products}memory {profile.roofs.bandwidth / 1e9:.1f} GB/s, "
        f"L2 {profile.roofs.cache_bandwidth / 1e9:.0f} GB/s",
        tuple(_point(number, row, profile.roofs) for number, row in drawn), profile.roofs,
        tuple(row.label for number, row in enumerate(rows, start=1) if number not in numbers),
    )  # fmt: skip


def _point(number: int, row: Row, roofs: Roofs) -> RooflinePoint:
    executed, size = row.executed or 0.0, row.work.bytes or 1
    intensity, rate = executed / size, executed / row.median
    roof = min(row.peak, intensity * roofs.bandwidth)
    label, nodes = row.label, f" ({', '.join(row.nodes)})" if row.nodes and row.label != ", ".join(row.nodes) else ""
    detail = (
        f"{number}: {label}{nodes}: {row.median * 1e3:.4f} ms, {100 * row.share:.1f} % of the run; "
        f"{rate / 1e9:.1f} GFLOP/s executed, {intensity:.2f} operations a byte, {100 * rate / roof:.0f} % of the roof, "
        f"bound by {row.bound}"
    )
    return RooflinePoint(number, label, detail, intensity, rate, roof, row.bound, row.share)


# ------------------------------------------------------------ for terminals
@dataclass(frozen=True)
class LogAxes:
    """Logarithmic axes for a terminal: from a power of two to another one on both.

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


def ticks(low: int, high: int, most: int = 12) -> range:
    """Exponents to label: not more than `most`."""
    return range(low, high + 1, max(1, -(-(high - low) // most)))


def power_text(exponent: int) -> str:
    """2**exponent, as a fraction below one."""
    return str(2**exponent) if exponent >= 0 else f"1/{2**-exponent}"


def _picture(roofline: Roofline, marks: dict[int, str]) -> list[str]:
    axes = LogAxes.around(roofline)
    canvas = [[" "] * _COLUMNS for _ in range(_LINES)]
    _draw_roofs(canvas, axes, roofline)
    taken: dict[tuple[int, int], str] = {}
    for point in roofline.points:
        column, line = _column(axes.across(point.intensity)), _line(axes.along(point.rate))
        mark = marks.get(point.number, _OTHER)
        taken[line, column] = mark if (line, column) not in taken else _MANY
    for (line, column), mark in taken.items():
        canvas[line][column] = mark
    powers = ticks(axes.bottom, axes.top, _LINES // 2)
    names = {_line(axes.along(2.0**power * 1e9)): power_text(power) for power in powers}
    lines = [f"{names.get(at, ''):>7} |{''.join(row).rstrip()}" for at, row in enumerate(canvas)]
    return ["GFLOP/s executed", *lines, *_bottom(axes), f"{_MANY}: several kernels"]


def _draw_roofs(canvas: list[list[str]], axes: LogAxes, roofline: Roofline) -> None:
    """The roof of memory as a line, that of L2 as dots, each up to every peak."""
    roofs = roofline.roofs
    for bandwidth, slope in ((roofs.cache_bandwidth, "'"), (roofs.bandwidth, "/")):
        for peak in sorted(roofs.peaks.values(), reverse=True):
            for column in range(_COLUMNS):
                intensity = 2.0 ** (axes.left + (axes.right - axes.left) * (column + 0.5) / _COLUMNS)
                rate = min(peak, intensity * bandwidth)
                if rate >= 2.0**axes.bottom * 1e9:
                    canvas[_line(axes.along(rate))][column] = "-" if rate == peak else slope


def _column(part: float) -> int:
    return min(max(int(part * _COLUMNS), 0), _COLUMNS - 1)


def _line(part: float) -> int:
    return min(max(int((1 - part) * _LINES), 0), _LINES - 1)


def _bottom(axes: LogAxes) -> list[str]:
    """The lower axis and its numbers."""
    numbers = [" "] * (_COLUMNS + 10)
    for power in ticks(axes.left, axes.right):
        text, column = power_text(power), _column(axes.across(2.0**power))
        start = max(column - len(text) // 2, 0)
        numbers[start : start + len(text)] = text
    name = "operations executed a byte; / memory, ' L2"
    return [f"{'':7} +{'-' * _COLUMNS}", f"{'':9}{''.join(numbers).rstrip()}", f"{'':9}{name:^{_COLUMNS}}".rstrip()]


def _table(roofline: Roofline, marks: dict[int, str]) -> list[str]:
    columns = (
        "", "#", Column("kernel", most=_LABEL), Column("a byte", form=".2f"), Column("GFLOP/s", form=".1f"),
        Column("roof", form=".1f"), "bound", Column("of run", right=True), Column("of the roof", right=True, bar=_BAR),
    )  # fmt: skip
    rows = [
        (marks.get(p.number, _OTHER), p.number, p.label, p.intensity, p.rate / 1e9, p.roof / 1e9, p.bound,
         percent(p.share, 1), Cell(f"{p.of_roof:.0%}", share=p.of_roof))
        for p in roofline.points
    ]  # fmt: skip
    left = ", ".join(dict.fromkeys(roofline.left_out))
    return [Table(columns, rows).text(), *([f"without operations or bytes: {left}"] if left else [])]
