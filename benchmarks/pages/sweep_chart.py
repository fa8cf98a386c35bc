"""A design sweep: a row a setting, its time on the left, its energy by level on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages import svg

WIDTH, LABEL, TOP, STEP, BAR, SPAN, GAP = 920, 96, 70, 24, 14, 300, 150
RIGHT = LABEL + SPAN + GAP
_COLOURS = {
    "array": ("#2f6fdb", "#5b96f5"), "vector": ("#8250df", "#b58cf5"),
    "scratchpad": ("#1a9e77", "#3fbf96"), "accumulator": ("#e0b400", "#f0cc3a"),
    "dram": ("#d9772b", "#e8964f"),
}  # fmt: skip
LEVELS = tuple(_COLOURS)
_BLUE, _DARK_BLUE = (f"fill: {colour};" for colour in _COLOURS["array"])
_STYLES = {
    **{".time": (_BLUE, ""), ".array": (_BLUE, ""), ".time, .array": ("", _DARK_BLUE)},
    **{f".{k}": (f"fill: {a};", f"fill: {b};") for k, (a, b) in _COLOURS.items() if k != "array"},
}


def sweep_chart(title: str, about: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The SVG text; rows are those of `offloading.speed.row_of`."""
    size = WIDTH, TOP + STEP * len(rows) + 38
    longest = max(row["seconds"] for row in rows)
    most = max(sum(row["energy"].values()) for row in rows)
    marks = [
        svg.text(LABEL, TOP - 8, "milliseconds (utilization)"),
        svg.text(RIGHT, TOP - 8, "millijoules, by level"),
    ]
    for at, row in enumerate(rows):
        marks += _row(row, TOP + STEP * at, longest, most)
    for at, level in enumerate(LEVELS):
        x, y = RIGHT - 190 + 112 * at, size[1] - 12
        marks += [svg.bar(level, x, y - 10, 12, 10), svg.text(x + 17, y, level)]
    return svg.picture(title, about, size, _STYLES, marks)


def _row(row: Mapping[str, Any], y: int, longest: float, most: float) -> list[str]:
    middle, width = y + BAR / 2 + 4.5, round(row["seconds"] / longest * SPAN, 1)
    time = f"{1e3 * row['seconds']:.2f} ({row['utilization']:.0%})"
    marks = [
        svg.text(LABEL - 10, middle, f"{row['rows']}x{row['cols']} {row['dataflow']}", "", "end"),
        svg.bar("time", LABEL, y, width, BAR),
        svg.text(round(LABEL + width + 8, 1), middle, time, ""),
    ]  # fmt: skip
    x = float(RIGHT)
    for level in LEVELS:
        part = row["energy"].get(level, 0.0) / most * SPAN
        marks.append(svg.bar(level, round(x, 1), y, round(part, 1), BAR))
        x += part
    total = f"{sum(row['energy'].values()) / 1e3:.1f}"
    return [*marks, svg.text(round(x + 8, 1), middle, total, "")]
