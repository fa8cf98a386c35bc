"""A bar chart: horizontal bars, each with its goal, and marks of peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.pages import svg

WIDTH, LABEL, RIGHT, TOP, STEP, BAR = 880, 320, 60, 64, 26, 14
#: the axis ends here at the latest: a longer bar is cut, a mark beyond it stands at its end
LONGEST = 2.0

_STYLES = {
    ".grid": ("stroke: #d1d9e0; stroke-width: 1;", "stroke: #3d444d;"),
    ".one": ("stroke: #59636e; stroke-width: 1.5;", "stroke: #9198a1;"),
    ".met": ("fill: #2f6fdb;", "fill: #5b96f5;"),
    ".missed": ("fill: #d9772b;", "fill: #e8964f;"),
    ".goal": ("stroke: #1f2328; stroke-width: 2.5;", "stroke: #f0f6fc;"),
    ".peer": (
        "fill: #ffffff; stroke: #8250df; stroke-width: 2;",
        "fill: #0d1117; stroke: #b58cf5;",
    ),
}


@dataclass(frozen=True)
class Bar:
    """One bar: its length in the axis's unit (None: a note instead), the goal it should not pass,
    other points."""

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
    lengths = [max(bar.value or 0.0, bar.goal, *bar.peers.values()) for bar in bars]
    scale = _Scale(min(max(1.2, *lengths) * 1.02, LONGEST), TOP + STEP * len(bars))
    peers = list(dict.fromkeys(name for bar in bars for name in bar.peers))
    marks = scale.grid()
    for at, bar in enumerate(bars):
        marks += _bar(bar, TOP + STEP * at, scale, peers)
    size = WIDTH, scale.bottom + 58
    return svg.picture(title, subtitle, size, _STYLES, [*marks, *_legend(size[1] - 14, peers)])


@dataclass(frozen=True)
class _Scale:
    """The axis: from 0 at the end of the labels to `end` before the right margin."""

    end: float
    bottom: int

    def x(self, value: float) -> float:
        return round(LABEL + min(value, self.end) / self.end * (WIDTH - LABEL - RIGHT), 1)

    def grid(self) -> list[str]:
        """Lines at every fifth, with their numbers below."""
        marks = []
        for i in range(int(self.end / 0.2 + 1e-9) + 1):
            x, kind = self.x(0.2 * i), "one" if i == 5 else "grid"
            marks.append(svg.line(kind, (x, TOP - 8), (x, self.bottom)))
            marks.append(svg.text(x, self.bottom + 16, f"{0.2 * i:.1f}", anchor="middle"))
        return marks


def _bar(bar: Bar, y: int, scale: _Scale, peers: Sequence[str]) -> list[str]:
    middle = y + BAR // 2 + 4.5
    label = svg.text(LABEL - 10, middle, bar.label, "", "end")
    if bar.value is None:
        note = bar.note if len(bar.note) <= 72 else bar.note[:71] + "…"
        return [label, svg.text(LABEL + 6, middle, note)]
    width, goal = round(scale.x(bar.value) - LABEL, 1), scale.x(bar.goal)
    return [
        label, svg.bar("met" if bar.met else "missed", LABEL, y, width, BAR, 2),
        svg.line("goal", (goal, y - 4), (goal, y + BAR + 4)),
        *(_mark(number, scale.x(bar.peers[name]), y + BAR / 2)
          for number, name in enumerate(peers) if name in bar.peers),
        svg.text(WIDTH - 12, middle, f"{bar.value:.2f}", "", "end"),
    ]  # fmt: skip


def _mark(number: int, x: float, y: float) -> str:
    """A peer's mark: circles, squares and diamonds in turn."""
    if number % 3 == 0:
        return f'<circle class="peer" cx="{x}" cy="{y}" r="4"/>'
    square, diamond = ((-1, -1), (1, -1), (1, 1), (-1, 1)), ((0, -1), (1, 0), (0, 1), (-1, 0))
    half, corners = (3.5, square) if number % 3 == 1 else (5.0, diamond)
    points = " ".join(f"{round(x + half * dx, 1)},{y + half * dy}" for dx, dy in corners)
    return f'<polygon class="peer" points="{points}"/>'


def _legend(y: int, peers: Sequence[str]) -> list[str]:
    """What the marks mean."""
    texts, marks = ["bar met", "bar missed", "the bar", *peers], []
    for at, words in enumerate(texts):
        x = 27 + 110 * at
        if at < 2:
            marks.append(svg.bar(("met", "missed")[at], x - 7, y - 10, 14, 10, 2))
        elif at == 2:
            marks.append(svg.line("goal", (x, y - 11), (x, y + 1)))
        else:
            marks.append(_mark(at - 3, x, y - 5))
        marks.append(svg.text(x + 13, y, words))
    return marks
