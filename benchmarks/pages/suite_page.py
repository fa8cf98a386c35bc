"""The suite's results as files: JSON, a page and a chart, all of them from the document that the
JSON holds."""

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.asked.measures import Outcome
from benchmarks.asked.rows import RATIO, SuiteRow
from benchmarks.asked.settings import Settings
from benchmarks.common.machine import machine_text
from benchmarks.common.results import today, write_json, write_text
from benchmarks.common.rows import met_text, table
from benchmarks.measuring.reasons import NOT_PROFILED
from benchmarks.pages.charts import Bar, bars_chart, svg_file

Results = Sequence[tuple[SuiteRow, Outcome]]
Document = Mapping[str, Any]
#: Plain values of one row of a document: those of the suite's row, and of its outcome.
Plain = Mapping[str, Any]


def document(results: Results, settings: Settings, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of all rows, for suite.json."""
    shared = ("threads", "rounds", "seconds", "repeats", "peers")
    about = {name: getattr(settings, name) for name in shared}
    rows = [plain(*result) for result in results]
    return {"machine": dict(machine), "date": today(), **about, "rows": rows}


def plain(row: SuiteRow, outcome: Outcome) -> dict[str, Any]:
    """A row and its outcome as plain values, with the reason why it has no figure or misses its
    bar."""
    about = {name: getattr(row, name) for name in ("key", "title", "figure", "bar", "at_least")}
    met = row.met(outcome.value)
    why = outcome.why or "no figure"
    missed = outcome.reason or NOT_PROFILED
    reason = why if outcome.value is None else "" if met else missed
    return {**about, "met": met, **asdict(outcome), "reason": reason}


def write(document: Document, folder: pathlib.Path) -> None:
    """Write suite.json, suite.md and suite.svg into a folder."""
    write_json(folder / "suite.json", document)
    write_text(folder / "suite.svg", picture(document))
    about = (
        f"{machine_text(document['machine'])}; {document['threads']} threads; {document['date']}."
    )
    image = "![time / onnxruntime's, a bar a row](suite.svg)"
    write_text(folder / "suite.md", "\n\n".join(["# Suite", about, image, markdown(document)]))


def markdown(document: Document) -> str:
    """The table, and below it what is to be said about rows."""
    peers, rows = document["peers"], document["rows"]
    head = ["what", "figure", "bar", "met", "rounds", "absolute", "error of range"]
    lines = table([[*head, *(f"{p} / ort" for p in peers)], *(_cells(row, peers) for row in rows)])
    notes = "\n".join(f"* {what(row)}: {row['reason']}" for row in rows if row["reason"])
    below = f"\n\nRows without a figure, or that miss their bar:\n\n{notes}"
    return lines + (below if notes else "")


def picture(document: Document) -> str:
    """The chart of the rows that are times over onnxruntime's."""
    bars = []
    for row in (row for row in document["rows"] if row["figure"] == RATIO):
        peers = {name: value for name, value in row["peers"].items() if isinstance(value, float)}
        bars.append(Bar(row["title"], row["value"], row["bar"], row["why"], peers))
    machine = document["machine"]
    isa = f", {machine['isa']}" if machine.get("isa") else ""
    how = f"float32, {document['threads']} threads, no tuning"
    about = f"{how}; {machine['cpu']}{isa}; median over rounds; shorter is faster"
    return svg_file(bars_chart("Time / onnxruntime's", about, bars))


def line(row: Plain) -> str:
    """One row for a terminal."""
    error = "" if row["of_range"] is None else f", error {row['of_range']:.1e}"
    text = f", {row['text']}" if row["text"] else ""
    end = "met" if row["met"] else "MISSED" if row["value"] is not None else row["why"]
    return f"{row['key']}: {figure(row)} (bar {bar_text(row)}{error}{text}): {end}"


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
    others = [row["peers"].get(peer) or "-" for peer in peers]
    texts = [f"{value:.2f}" if isinstance(value, float) else value for value in others]
    return [what(row), figure(row), bar_text(row), met, spread, row["text"] or "-", error, *texts]


def what(row: Plain) -> str:
    """The row's title, with its figure if that is another than the time over onnxruntime's."""
    return str(row["title"] if row["figure"] == RATIO else f"{row['title']}: {row['figure']}")


def bar_text(row: Plain) -> str:
    """The bar as text."""
    return f"{row['bar']:g} or {'more' if row['at_least'] else 'less'}"
