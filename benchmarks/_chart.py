"""A bar chart as SVG, without a plotting library: horizontal bars, each with its goal; for light and dark pages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, LABEL, RIGHT, TOP, STEP, BAR = 880, 320, 60, 64, 26, 14
#: the axis ends here at the latest: a longer bar is cut, a mark beyond it stands at its end
LONGEST = 2.0

STYLE = """
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #59636e; font-size: 12px; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .one { stroke: #59636e; stroke-width: 1.5; }
  .met { fill: #2f6fdb; }
  .missed { fill: #d9772b; }
  .goal { stroke: #1f2328; stroke-width: 2.5; }
  .peer { fill: #ffffff; stroke: #8250df; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .one { stroke: #9198a1; }
    .met { fill: #5b96f5; }
    .missed { fill: #e8964f; }
    .goal { stroke: #f0f6fc; }
    .peer { fill: #0d1117; stroke: #b58cf5; }
  }
"""


@dataclass(frozen=True)
class Bar:
    """One bar: its length in the axis's unit (None: a note instead), the goal it should not pass, other points."""

    label: str
    value: float | None
    goal: float
    note: str = ""
    peers: Mapping[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.goal


def chart(title: str, subtitle: str, bars: Sequence[Bar]) -> str:
    """The SVG text. The axis begins at 0; a line marks 1."""
    lengths = [length for bar in bars for length in (bar.value or 0.0, bar.goal, *bar.peers.values())]
    end = min(max(1.2, *lengths) * 1.02, LONGEST)
    scale = _Scale(end, TOP + STEP * len(bars))
    peers = list(dict.fromkeys(name for bar in bars for name in bar.peers))
    lines = scale.grid()
    for i, bar in enumerate(bars):
        lines += _bar(bar, TOP + STEP * i, scale, peers)
    height = TOP + STEP * len(bars) + 58
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<text class="faint" x="12" y="44">{escape(subtitle)}</text>',
        *lines, *_legend(height - 14, peers), "</svg>",
    ])  # fmt: skip


@dataclass(frozen=True)
class _Scale:
    """The axis: from 0 at the end of the labels to `end` before the right margin."""

    end: float
    bottom: int

    def x(self, value: float) -> float:
        return round(LABEL + min(value, self.end) / self.end * (WIDTH - LABEL - RIGHT), 1)

    def grid(self) -> list[str]:
        """Lines at every fifth, with their numbers below."""
        lines = []
        for i in range(int(self.end / 0.2 + 1e-9) + 1):
            x = self.x(0.2 * i)
            kind = "one" if i == 5 else "grid"
            lines.append(f'<line class="{kind}" x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{self.bottom}"/>')
            text = f"{0.2 * i:.1f}"
            lines.append(f'<text class="faint" x="{x}" y="{self.bottom + 16}" text-anchor="middle">{text}</text>')
        return lines


def _bar(bar: Bar, y: int, scale: _Scale, peers: Sequence[str]) -> list[str]:
    middle = y + BAR // 2 + 4.5
    lines = [f'<text x="{LABEL - 10}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>']
    if bar.value is None:
        lines.append(f'<text class="faint" x="{LABEL + 6}" y="{middle}">{escape(_short(bar.note))}</text>')
        return lines
    end, goal = scale.x(bar.value), scale.x(bar.goal)
    kind = "met" if bar.met else "missed"
    lines.append(
        f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{round(end - LABEL, 1)}" height="{BAR}" rx="2"/>'
    )  # fmt: skip
    lines.append(f'<line class="goal" x1="{goal}" y1="{y - 4}" x2="{goal}" y2="{y + BAR + 4}"/>')
    for number, name in enumerate(peers):
        if name in bar.peers:
            lines.append(_mark(number, scale.x(bar.peers[name]), y + BAR / 2))
    lines.append(f'<text x="{WIDTH - 12}" y="{middle}" text-anchor="end">{bar.value:.2f}</text>')
    return lines


def _mark(number: int, x: float, y: float) -> str:
    """A peer's mark: circles, squares and diamonds in turn."""
    if number % 3 == 0:
        return f'<circle class="peer" cx="{x}" cy="{y}" r="4"/>'
    half = 3.5 if number % 3 == 1 else 5.0
    corners = ((-1, -1), (1, -1), (1, 1), (-1, 1)) if number % 3 == 1 else ((0, -1), (1, 0), (0, 1), (-1, 0))
    points = " ".join(f"{round(x + half * dx, 1)},{y + half * dy}" for dx, dy in corners)
    return f'<polygon class="peer" points="{points}"/>'


def _legend(y: int, peers: Sequence[str]) -> list[str]:
    """What the marks mean."""
    marks: list[tuple[str, Callable[[float], str]]] = [
        ("bar met", lambda x: f'<rect class="met" x="{x - 7}" y="{y - 10}" width="14" height="10" rx="2"/>'),
        ("bar missed", lambda x: f'<rect class="missed" x="{x - 7}" y="{y - 10}" width="14" height="10" rx="2"/>'),
        ("the bar", lambda x: f'<line class="goal" x1="{x}" y1="{y - 11}" x2="{x}" y2="{y + 1}"/>'),
    ]
    for number, name in enumerate(peers):
        marks.append((name, functools.partial(_mark, number, y=y - 5)))
    lines = []
    for i, (text, mark) in enumerate(marks):
        x = 27 + 110 * i
        lines += [mark(x), f'<text class="faint" x="{x + 13}" y="{y}">{escape(text)}</text>']
    return lines


def _short(text: str) -> str:
    return text if len(text) <= 72 else text[:71] + "…"
