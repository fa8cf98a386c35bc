"""A profile as text for a terminal."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from .clock import overhead_text
from .rows import Row

if TYPE_CHECKING:
    from .compare import Comparison, Interval
    from .profile import Profile

_NAME, _NODES, _LINE = 32, 34, 118
#: Of the first three columns, by grouping.
_TITLES = {
    "launch": ("#", "kernel", "ONNX nodes"), "kernel": ("n", "kernel", "ONNX nodes"),
    "recipe": ("n", "recipe", "ONNX nodes"), "node": ("n", "ONNX nodes", "kernels"),
}  # fmt: skip
HOW_TO_READ = (
    "GFLOP/s: operations as the model states them; of peak: those that the kernels execute (Winograd: fewer); "
    "GB/s: arguments and results, each once; above 100 % of the bandwidth (bw) they lie in caches"
)


def profile_text(profile: Profile, group_by: str = "launch", top: int = 0, details: bool = False) -> str:
    """Head, rows, and what is outside of the kernels.

    Args:
        profile: to print.
        group_by, top: as for :meth:`.profile.Profile.rows`.
        details: also configuration, record and machine code, in a line below each row.
    """
    rows = profile.rows(group_by, top)
    lines = [*head(profile), "", *_table(profile, rows, group_by, details)]
    return "\n".join(lines)


def head(profile: Profile) -> list[str]:
    """What was measured and how."""
    batch = f", batch {profile.batch}" if profile.batch else ""
    threads = f"{profile.threads} thread{'s' if profile.threads > 1 else ''}"
    counts = [launch.arguments for launch in profile.launches]
    machine = f"{profile.machine.get('cpu', '')}, {profile.machine.get('isa', '')}, {threads}"
    texts = [
        f"{profile.model}{batch}: {profile.seconds * 1e3:.3f} ms undisturbed (median of {len(profile.whole)} rounds), "
        f"{len(profile.launches)} launch{'es' if len(profile.launches) > 1 else ''}; {machine}",
        f"kernels / undisturbed run: {profile.coverage}",
        overhead_text(profile.overhead, counts),
        f"machine: {profile.roofs}",
        HOW_TO_READ,
        *profile.notes,
    ]
    return [line for text in texts for line in textwrap.wrap(text, _LINE, subsequent_indent="  ")]


def _table(profile: Profile, rows: Sequence[Row], group_by: str, details: bool) -> list[str]:
    first, *named = _TITLES[group_by]
    titles = (first, *named, "ms", "min", "%", "GFLOP/s", "of peak", "GB/s", "of bw", "bound")
    cells = [titles, *(_cells(row, group_by) for row in rows), *_rest(profile, rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(titles))]
    lines = [_line(row, widths, {1, 2, 10}) for row in cells]
    if not details:
        return lines
    head_line, body, rest = lines[0], lines[1 : 1 + len(rows)], lines[1 + len(rows) :]
    pairs = zip(body, rows, strict=True)
    return [head_line, *(text for line, row in pairs for text in (line, *_details(row))), *rest]


def _cells(row: Row, group_by: str) -> tuple[str, ...]:
    first = str(row.launches[0]) if group_by == "launch" else str(len(row.launches))
    nodes = short(", ".join(row.kernels if group_by == "node" else row.nodes), _NODES)
    label = short(row.label, _NAME)
    return (
        first, label, nodes, f"{row.median * 1e3:.4f}", f"{row.least * 1e3:.4f}", f"{100 * row.share:.1f}",
        _number(row.gflops), percent(row.of_peak), _number(row.gbs), percent(row.of_bandwidth), row.bound,
    )  # fmt: skip


def _rest(profile: Profile, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What the rows leave, so that the sum is the whole."""
    shown = {number for row in rows for number in row.launches}
    left = [launch for launch in profile.launches if launch.number not in shown]
    others = statistics.median(map(sum, zip(*(one.seconds for one in left), strict=True))) if left else 0.0
    whole = profile.seconds
    outside = whole - others - sum(row.median for row in rows)
    lines = [("", f"{len(left)} other launches", others)] if left else []
    lines += [("", "outside kernels (VM, call)", outside), ("", "whole run, undisturbed", whole)]
    return [(*names, "", f"{s * 1e3:.4f}", "", f"{100 * s / whole:.1f}", *[""] * 5) for *names, s in lines]


def _details(row: Row) -> list[str]:
    """Configuration, record and machine code."""
    backend = next((recipe for recipe in row.recipes if recipe.startswith("offload:")), "")
    parts = [
        ", ".join(row.recipes), " ".join(f"{knob}={value}" for knob, value in row.config.items()),
        f"record of {row.record}" if row.record else "", f"region {row.region} on {backend[8:]}" if row.region else "",
        row.reason, str(row.code) if row.code else "",
    ]  # fmt: skip
    text = "; ".join(part for part in parts if part)
    return textwrap.wrap(text, _LINE, initial_indent="     ", subsequent_indent="     ")


def _line(cells: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
    shown = (c.ljust(w) if at in left else c.rjust(w) for at, (c, w) in enumerate(zip(cells, widths, strict=True)))
    return "  ".join(shown).rstrip()


def comparison_text(comparison: Comparison, only: str = "") -> str:
    """All changes as a table, the whole run last.

    Args:
        comparison: to print.
        only: a verdict; changes with another one are left out.
    """
    titles = ("kernel", "ONNX nodes", "ms before", "ms after", "ratio", "")
    changes = [one for one in comparison.changes if only in ("", one.verdict)]
    cells = [titles] + [
        (
            short(one.label, _NAME), short(", ".join(one.nodes), _NODES), _interval(one.before), _interval(one.after),
            f"{one.ratio:.3f}" if one.ratio is not None else "", one.verdict,
        )
        for one in (*changes, comparison.whole)
    ]  # fmt: skip
    widths = [max(len(row[at]) for row in cells) for at in range(len(titles))]
    notes = [line for note in comparison.notes for line in textwrap.wrap(note, _LINE, subsequent_indent="  ")]
    return "\n".join([f"{comparison.model}: before and after", *notes, "",
                      *(_line(row, widths, {0, 1, 5}) for row in cells)])  # fmt: skip


def _interval(side: Interval | None) -> str:
    return str(side) if side else ""


def short(text: str, length: int) -> str:
    """The text, cut in its middle if it is longer."""
    return text if len(text) <= length else f"{text[: length // 2 - 1]}…{text[len(text) - (length - length // 2) :]}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def percent(part: Any) -> str:
    """A part as percent; "" for None."""
    return "" if part is None else f"{100 * part:.0f} %"
