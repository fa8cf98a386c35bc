"""A profile as parts and as text: what was measured and how, its rows, and what is outside of the kernels."""

from __future__ import annotations

import statistics
import textwrap
from typing import TYPE_CHECKING

from ...core.pages.page import Note, Part, text_of
from ...runtime.table import Column, Table, Value, knobs_text, percent_cell
from .clock import overhead_text
from .rows import Row

if TYPE_CHECKING:
    from .profile import Profile

#: Letters of a kernel's name and of ONNX nodes in a table, and of a line.
NAME, NODES, _LINE = 32, 34, 118
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
    head_line, *lines = table(profile, rows, group_by).text().split("\n")
    if details:
        below = [text for line, row in zip(lines, rows, strict=False) for text in (line, *_details(row))]
        lines = below + lines[len(rows) :]
    return "\n".join([*map(text_of, head(profile)), "", head_line, *lines])


def head(profile: Profile) -> list[Part]:
    """What was measured and how."""
    threads = f"{profile.threads} thread{'s' if profile.threads > 1 else ''}"
    counts = [launch.arguments for launch in profile.launches]
    machine = f"{profile.machine.get('cpu', '')}, {profile.machine.get('isa', '')}, {threads}"
    return wrapped_notes(
        f"{profile.name}: {profile.seconds * 1e3:.3f} ms undisturbed (median of {len(profile.whole)} rounds), "
        f"{len(profile.launches)} launch{'es' if len(profile.launches) > 1 else ''}; {machine}",
        f"kernels / undisturbed run: {profile.coverage}",
        overhead_text(profile.overhead, counts),
        f"machine: {profile.roofs}",
        HOW_TO_READ,
        *profile.notes,
    )


def wrapped_notes(*texts: str) -> list[Part]:
    """Paragraphs, broken where a terminal is too narrow for them."""
    return [Note("\n".join(textwrap.wrap(text, _LINE, subsequent_indent="  "))) for text in texts]


def table(profile: Profile, rows: tuple[Row, ...], group_by: str) -> Table:
    """The rows of a profile that are grouped so, and what they leave of a run."""
    first, label, nodes = _TITLES[group_by]
    columns = (
        first, Column(label, most=NAME), Column(nodes, most=NODES), Column("time", "ms", ".4f"),
        Column("least", "ms", ".4f"), Column("of run", form=".1f"), Column("GFLOP/s", form=".1f"), "of peak",
        Column("GB/s", form=".1f"), "of bw", "bound", Column("recipe", page=True), Column("configuration", page=True),
        Column("machine code", page=True),
    )  # fmt: skip
    return Table(columns, [*(_row(row, group_by) for row in rows), *_rest(profile, rows)])


def _row(row: Row, group_by: str) -> tuple[Value, ...]:
    how = "; ".join(filter(None, [knobs_text(row.config), f"record of {row.record}" if row.record else ""]))
    recipe = ", ".join(row.recipes) + (f" ({row.region})" if row.region else "")
    return (
        row.launches[0] if group_by == "launch" else len(row.launches), row.label,
        ", ".join(row.kernels if group_by == "node" else row.nodes), 1e3 * row.median, 1e3 * row.least,
        percent_cell(row.share, bar=True), row.gflops, percent_cell(row.of_peak, 0), row.gbs,
        percent_cell(row.of_bandwidth, 0), row.bound, recipe, how, str(row.code or ""),
    )  # fmt: skip


def _rest(profile: Profile, rows: tuple[Row, ...]) -> list[tuple[Value, ...]]:
    """What the rows leave, so that the sum is the whole."""
    shown = {number for row in rows for number in row.launches}
    left = [launch for launch in profile.launches if launch.number not in shown]
    others = statistics.median(map(sum, zip(*(launch.seconds for launch in left), strict=True))) if left else 0.0
    whole = profile.seconds
    outside = whole - others - sum(row.median for row in rows)
    lines = [(f"{len(left)} other launches", others)] if left else []
    lines += [("outside kernels (VM, call)", outside), ("whole run, undisturbed", whole)]
    return [(None, name, "", 1e3 * s, None, percent_cell(s / whole), *[None] * 8) for name, s in lines]


def _details(row: Row) -> list[str]:
    """Configuration, record and machine code."""
    backend = next((recipe for recipe in row.recipes if recipe.startswith("offload:")), "")
    parts = [
        ", ".join(row.recipes), knobs_text(row.config),
        f"record of {row.record}" if row.record else "", f"region {row.region} on {backend[8:]}" if row.region else "",
        row.reason, str(row.code) if row.code else "",
    ]  # fmt: skip
    text = "; ".join(part for part in parts if part)
    return textwrap.wrap(text, _LINE, initial_indent="     ", subsequent_indent="     ")
