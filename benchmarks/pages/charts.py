"""Charts of results by matplotlib (extra `plots`): ratios with their bars, and a design sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm_ext.core.pages.charts import FAINT, INK, Chart

#: The axis of ratios ends here at the latest: a longer bar is cut, a mark beyond stands at its end.
LONGEST = 2.0
_MET, _MISSED, _PEER, _MARKS = "#2f6fdb", "#d9772b", "#8250df", "osD"
_SCHEMES = f"svg {{color: {INK}}} @media (prefers-color-scheme: dark) {{svg {{color: #e6edf3}}}}"
_WORDS: dict[str, Any] = {"color": INK, "fontsize": 9}
#: Level of the memory hierarchy -> its colour.
LEVELS = {
    "array": "#2f6fdb", "vector": "#8250df", "scratchpad": "#1a9e77", "accumulator": "#e0b400",
    "dram": "#d9772b",
}  # fmt: skip


def svg_file(chart: Chart) -> str:
    """A chart as an SVG file, whose ink is light where the reader prefers a dark page."""
    return chart.svg().replace(">", f"><style>{_SCHEMES}</style>", 1)


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


def bars_chart(title: str, about: str, bars: Sequence[Bar]) -> Chart:
    """A bar a row from the top on, with its goal and marks of peers; a line marks 1."""
    chart = Chart(9.2, 1.1 + 0.27 * len(bars))
    (axes,) = chart.axes
    lengths = [max(bar.value or 0.0, bar.goal, *bar.peers.values()) for bar in bars]
    end = min(max(1.2, *lengths) * 1.02, LONGEST)
    peers = list(dict.fromkeys(name for bar in bars for name in bar.peers))
    axes.axvline(1, color=FAINT, lw=1.5, zorder=0)
    for at, bar in enumerate(bars):
        _bar(chart, at, bar, end, peers)
    for name, colour in (("bar met", _MET), ("bar missed", _MISSED)):
        axes.plot([], [], "s", ms=7, color=colour, label=name)
    axes.plot([], [], color=INK, lw=2.5, label="the bar")
    for name in peers:
        _peer(chart, (), (), peers.index(name), label=name)
    axes.set(xlim=(0, end), ylim=(len(bars) - 0.4, -0.6))
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    return _titled(chart, title, about)


def _bar(chart: Chart, at: int, bar: Bar, end: float, peers: Sequence[str]) -> None:
    (axes,) = chart.axes
    if bar.value is None:
        note = bar.note if len(bar.note) <= 72 else bar.note[:71] + "…"
        axes.text(0.01 * end, at, note, va="center", color=FAINT, fontsize=9)
        return
    (drawn,) = axes.barh(at, min(bar.value, end), 0.55, color=_MET if bar.met else _MISSED)
    chart.titled(drawn, f"{bar.label}: {bar.value:.3f}, at most {bar.goal:g}")
    axes.plot([min(bar.goal, end)] * 2, [at - 0.42, at + 0.42], color=INK, lw=2.5)
    for name, value in bar.peers.items():
        _peer(chart, min(value, end), at, peers.index(name), clip_on=False)
    place = {"xycoords": ("axes fraction", "data"), "va": "center", **_WORDS}
    axes.annotate(f"{bar.value:.2f}", (1.02, at), **place)


def _peer(chart: Chart, x: Any, y: Any, number: int, **options: Any) -> None:
    """A peer's mark: circles, squares and diamonds in turn."""
    mark = _MARKS[number % len(_MARKS)]
    chart.axes[0].plot(x, y, mark, ms=6, mfc="#ffffff", mec=_PEER, mew=1.5, **options)


def sweep_chart(title: str, about: str, rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A row a setting: its time on the left, its energy by level on the right; rows are those of
    `offloading.speed.row_of`."""
    chart = Chart(9.6, 1.1 + 0.27 * len(rows), (1, 1))
    times, energies = chart.axes
    places = range(len(rows))
    drawn = times.barh(places, [1e3 * row["seconds"] for row in rows], 0.6, color=LEVELS["array"])
    texts = [f"{1e3 * row['seconds']:.2f} ({row['utilization']:.0%})" for row in rows]
    times.bar_label(drawn, texts, padding=4, **_WORDS)
    sums = [0.0] * len(rows)
    for level, colour in LEVELS.items():
        parts = [row["energy"].get(level, 0.0) / 1e3 for row in rows]
        drawn = energies.barh(places, parts, 0.6, sums, color=colour, label=level)
        sums = [before + part for before, part in zip(sums, parts, strict=True)]
    energies.bar_label(drawn, [f"{total:.1f}" for total in sums], padding=4, **_WORDS)
    names = [f"{row['rows']}x{row['cols']} {row['dataflow']}" for row in rows]
    for axes, unit in ((times, "milliseconds (utilization)"), (energies, "millijoules, by level")):
        axes.set(xlabel=unit, ylim=(len(rows) - 0.4, -0.6))
        axes.set_yticks(places, names)
        axes.margins(x=0.3)
    return _titled(chart, title, about)


def _titled(chart: Chart, title: str, about: str) -> Chart:
    """With its title, a grid, and a legend below."""
    chart.axes[0].set_title(f"{title}\n{about}", loc="left", **_WORDS)
    for axes in chart.axes:
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    chart.axes[0].figure.legend(loc="outside lower right", ncols=6, fontsize=8, frameon=False)
    return chart
