"""Comparisons layer by layer, and bisections, as parts of a page; and what a notebook shows of them."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any, TypeVar

from ..verification.bisect import Bisection, Culprit
from ..verification.layers import BAD, SKIPPED, LayerReport, LayerRow
from .markup import Cell, Markup, Value, code, facts, fold, note, table
from .page import fragment

T = TypeVar("T", LayerReport, Bisection)

LAYER_TITLES = (
    "call", "kernel", "recipe", "ONNX value", "difference", "tolerance", "ratio", "in a plain run", "result", "nodes",
    "why",
)  # fmt: skip
LAYER_NUMERIC = ("call", "difference", "tolerance", "ratio", "in a plain run")


def layer_parts(report: LayerReport) -> list[Markup]:
    """The verdict, the first bad or worst kernel with a histogram of its differences, and a row a kernel's value."""
    parts = [note(report.verdict, "good" if report.ok else "bad")]
    parts += [note(f"output {one.name}: {one.reason}", "bad") for one in report.outputs.outputs if not one.ok]
    looked_at = report.first_bad or report.worst
    if looked_at is not None and looked_at.alone is not None:
        parts += [facts(_worst(looked_at)), _histogram(looked_at)]
    return [*parts, table(LAYER_TITLES, layer_rows(report), LAYER_NUMERIC, "each kernel on the reference's operands")]


def layer_rows(report: LayerReport) -> list[list[Value]]:
    """A row under :data:`LAYER_TITLES` for each value of a kernel."""
    return [_row(row, row is report.first_bad) for row in report.rows]


def _row(row: LayerRow, first: bool) -> list[Value]:
    tone = {BAD: "bad", SKIPPED: "dim"}.get(row.status, "good")
    found = row.alone
    ratio = None if found is None else Cell(f"{found.ratio:.3g}", found.ratio, share=min(1.0, found.ratio))
    return [
        row.order, row.kernel, row.recipe, row.value, found.largest if found else None,
        Cell(f"{row.tolerance:.2e}", row.tolerance, title=row.tolerance_text) if found else None, ratio, row.total,
        Cell("first bad" if first else row.status, tone=tone), ", ".join(row.nodes), row.reason,
    ]  # fmt: skip


def _worst(row: LayerRow) -> list[tuple[str, Value]]:
    found = row.alone
    assert found is not None
    at = ", ".join(map(str, found.worst_index or ()))
    return [
        ("first bad" if row.status == BAD else "worst", f"call {row.order}, {row.kernel}"),
        ("value", f"{row.value}[{at}] is {found.actual}, reference {found.expected}"),
        ("ONNX nodes", ", ".join(row.nodes) or "none"),
        ("recipe", f"{row.recipe} {json.dumps(dict(row.config), sort_keys=True)}"),
        ("tolerance", f"{row.tolerance:.2e} ({row.tolerance_text})"),
    ]


def _histogram(row: LayerRow) -> Markup:
    """A bar for each power of ten; roots, so that a few elements among a million can be seen."""
    found = row.alone
    assert found is not None
    most = max((count for _, count in found.bins), default=0) or 1
    rows: list[list[Value]] = []
    for power, count in found.bins:
        beyond = power is not None and 10.0**power >= row.tolerance and count > 0
        name = "equal" if power is None else f"1e{power:+03d} to 1e{power + 1:+03d}"
        sorts = -math.inf if power is None else float(power)
        bar = Cell(str(count), count, share=math.sqrt(count / most), tone="bad" if beyond else "")
        rows.append([Cell(name, sorts), bar, "beyond the tolerance" if beyond else ""])
    return table(("difference", "elements", ""), rows, ("difference", "elements"), f"differences of {row.value}")


def bisection_parts(result: Bisection) -> list[Markup]:
    """The verdict, the culprits with all that is known of them, the trials, and the commands that show it again."""
    parts = [note(result.verdict, "good" if result.ok else "bad")]
    for finding in result.findings:
        for title, found in (("", finding.culprits), ("it takes too: ", finding.also)):
            parts += [facts(_culprit(one, title)) for one in found]
        if not finding.culprits:
            kept = "; ".join(f"{name} is always on: {why}" for name, why in finding.kept)
            parts.append(fold(f"no {finding.kind}: {finding.reason}", note(kept or "everything was switched off")))
    trials: list[list[Value]] = [
        [
            one.number, one.kind or "everything on", ", ".join(one.off), one.on, one.error,
            Cell("agrees" if one.ok else one.detail, tone="good" if one.ok else "bad"), one.seconds,
        ]
        for one in result.trials
    ]  # fmt: skip
    titles = ("trial", "kind", "off", "on", "error", "result", "seconds")
    parts.append(table(titles, trials, ("trial", "on", "error", "seconds"), f"against {result.reference}"))
    return [*parts, *([code("\n".join(result.commands), "sh")] if result.commands else [])]


def _culprit(one: Culprit, title: str) -> list[tuple[str, Value]]:
    lines: list[tuple[str, Value]] = [(f"{title}{one.kind}", one.name)]
    known = (
        ("stands in", one.place), ("session", one.session), ("ONNX nodes", ", ".join(one.nodes)),
        ("recipe", f"{one.recipe} {json.dumps(dict(one.config), sort_keys=True)}" if one.recipe else ""),
        ("what it did", "; ".join(one.events[:8])),
    )  # fmt: skip
    return lines + [(name, text) for name, text in known if text]


# ------------------------------------------------------------ notebooks
class _ShownLayers(LayerReport):
    def _repr_html_(self) -> str:
        return fragment(*layer_parts(self))


class _ShownBisection(Bisection):
    def _repr_html_(self) -> str:
        return fragment(*bisection_parts(self))


_SHOWN: dict[type, Any] = {LayerReport: _ShownLayers, Bisection: _ShownBisection}


def shown(result: T) -> T:
    """The same result, which a notebook shows as a page; `verification` stands below this room and has no pages."""
    made: T = _SHOWN[type(result)](**{one.name: getattr(result, one.name) for one in fields(result)})
    return made
