"""A roofline for terminals: roofs and rows drawn with letters, and a table with a bar for the part of the roof."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...runtime.table import Cell, Column, Table, percent
from .axes import LogAxes, power_text, ticks
from .roofline import Point

if TYPE_CHECKING:
    from .roofline import Roofline

_COLUMNS, _LINES, _BAR, _LABEL = 76, 20, 20, 34
_LETTERS = string.ascii_lowercase + string.ascii_uppercase
_MANY, _OTHER = "*", "."


def text_of(roofline: Roofline) -> str:
    """The picture and the table."""
    marks = _letters(roofline.points)
    return "\n".join([roofline.title, roofline.about, *_picture(roofline, marks), "", *_table(roofline, marks)])


def _letters(points: Sequence[Point]) -> dict[int, str]:
    """Number -> letter, for the points that take longest, in their order; others are dots."""
    chosen = sorted(sorted(points, key=lambda point: -point.share)[: len(_LETTERS)], key=lambda point: point.number)
    return {point.number: letter for point, letter in zip(chosen, _LETTERS, strict=False)}


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
