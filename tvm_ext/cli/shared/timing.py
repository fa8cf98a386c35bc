"""Where the time of a compile went: import, each pass, build, link, load, with a bar each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...runtime.table import Cell, Column, percent
from .common import print_table

_WIDTH = 30


def print_timing(report: Mapping[str, Any]) -> None:
    """A row a step, in the order they ran.

    Args:
        report: of a compiled model; one from the cache has the times of the compile that made it.
    """
    rows = list(_rows(report))
    total = sum(seconds for _, seconds, _ in rows) or 1.0
    longest = max((seconds for _, seconds, _ in rows), default=0.0) or 1.0
    columns = (
        "step", Column("time", "s", ".3f"), Column("share", right=True, bar=_WIDTH), "fired", "skipped",
    )  # fmt: skip
    cells = [
        (name, seconds, Cell(percent(seconds / total, 1), share=seconds / longest), *events)
        for name, seconds, events in rows
    ]
    print_table(columns, [*cells, ("all", total, "", "", "")])


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, float, tuple[object, object]]]:
    """Name, seconds, and what fired and was skipped; passes in the place of their sum."""
    none = ("", "")
    for stage, seconds in report.get("timing", {}).items():
        if stage != "passes":
            yield stage, seconds, none
            continue
        passes = report.get("passes", [])
        for number, one in enumerate(passes, start=1):
            yield f"{number:2} {one['name']}", one["seconds"], (len(one["fired"]), len(one["skipped"]))
        rest = seconds - sum(one["seconds"] for one in passes)
        if rest > 0:
            yield "between passes", rest, none
