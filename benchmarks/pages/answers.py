"""What a part of a page found: rows with their bars, and the table of contenders below them."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.common.rows import Row, table
from benchmarks.measuring.contest import Contender, Standing
from benchmarks.measuring.reasons import NOT_PROFILED


@dataclasses.dataclass
class Answer:
    """What was found.

    Attributes:
        rows: of the table.
        notes: Markdown below it.
        details: plain values for the JSON file.
        explain: puts the reasons of missed bars into the rows; takes a profile each.
    """

    rows: list[Row]
    notes: list[str] = dataclasses.field(default_factory=list)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    explain: Callable[[], None] = lambda: None


def contenders_table(entries: Sequence[Contender], standing: Standing) -> list[str]:
    """Lines of the table of contenders, and of what OpenVINO took."""
    head = ("program", "version", "min ms", "median ms", "IQR ms", "error of range", "note")
    notes = [*filter(None, (_taken(entry, standing) for entry in entries))]
    notes += [f"* warning: {text}" for text in standing.warnings]
    cells = table([head, *(_contender(entry, standing) for entry in entries)])
    return [*cells.splitlines(), *(["", *notes] if notes else [])]


def details(standing: Standing) -> dict[str, Any]:
    """Plain values of the contenders, for the JSON file."""
    rows = {}
    for key, row in standing.rows.items():
        about = {name: getattr(row, name) for name in ("version", "reason", "of_range", "details")}
        times = {f"{name}_ms": round(1e3 * t, 5) for name, t in row.statistics().items()}
        rows[key] = {**about, "minima_ms": [round(1e3 * t, 5) for t in row.minima], **times}
    return {"contenders": rows, "warnings": list(standing.warnings)}


def missed_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Markdown of what the profile says of plain rows that miss their bar, where they have a reason
    or are a ratio of times; "" where there is none."""
    lines = []
    for row in (row for row in rows if row["met"] is False):
        reason = row["details"].get("reason", NOT_PROFILED if "ratio" in row["details"] else "")
        lines += [f"* {row['what']}: {reason}"] if reason else []
    return "\n".join(["Bars that are missed:", "", *lines]) if lines else ""


def _contender(entry: Contender, standing: Standing) -> tuple[str, ...]:
    row = standing.rows[entry.key]
    statistics = row.statistics()
    times = (
        f"{1e3 * statistics[name]:.3f}" if statistics else "-" for name in ("min", "median", "iqr")
    )
    error = "-" if row.of_range is None else f"{row.of_range:.1e}"
    return (entry.title, row.version or "-", *times, error, row.reason or "")


def _taken(entry: Contender, standing: Standing) -> str:
    """What OpenVINO says of itself; empty for others."""
    facts = standing.rows[entry.key].details
    if "precision" not in facts:
        return ""
    kernels = ", ".join(f"{count} {name}" for name, count in facts["kernels"].items())
    return f"* {entry.title} took {facts['precision']}: {kernels}"
