"""The suite's results as files: JSON, the chart, and the generated part of README.md."""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from _chart import Bar, chart
from _common import FOLDER, RESULTS, machine_text, markdown_table, write_text
from _measures import Outcome, Settings
from _reasons import REASONS
from _rows import RATIO, SuiteRow

README = FOLDER / "README.md"
BEGIN, END = "<!-- suite: begin of what benchmarks/suite.py writes -->", "<!-- suite: end -->"

Results = Sequence[tuple[SuiteRow, Outcome]]


def document(results: Results, settings: Settings, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of all rows, for suite.json."""
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    rows = [
        {
            "key": row.key, "title": row.title, "figure": row.figure, "bar": row.bar, "at_least": row.at_least,
            "met": row.met(outcome.value), "reason": reason(row, outcome), **asdict(outcome),
        }
        for row, outcome in results
    ]  # fmt: skip
    shared = ("threads", "rounds", "seconds", "repeats", "peers")
    about = {name: getattr(settings, name) for name in shared}
    return {"machine": dict(machine), "date": date, **about, "rows": rows}


def write(results: Results, settings: Settings, machine: Mapping[str, Any], readme: pathlib.Path = README,
          folder: pathlib.Path = RESULTS) -> None:  # fmt: skip
    """Write suite.json and suite.svg, and put table and chart between the marks of the README."""
    found = document(results, settings, machine)
    write_text(folder / "suite.json", json.dumps(found, indent=1))
    write_text(folder / "suite.svg", picture(results, settings, machine))
    lines = [machine_text(machine) + f"; {settings.threads} threads; {found['date']}.", ""]
    lines += ["![time / onnxruntime's, a bar a row](results/suite.svg)", "", *table(results, settings.peers)]
    insert(readme, lines)


def table(results: Results, peers: Sequence[str] = ()) -> list[str]:
    """Lines of the Markdown table, and below it what is to be said about rows."""
    head = ["what", "figure", "bar", "met", "rounds", "absolute", "error of range", *(f"{p} / ort" for p in peers)]
    lines = markdown_table([head, *(_cells(row, outcome, peers) for row, outcome in results)])
    notes = [f"* {what(row)}: {text}" for row, outcome in results if (text := reason(row, outcome))]
    return [*lines, *(["", "Rows without a figure, or that miss their bar:", "", *notes] if notes else [])]


def reason(row: SuiteRow, outcome: Outcome) -> str:
    """Why a row has no figure or misses its bar; empty if it meets it."""
    if outcome.value is None:
        return outcome.why or "no figure"
    if row.met(outcome.value):
        return ""
    return REASONS.get(row.key, "not explained yet")


def picture(results: Results, settings: Settings, machine: Mapping[str, Any]) -> str:
    """The chart of the rows that are times over onnxruntime's."""
    bars = []
    for row, outcome in results:
        if row.figure == RATIO:
            peers = {name: value for name, value in outcome.peers.items() if isinstance(value, float)}
            bars.append(Bar(row.title, outcome.value, row.bar, outcome.why, peers))
    isa = f", {machine['isa']}" if machine.get("isa") else ""
    about = (
        f"float32, {settings.threads} threads, no tuning; {machine['cpu']}{isa}; median over rounds; shorter is faster"
    )
    return chart("Time / onnxruntime's", about, bars)


def insert(path: pathlib.Path, lines: Sequence[str], begin: str = BEGIN, end: str = END) -> None:
    """Replace what stands between two marks of a file.

    Raises:
        ValueError: it has not exactly one pair of them.
    """
    text = path.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{path}: one line {begin!r} and, below it, one {end!r} are needed")
    before, after = text[: text.index(begin)], text[text.index(end) :]
    write_text(path, "\n".join([before + begin, "", *lines, "", after]))


def line(row: SuiteRow, outcome: Outcome) -> str:
    """One row for a terminal."""
    told = f"{row.key}: {figure(outcome)} (bar {bar_text(row)}"
    error = "" if outcome.of_range is None else f", error {outcome.of_range:.1e}"
    end = "met" if row.met(outcome.value) else "MISSED" if outcome.value is not None else outcome.why
    return f"{told}{error}{', ' + outcome.text if outcome.text else ''}): {end}"


def figure(outcome: Outcome) -> str:
    """The figure as text."""
    if outcome.value is None:
        return "-"
    text = f"{outcome.value:.3f}" if outcome.value < 10 else f"{outcome.value:.1f}"
    return text + (" (too noisy to tell)" if outcome.noisy else "")


def _cells(row: SuiteRow, outcome: Outcome, peers: Sequence[str]) -> list[str]:
    spread = "-" if outcome.spread is None else " to ".join(f"{v:.2f}" for v in outcome.spread)
    error = "-" if outcome.of_range is None else f"{outcome.of_range:.1e}"
    met = "-" if outcome.value is None else "yes" if row.met(outcome.value) else "NO"
    others = [_peer(outcome.peers.get(peer)) for peer in peers]
    return [what(row), figure(outcome), bar_text(row), met, spread, outcome.text or "-", error, *others]


def what(row: SuiteRow) -> str:
    """The row's title, with its figure if that is another than the time over onnxruntime's."""
    return row.title if row.figure == RATIO else f"{row.title}: {row.figure}"


def _peer(value: float | str | None) -> str:
    return f"{value:.2f}" if isinstance(value, float) else value or "-"


def bar_text(row: SuiteRow) -> str:
    """The bar as text."""
    return f"{row.bar:g} or {'more' if row.at_least else 'less'}"
