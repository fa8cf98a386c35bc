"""The page of a report: a section a part, each from the result of the module that knows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..verification.layers import LayerReport
from ..verification.metrics import OutputMetrics
from .analysis.result import scaled
from .checks import LAYER_NUMERIC, LAYER_TITLES, layer_rows
from .markup import Cell, Markup, Value, facts, fold, note, table
from .memory import MemoryPlan
from .page import Page
from .report import Report

Section = tuple[str, Sequence[str], bool]
"""Title, parts, and whether only the title shows at first."""


def report_page(report: Report) -> Page:
    """The page."""
    page = Page(f"{report.model}, compiled for {report.isa}")
    for title, parts, folded in _sections(report):
        page.section(title, *parts, folded=folded)
    return page


def summary(report: Report) -> list[tuple[str, str]]:
    """The report in a few lines."""
    made = [("model", report.model)]
    made += [("input", text) for text in report.inputs] + [("output", text) for text in report.outputs]
    work, facts_ = report.analysis, report.facts
    made += [
        ("work", f"{len(work.nodes)} nodes, {scaled(work.flops)}FLOP, {work.parameters:,} parameters"),
        ("program", f"{facts_['launches']} launches of {len(facts_['kernels'])} kernels, {report.isa}, "
                    f"{report.threads} threads"),
        ("memory", f"{scaled(facts_['weight_bytes'])}B of weights, {scaled(facts_['activation_bytes'])}B of values"),
        ("owned by", report.owners.verdict),
    ]  # fmt: skip
    if report.profile is not None:
        made.append(("time", f"{report.profile.seconds * 1e3:.3f} ms"))
    if report.layers is not None:
        made.append(("accuracy", report.layers.verdict))
    return made + [(f"no {part}", why) for part, why in report.failed.items()]


def _sections(report: Report) -> list[Section]:
    facts_ = report.facts
    made: list[Section] = [("Summary", [facts(summary(report)), *_warnings(report)], False)]
    if report.profile is not None:
        from .profile.page import profile_parts

        made.append(("Profile", profile_parts(report.profile), False))
    if report.layers is not None:
        made.append(("Accuracy", _accuracy(report.layers), False))
    made.append(("Kernels", _kernels(facts_["kernels"]), False))
    made.append(("Memory", MemoryPlan.of(facts_, report.model).parts(), False))
    made.append(("ONNX nodes", report.owners.parts(), False))
    made += [(title, parts, "node" in title) for title, parts in report.analysis.sections(passes=False)[1:]]
    made.append(("Passes", _passes(facts_["passes"]), False))
    made.append(("Tuning records", _records(facts_), False))
    if "offload" in facts_:
        made.append(("Offload", _offload(facts_["offload"]), False))
    made.append(("Compile time and environment", _environment(report), False))
    return made


def _warnings(report: Report) -> list[Markup]:
    texts = dict.fromkeys([*report.facts.get("warnings", ()), *report.analysis.warnings])
    return [note(text, "warn") for text in texts]


# ------------------------------------------------------------------------------------------------ accuracy
def _accuracy(layers: LayerReport) -> list[Markup]:
    source = "given inputs" if layers.seed is None else f"inputs of seed {layers.seed}"
    outputs = table(
        ("output", "dtype", "shape", "max abs", "of range", "ULP", "cosine", "NaN", "Inf", "result"),
        [_output(one) for one in layers.outputs.outputs],
        caption=f"outputs, against {layers.reference}, {source}",
    )
    problems = [note(problem, "bad") for problem in (*layers.outputs.problems, *layers.outputs.warnings)]
    verdict = note(layers.verdict[0].upper() + layers.verdict[1:] + ".", "good" if layers.ok else "bad")
    return [
        verdict,
        *problems,
        outputs,
        _filled(LAYER_TITLES, layer_rows(layers), LAYER_NUMERIC, "each kernel, on the reference's operands"),
    ]


def _output(one: OutputMetrics) -> list[Value]:
    result = Cell("ok" if one.ok else f"failed: {one.reason}", tone="good" if one.ok else "bad")
    shape = "x".join(map(str, one.shape)) or "()"
    return [one.name, one.dtype, shape, one.max_abs, one.of_range, one.max_ulp, one.cosine,
            one.nan, one.inf, result]  # fmt: skip


# ------------------------------------------------------------------------------------------------ program
def _kernels(rows: Sequence[Mapping[str, Any]]) -> list[Markup]:
    titles = ("kernel", "recipe", "calls", "FLOPs a call", "bytes a call", "estimate, us", "layouts", "configuration",
              "why no recipe", "ONNX nodes")  # fmt: skip
    made: list[list[Value]] = [
        [
            row["name"], Cell(row["recipe"], tone="warn" if row["reason"] else ""), row["calls"], row.get("flops"),
            row.get("bytes"), row["estimated_us"], row["layouts"], _config(row["config"]), row["reason"],
            ", ".join(row["nodes"]),
        ]
        for row in rows
    ]  # fmt: skip
    return [_filled(titles, made, ("calls", "FLOPs a call", "bytes a call", "estimate, us"))]


def _filled(
    titles: Sequence[str], rows: Sequence[Sequence[Value]], numeric: Sequence[str], caption: str = ""
) -> Markup:
    """A table without the columns that are empty in every row."""
    kept = [at for at in range(len(titles)) if any(row[at] not in (None, "") for row in rows)]
    names = [titles[at] for at in kept]
    return table(names, [[row[at] for at in kept] for row in rows], [one for one in numeric if one in names], caption)


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{knob}={value if isinstance(value, int | float | str) else json.dumps(value)}"
                    for knob, value in config.items())  # fmt: skip


def _passes(rows: Sequence[Mapping[str, Any]]) -> list[Markup]:
    listed = [
        [at, row["name"], len(row["fired"]), len(row["skipped"]), 1e3 * row["seconds"]]
        for at, row in enumerate(rows, start=1)
    ]
    parts = [table(("#", "pass", "fired", "skipped", "ms"), listed)]
    for at, row in enumerate(rows, start=1):
        events = [[Cell(kind, tone="dim" if kind == "skipped" else ""), value, detail]
                  for kind in ("fired", "skipped") for value, detail in row[kind]]  # fmt: skip
        if events:
            title = f"{at} {row['name']}: {len(row['fired'])} fired, {len(row['skipped'])} skipped"
            parts.append(fold(title, table(("", "value", "what, or why not"), events)))
    return parts


def _records(report: Mapping[str, Any]) -> list[Markup]:
    used = [[row["name"], row["recipe"], row["record"], _config(row["config"])] for row in report["kernels"]
            if row["record"]]  # fmt: skip
    chosen = [row for row in report["passes"] if row["name"] == "choose-recipes"]
    unplanned = {row["name"] for row in report["kernels"] if row["reason"]}
    refused = [[value, why] for row in chosen for value, why in row["skipped"] if value not in unplanned]
    parts = [note(f"{len(used)} of {len(report['kernels'])} kernels follow a tuning record.")]
    if used:
        parts.append(table(("kernel", "recipe", "session", "configuration"), used, caption="followed"))
    return [*parts, table(("group", "why"), refused, caption="not followed")] if refused else parts


def _offload(found: Mapping[str, Any]) -> list[Markup]:
    regions = [
        [
            row["name"], len(row["composites"]), len(row["nodes"]), row["program_bytes"], _us(row["seconds"]),
            _us(row["host_seconds"]), ", ".join(row["nodes"]),
        ]
        for row in found["regions"]
    ]  # fmt: skip
    titles = ("region", "composites", "nodes", "program bytes", "there, us", "on the CPU, us", "ONNX nodes")
    names = dict.fromkeys(row["backend"] for row in found["regions"]) or [found["backend"]]
    parts = [note(f"{len(regions)} regions run on {' and '.join(map(repr, names))}.")]
    parts += [table(titles, regions)] if regions else []
    return [*parts, table(("node", "operator", "place", "reason"), found["ops"], caption="every node")]


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else 1e6 * seconds


def _environment(report: Report) -> list[Markup]:
    environment = dict(report.environment)
    packages = environment.pop("packages", {})
    timing = [(f"{stage}, seconds", seconds) for stage, seconds in report.facts.get("timing", {}).items()]
    pairs: list[tuple[str, Value]] = [(name.replace("_", " "), str(value)) for name, value in environment.items()]
    return [facts([*timing, *pairs, *((name, str(version)) for name, version in packages.items())])]
