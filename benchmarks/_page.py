"""The suite's results as files: JSON, a page and a chart, all of them from the document that the JSON holds."""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from _chart import Bar, chart
from _common import markdown_table, met_text, write_text
from _machine import machine_text
from _measures import Outcome, Settings
from _reasons import NOT_PROFILED
from _rows import RATIO, SuiteRow

Results = Sequence[tuple[SuiteRow, Outcome]]
Document = Mapping[str, Any]
#: Plain values of one row of a document: those of the suite's row, and of its outcome.
Plain = Mapping[str, Any]


def document(results: Results, settings: Settings, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of all rows, for suite.json."""
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    shared = ("threads", "rounds", "seconds", "repeats", "peers")
    about = {name: getattr(settings, name) for name in shared}
    return {"machine": dict(machine), "date": date, **about, "rows": [plain(*result) for result in results]}


def plain(row: SuiteRow, outcome: Outcome) -> dict[str, Any]:
    """A row and its outcome as plain values, with the reason why it has no figure or misses its bar."""
    about = {name: getattr(row, name) for name in ("key", "title", "figure", "bar", "at_least")}
    return {**about, "met": row.met(outcome.value), **asdict(outcome), "reason": _reason(row, outcome)}


def _reason(row: SuiteRow, outcome: Outcome) -> str:
    if outcome.value is None:
        return outcome.why or "no figure"
    return "" if row.met(outcome.value) else outcome.reason or NOT_PROFILED


def write(found: Document, folder: pathlib.Path) -> None:
    """Write suite.json, suite.md and suite.svg into a folder."""
    write_text(folder / "suite.json", json.dumps(found, indent=1))
    write_text(folder / "suite.svg", picture(found))
    about = f"{machine_text(found['machine'])}; {found['threads']} threads; {found['date']}."
    lines = ["# Suite", "", about, "", "![time / onnxruntime's, a bar a row](suite.svg)", "", *table(found)]
    write_text(folder / "suite.md", "\n".join(lines))


def table(found: Document) -> list[str]:
    """Lines of the Markdown table, and below it what is to be said about rows."""
    peers, rows = found["peers"], found["rows"]
    head = ["what", "figure", "bar", "met", "rounds", "absolute", "error of range", *(f"{p} / ort" for p in peers)]
    lines = markdown_table([head, *(_cells(row, peers) for row in rows)])
    notes = [f"* {what(row)}: {row['reason']}" for row in rows if row["reason"]]
    return [*lines, *(["", "Rows without a figure, or that miss their bar:", "", *notes] if notes else [])]


def picture(found: Document) -> str:
    """The chart of the rows that are times over onnxruntime's."""
    bars = []
    for row in found["rows"]:
        if row["figure"] == RATIO:
            peers = {name: value for name, value in row["peers"].items() if isinstance(value, float)}
            bars.append(Bar(row["title"], row["value"], row["bar"], row["why"], peers))
    machine = found["machine"]
    isa = f", {machine['isa']}" if machine.get("isa") else ""
    about = (
        f"float32, {found['threads']} threads, no tuning; {machine['cpu']}{isa}; median over rounds; shorter is faster"
    )
    return chart("Time / onnxruntime's", about, bars)


def line(row: Plain) -> str:
    """One row for a terminal."""
    told = f"{row['key']}: {figure(row)} (bar {bar_text(row)}"
    error = "" if row["of_range"] is None else f", error {row['of_range']:.1e}"
    end = "met" if row["met"] else "MISSED" if row["value"] is not None else row["why"]
    return f"{told}{error}{', ' + row['text'] if row['text'] else ''}): {end}"


def figure(row: Plain) -> str:
    """The figure as text."""
    value = row["value"]
    if value is None:
        return "-"
    text = f"{value:.3f}" if value < 10 else f"{value:.1f}"
    return text + (" (too noisy to tell)" if row["noisy"] else "")


def _cells(row: Plain, peers: Sequence[str]) -> list[str]:
    spread = "-" if row["spread"] is None else " to ".join(f"{v:.2f}" for v in row["spread"])
    error = "-" if row["of_range"] is None else f"{row['of_range']:.1e}"
    met = met_text(None if row["value"] is None else row["met"])
    others = [_peer(row["peers"].get(peer)) for peer in peers]
    return [what(row), figure(row), bar_text(row), met, spread, row["text"] or "-", error, *others]


def what(row: Plain) -> str:
    """The row's title, with its figure if that is another than the time over onnxruntime's."""
    return str(row["title"] if row["figure"] == RATIO else f"{row['title']}: {row['figure']}")


def _peer(value: float | str | None) -> str:
    return f"{value:.2f}" if isinstance(value, float) else value or "-"


def bar_text(row: Plain) -> str:
    """The bar as text."""
    return f"{row['bar']:g} or {'more' if row['at_least'] else 'less'}"
