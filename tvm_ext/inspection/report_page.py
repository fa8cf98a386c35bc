"""The page of a report: a section a part, each from the result of the module that knows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.pages.page import Facts, Fold, Note, Page, Part
from ..runtime.offload_report import OffloadReport
from ..runtime.table import Cell, Column, Table
from ..verification.layers import LayerReport
from .memory import MemoryPlan
from .report import Report


def report_page(report: Report) -> Page:
    """The page: a section a part of the report."""
    page = Page(f"{report.model}, compiled for {report.isa}")
    for title, parts, folded in _sections(report):
        page.section(title, *parts, folded=folded)
    return page


def _sections(report: Report) -> list[tuple[str, Sequence[Part], bool]]:
    """Title, parts, and whether only the title shows at first."""
    facts = report.facts
    made: list[tuple[str, Sequence[Part], bool]] = [
        ("Summary", [Facts(report.summary()), *_warnings(report)], False)
    ]  # fmt: skip
    if report.profile is not None:
        made.append(("Profile", report.profile.parts(), False))
    if report.layers is not None:
        made.append(("Accuracy", _accuracy(report.layers), False))
    made.append(("Kernels", [_kernels(facts["kernels"])], False))
    made.append(("Memory", MemoryPlan.of(facts, report.model).parts(), False))
    made.append(("ONNX nodes", report.owners.parts(), False))
    made += [(title, parts, "node" in title) for title, parts in report.analysis.sections(passes=False)[1:]]
    made.append(("Passes", _passes(facts["passes"]), False))
    made.append(("Tuning records", _records(facts), False))
    if "offload" in facts:
        made.append(("Offload", _offload(OffloadReport.of(facts, report.model)), False))
    made.append(("Compile time and environment", [_environment(report)], False))
    return made


def _warnings(report: Report) -> list[Note]:
    texts = dict.fromkeys([*report.facts.get("warnings", ()), *report.analysis.warnings])
    return [Note(text, "warn") for text in texts]


def _accuracy(layers: LayerReport) -> list[Part]:
    problems = [Note(problem, "bad") for problem in (*layers.outputs.problems, *layers.outputs.warnings)]
    return [*problems, layers.outputs.table(), *layers.parts()]


def _kernels(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("kernel", "recipe", "calls", "FLOPs a call", "bytes a call", Column("estimate", "us"), "layouts",
               "configuration", "why no recipe", "ONNX nodes")  # fmt: skip
    return Table(columns, [
        (
            row["name"], Cell(row["recipe"], tone="warn" if row["reason"] else ""), row["calls"], row.get("flops"),
            row.get("bytes"), row["estimated_us"], row["layouts"], _config(row["config"]), row["reason"],
            ", ".join(row["nodes"]),
        )
        for row in rows
    ]).filled()  # fmt: skip


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{knob}={value if isinstance(value, int | float | str) else json.dumps(value)}"
                    for knob, value in config.items())  # fmt: skip


def _passes(rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    listed = [
        (at, row["name"], len(row["fired"]), len(row["skipped"]), 1e3 * row["seconds"])
        for at, row in enumerate(rows, start=1)
    ]
    parts: list[Part] = [Table(("#", "pass", "fired", "skipped", Column("time", "ms")), listed)]
    for at, row in enumerate(rows, start=1):
        events = [(Cell(kind, tone="dim" if kind == "skipped" else ""), value, detail)
                  for kind in ("fired", "skipped") for value, detail in row[kind]]  # fmt: skip
        if events:
            title = f"{at} {row['name']}: {len(row['fired'])} fired, {len(row['skipped'])} skipped"
            parts.append(Fold(title, [Table(("", "value", "what, or why not"), events)]))
    return parts


def _records(report: Mapping[str, Any]) -> list[Part]:
    used = [(row["name"], row["recipe"], row["record"], _config(row["config"])) for row in report["kernels"]
            if row["record"]]  # fmt: skip
    from ..passes.lowering.choose_recipes import ChooseRecipes

    chosen = [row for row in report["passes"] if row["name"] == ChooseRecipes.name]
    unplanned = {row["name"] for row in report["kernels"] if row["reason"]}
    refused = [(value, why) for row in chosen for value, why in row["skipped"] if value not in unplanned]
    tables = (Table(("kernel", "recipe", "session", "configuration"), used, "followed"),
              Table(("group", "why"), refused, "not followed"))  # fmt: skip
    count = Note(f"{len(used)} of {len(report['kernels'])} kernels follow a tuning record.")
    return [count, *(table for table in tables if table.rows)]


def _offload(found: OffloadReport) -> list[Part]:
    return [Note(str(found).partition("\n")[0]), found.region_table(), found.op_table()]


def _environment(report: Report) -> Facts:
    environment = dict(report.environment)
    packages = environment.pop("packages", {})
    timing = [(f"{stage}, seconds", seconds) for stage, seconds in report.facts.get("timing", {}).items()]
    pairs = [(name.replace("_", " "), str(value)) for name, value in environment.items()]
    return Facts([*timing, *pairs, *((name, str(version)) for name, version in packages.items())])
