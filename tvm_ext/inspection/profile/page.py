"""A profile as parts of a page: facts, rows, roofline; and a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.errors import UnsupportedError
from ..markup import Cell, Markup, Value, facts, figure, note, table
from .clock import overhead_text
from .rows import Row
from .text import HOW_TO_READ, percent

if TYPE_CHECKING:
    from .compare import Comparison, Interval
    from .profile import Profile

_TITLES = (
    "#", "kernel", "ONNX nodes", "recipe", "ms", "least ms", "% of run", "GFLOP/s", "% of peak", "GB/s",
    "% of bandwidth", "bound", "configuration", "machine code",
)  # fmt: skip
_NUMERIC = ("#", "ms", "least ms", "% of run", "GFLOP/s", "% of peak", "GB/s", "% of bandwidth")


def profile_parts(profile: Profile, group_by: str = "launch") -> list[Markup]:
    """All that is shown of a profile: what was measured and how, a row a launch (or group), the roofline."""
    rows = profile.rows(group_by)
    cells: list[Sequence[Value]] = [_cells(row) for row in rows]
    outside = profile.seconds - sum(row.median for row in rows)
    cells += [
        [None, name, "", "", _ms(seconds), None, round(100 * seconds / profile.seconds, 1), *[None] * 4, "", "", ""]
        for name, seconds in (("outside kernels (VM, call)", outside), ("whole run, undisturbed", profile.seconds))
    ]
    parts = [
        facts(_facts(profile)), *(note(text) for text in (HOW_TO_READ, *profile.notes)),
        table(_TITLES, cells, numeric=_NUMERIC),
    ]  # fmt: skip
    try:
        line = profile.roofline(group_by)
    except UnsupportedError:  # nothing but kernels whose work is not known
        return parts
    return [*parts, figure(line.svg())]


def _facts(profile: Profile) -> list[tuple[str, str]]:
    return [
        ("model", profile.model), ("run, undisturbed", f"{profile.seconds * 1e3:.3f} ms"),
        ("batch", str(profile.batch or "as the model has it")), ("launches", str(len(profile.launches))),
        ("kernels / undisturbed run", str(profile.coverage)), ("threads", str(profile.threads)),
        ("machine", f"{profile.machine.get('cpu', '')}, {profile.machine.get('isa', '')}"),
        ("measured roofs", str(profile.roofs)),
        ("instrument", overhead_text(profile.overhead, [launch.arguments for launch in profile.launches])),
    ]  # fmt: skip


def _cells(row: Row) -> tuple[Value, ...]:
    config = " ".join(f"{knob}={value}" for knob, value in row.config.items())
    how = "; ".join(part for part in (config, f"record of {row.record}" if row.record else "") if part)
    recipe = ", ".join(row.recipes) + (f" ({row.region})" if row.region else "")
    return (
        row.launches[0] if len(row.launches) == 1 else len(row.launches), row.label, ", ".join(row.nodes), recipe,
        _ms(row.median), _ms(row.least), Cell(round(100 * row.share, 1), share=row.share),
        row.gflops, _part(row.of_peak), row.gbs, _part(row.of_bandwidth), row.bound, how, str(row.code or ""),
    )  # fmt: skip


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 5)


def _part(value: float | None) -> Cell | None:
    return None if value is None else Cell(round(100 * value), title=percent(value))


def comparison_parts(comparison: Comparison) -> list[Markup]:
    """Notes, and a row a change."""
    tones = {"slower": "bad", "faster": "good"}
    rows = [
        [
            one.label, ", ".join(one.nodes), _milliseconds(one.before), _milliseconds(one.after), one.ratio,
            Cell(one.verdict, tone=tones.get(one.verdict, "dim")),
        ]
        for one in (comparison.whole, *comparison.changes)
    ]  # fmt: skip
    titles = ("kernel", "ONNX nodes", "ms before", "ms after", "ratio", "verdict")
    return [*(note(text) for text in comparison.notes), table(titles, rows, numeric=("ms before", "ms after", "ratio"))]


def _milliseconds(side: Interval | None) -> Cell | None:
    return None if side is None else Cell(_ms(side.median), title=f"{side} ms")
