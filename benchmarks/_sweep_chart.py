"""A design sweep as SVG: a row a setting, its time on the left, its energy by level on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LABEL, TOP, STEP, BAR, SPAN, GAP = 920, 96, 70, 24, 14, 300, 150
LEVELS = ("array", "vector", "scratchpad", "accumulator", "dram")

STYLE = """
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #59636e; font-size: 12px; }
  .time { fill: #2f6fdb; }
  .array { fill: #2f6fdb; }
  .vector { fill: #8250df; }
  .scratchpad { fill: #1a9e77; }
  .accumulator { fill: #e0b400; }
  .dram { fill: #d9772b; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .time, .array { fill: #5b96f5; }
    .vector { fill: #b58cf5; }
    .scratchpad { fill: #3fbf96; }
    .accumulator { fill: #f0cc3a; }
    .dram { fill: #e8964f; }
  }
"""


def sweep_chart(title: str, about: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The picture; rows are those of `_offload_speed.row_of`."""
    height = TOP + STEP * len(rows) + 38
    longest = max(row["seconds"] for row in rows)
    most = max(sum(row["energy"].values()) for row in rows)
    right = LABEL + SPAN + GAP
    lines = [line for at, row in enumerate(rows) for line in _row(row, TOP + STEP * at, longest, most)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<text class="faint" x="12" y="44">{escape(about)}</text>',
        f'<text class="faint" x="{LABEL}" y="{TOP - 8}">milliseconds (utilization)</text>',
        f'<text class="faint" x="{right}" y="{TOP - 8}">millijoules, by level</text>',
        *lines, *_legend(height - 12), "</svg>",
    ])  # fmt: skip


def _row(row: Mapping[str, Any], y: int, longest: float, most: float) -> list[str]:
    middle, right = y + BAR / 2 + 4.5, LABEL + SPAN + GAP
    width = row["seconds"] / longest * SPAN
    label = f"{row['rows']}x{row['cols']} {row['dataflow']}"
    time = f"{1e3 * row['seconds']:.2f} ({row['utilization']:.0%})"
    lines = [
        f'<text x="{LABEL - 10}" y="{middle}" text-anchor="end">{escape(label)}</text>',
        f'<rect class="time" x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}"/>',
        f'<text x="{LABEL + width + 8:.1f}" y="{middle}">{time}</text>',
    ]
    x = float(right)
    for level in LEVELS:
        part = row["energy"].get(level, 0.0) / most * SPAN
        lines.append(f'<rect class="{level}" x="{x:.1f}" y="{y}" width="{part:.1f}" height="{BAR}"/>')
        x += part
    return [*lines, f'<text x="{x + 8:.1f}" y="{middle}">{sum(row["energy"].values()) / 1e3:.1f}</text>']


def _legend(y: int) -> list[str]:
    lines = []
    for at, level in enumerate(LEVELS):
        x = LABEL + SPAN + GAP - 190 + 112 * at
        lines.append(f'<rect class="{level}" x="{x}" y="{y - 10}" width="12" height="10"/>')
        lines.append(f'<text class="faint" x="{x + 17}" y="{y}">{level}</text>')
    return lines
