"""The results of `precision.py` as files: a document of parts, which runs replace one by one, and its page."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from _common import RESULTS, markdown_table, met_text, write_text
from _contest import COSINE, WITHIN, Contender, Standing
from _machine import instructions, machine_text
from _reasons import NOT_PROFILED

NAME = "precision"
Document = dict[str, Any]

INTRODUCTION = """\
Every program is a process of its own with the same threads, batch 1, stopped while another one runs. A figure is the
median over interleaved rounds of (our round's least time / the other's round's least); below it least time, median and
interquartile range over all calls. Errors are the largest of any output against onnxruntime in float32, over that
output's range; a program whose outputs are farther off than {within:g}, or, in reduced precision, have a cosine of less
than {cosine:g} with onnxruntime's, has no time.
All get the same files: quantized ones are `tvm_ext.quantize`'s (QDQ, min-max over 16 inputs, weights by channel).
OpenVINO runs in an environment of its own, with its latency hint, so many threads, and nothing else set: it takes the
precision named below the table. Nothing is tuned, no record is used."""


def read(folder: pathlib.Path = RESULTS) -> Document:
    """What is committed, or an empty document."""
    path = folder / f"{NAME}.json"
    return json.loads(path.read_text()) if path.exists() else {"parts": {}}


def write(document: Document, folder: pathlib.Path = RESULTS) -> None:
    """Write both files."""
    write_text(folder / f"{NAME}.json", json.dumps(document, indent=1))
    write_text(folder / f"{NAME}.md", markdown(document))


def markdown(document: Document) -> str:
    """The page: all rows with their bars, then each part."""
    parts = document["parts"].values()
    lines = ["# Reduced precision", "", INTRODUCTION.format(within=WITHIN, cosine=COSINE), ""]
    lines += markdown_table(
        [("what", "bar", "measured", "met"), *(_cells(row) for part in parts for row in part["rows"])]
    )
    if missed := [reason for part in parts for row in part["rows"] if (reason := _reason(row))]:
        lines += ["", "Bars that are missed:", "", *missed]
    for part in parts:
        machine = part["machine"]
        about = f"{machine_text(machine)}; {instructions(machine)}, {machine['threads']} threads; {part['date']}."
        lines += ["", f"## {part['title']}", "", about, *(["", *part["notes"]] if part["notes"] else [])]
    return "\n".join(lines)


def contenders(entries: Sequence[Contender], standing: Standing) -> list[str]:
    """The table of contenders, and what OpenVINO took."""
    cells: list[tuple[str, ...]] = [("program", "version", "min ms", "median ms", "IQR ms", "error of range", "note")]
    cells += [_contender(entry, standing) for entry in entries]
    notes = [*filter(None, (_taken(entry, standing) for entry in entries))]
    notes += [f"* warning: {text}" for text in standing.warnings]
    return [*markdown_table(cells), *(["", *notes] if notes else [])]


def details(standing: Standing) -> Document:
    """Plain values of the contenders, for the JSON file."""
    return {
        "contenders": {
            key: {
                "version": row.version, "reason": row.reason, "of_range": row.of_range, "details": row.details,
                "minima_ms": [round(1e3 * t, 5) for t in row.minima],
                **{f"{name}_ms": round(1e3 * value, 5) for name, value in row.statistics().items()},
            }
            for key, row in standing.rows.items()
        },
        "warnings": list(standing.warnings),
    }  # fmt: skip


def _contender(entry: Contender, standing: Standing) -> tuple[str, ...]:
    row = standing.rows[entry.key]
    found = row.statistics()
    times = tuple(f"{1e3 * found[name]:.3f}" if found else "-" for name in ("min", "median", "iqr"))
    error = "-" if row.of_range is None else f"{row.of_range:.1e}"
    return (entry.title, row.version or "-", *times, error, row.reason or "")


def _taken(entry: Contender, standing: Standing) -> str:
    """What OpenVINO says of itself; empty for others."""
    facts = standing.rows[entry.key].details
    if "precision" not in facts:
        return ""
    kernels = ", ".join(f"{count} {name}" for name, count in facts["kernels"].items())
    return f"* {entry.title} took {facts['precision']}: {kernels}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (row["what"], row["bar"], row["measured"], met_text(row["met"]))


def _reason(row: Mapping[str, Any]) -> str:
    """What the profile says of a row that misses its bar; empty where it meets it, or is no ratio of times."""
    missed = row["met"] is False and "ratio" in row["details"]
    return f"* {row['what']}: {row['details'].get('reason', NOT_PROFILED)}" if missed else ""
