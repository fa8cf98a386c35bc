"""Charts by matplotlib (extra `plots`) as SVG and PNG: rooflines, and boxes over time.

Text stays text, ink follows the colour scheme of the page, and what a pointer rests on says its figures.
"""

import html
import io
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.table import Markup, short, visible
from ..extras import extra

INK, FAINT = "#1f2328", "#8b949e"
COLOURS = {"compute": "#2f6fdb", "memory": "#d9772b", "activation": "#2f6fdb", "workspace": "#d9772b"}
_SETTINGS = {
    "text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "tvm-ext", "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "legend.framealpha": 0.0,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "font.size": 9,
}  # fmt: skip
#: Names beside a roofline; numbers beside its dots are of those that take longest.
NAMES, NUMBERED = 36, 24


class Chart:
    """A figure of matplotlib.

    Args:
        width, height: in inches.
        ratios: widths of its axes, side by side.

    Attributes:
        axes: of the figure, from left to right.

    Raises:
        ToolError: matplotlib is not installed.
    """

    def __init__(self, width: float, height: float, ratios: Sequence[float] = (1,)) -> None:
        self._settings = extra("matplotlib", "plots", "a chart").rc_context
        with self._settings(_SETTINGS):
            self._figure = extra("matplotlib.figure", "plots", "a chart").Figure((width, height), layout="constrained")
            self.axes: list[Any] = list(self._figure.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0])
        self._titles: dict[str, str] = {}

    def titled(self, artist: Any, title: str) -> None:
        """Give something drawn a text that shows when a pointer rests on it."""
        name = f"titled-{len(self._titles)}-"
        artist.set_gid(name)
        self._titles[name] = title

    def svg(self) -> Markup:
        """The chart as an SVG element."""
        data = self._saved("svg", metadata={"Date": None, "Creator": None}).decode()
        for name, title in self._titles.items():
            head = f'<g id="{name}">'
            data = data.replace(head, f"{head}<title>{html.escape(visible(title))}</title>", 1)
        data = data.replace(INK, "currentColor").replace("*{stroke-linejoin: round; stroke-linecap: butt}", "")
        return Markup(data[data.index("<svg") :].rstrip())

    def png(self) -> bytes:
        """The chart as a PNG file on white."""
        return self._saved("png", dpi=120, facecolor="white")

    def _saved(self, form: str, **options: Any) -> bytes:
        data = io.BytesIO()
        with self._settings(_SETTINGS), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # glyphs that its font lacks; the browser has others
            self._figure.savefig(data, format=form, **options)
        return data.getvalue()


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel, or a layer, on a roofline.

    Attributes:
        number: from 1: beside its dot, and in the list of names; label: there.
        detail: all figures, in words, which a pointer that rests on its dot shows.
        intensity: operations executed for each byte that is moved.
        rate: operations executed in the unit of time.
        roof: the most that machine and intensity allow, in the same unit.
        bound: "compute" or "memory", the roof above it.
        share: of the whole run, which the area of its dot is; None where all dots are alike.
    """

    number: int
    label: str
    detail: str
    intensity: float
    rate: float
    roof: float
    bound: str
    share: float | None = None

    @property
    def of_roof(self) -> float:
        """Part of what the roof allows; above 1 where caches give more than memory."""
        return self.rate / self.roof


@dataclass(frozen=True)
class Roof:
    """What bounds dots: a slope of bandwidth up to a level.

    Attributes:
        label: in the legend; "" for none.
        bandwidth: bytes, and peak: operations, in the unit of time.
        dashed: whether it is drawn so: what lies in a cache.
    """

    label: str
    bandwidth: float
    peak: float
    dashed: bool = False


def roofline_chart(
    title: str, about: str, dots: Sequence[RooflinePoint], roofs: Sequence[Roof], units: tuple[str, str],
    notes: Iterable[str] = (),
) -> Chart:  # fmt: skip
    """Dots below roofs on logarithmic axes, with their names beside them (Williams et al., CACM 2009).

    Args:
        title, about: above it.
        dots: in the order of their numbers.
        roofs: of the machine.
        units: of the axes.
        notes: below the names.
    """
    chart = Chart(11, 6, (2, 1))
    axes, names = chart.axes
    across = [*(dot.intensity for dot in dots), *(roof.peak / roof.bandwidth for roof in roofs)]
    low, high = min(across) / 1.5, max(across) * 1.5
    for roof in roofs:
        corners = [(low, low * roof.bandwidth), (roof.peak / roof.bandwidth, roof.peak), (high, roof.peak)]
        style = "--" if roof.dashed else "-"
        (line,) = axes.plot(*zip(*corners, strict=True), style, color=INK, lw=1.5, label=roof.label or None)
        chart.titled(line, f"{roof.label}: up to {roof.peak:g}")
    for dot in sorted(dots, key=lambda dot: -(dot.share or 0.0)):
        size = 5 if dot.share is None else 4 + 28 * math.sqrt(max(dot.share, 0.0))
        (mark,) = axes.plot(dot.intensity, dot.rate, "o", ms=size, color=COLOURS[dot.bound], alpha=0.75, mew=0)
        chart.titled(mark, dot.detail)
    for (x, y), text in _labels(dots).items():
        axes.annotate(text, (x, y), (4, 4), textcoords="offset points", fontsize=8)
    for bound in ("compute", "memory"):
        axes.plot([], [], "o", ms=5, color=COLOURS[bound], label=f"bound by {bound}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis, unit in ((axes.xaxis, units[0]), (axes.yaxis, units[1])):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_label_text(unit)
    axes.set_title(visible(f"{title}\n{about}"), fontsize=9, loc="left")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    lines = [*_names(dots), *notes]
    names.text(0, 1, "\n".join(map(visible, lines)), fontsize=7, family="monospace", va="top")
    names.set_axis_off()
    return chart


def longest(dots: Sequence[RooflinePoint], count: int) -> list[RooflinePoint]:
    """The dots that take most of the run, in their order."""
    return sorted(sorted(dots, key=lambda dot: -(dot.share or 0.0))[:count], key=lambda dot: dot.number)


def _labels(dots: Sequence[RooflinePoint]) -> Mapping[tuple[float, float], str]:
    """Numbers of the dots at a place; equal layers lie on each other and share a label."""
    places: dict[tuple[float, float], tuple[float, float]] = {}
    numbers: dict[tuple[float, float], list[int]] = {}
    for dot in longest(dots, NUMBERED):
        near = (round(math.log(dot.intensity), 1), round(math.log(dot.rate), 1))
        numbers.setdefault(places.setdefault(near, (dot.intensity, dot.rate)), []).append(dot.number)
    return {place: ranges(members) for place, members in numbers.items()}


def ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 -> "1-3, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _names(dots: Sequence[RooflinePoint]) -> list[str]:
    shown, shares = longest(dots, NAMES), any(dot.share is not None for dot in dots)
    head = f"{'':28}" + (" of run" if shares else "") + " of roof"
    lines = [
        f"{dot.number:3} {short(dot.label, 24):24}" + (f" {dot.share:6.1%}" if dot.share is not None else "")
        + f" {dot.of_roof:7.0%}" for dot in shown
    ]  # fmt: skip
    left = len(dots) - len(shown)
    return [head, *lines, *([f"    and {left} more"] if left else [])]


@dataclass(frozen=True)
class Box:
    """A rectangle: from `first` to the end of `last` across, `nbytes` high from `offset` on."""

    kind: str
    title: str
    first: int
    last: int
    offset: int
    nbytes: int


def boxes_chart(boxes: Sequence[Box], steps: int, units: tuple[str, str]) -> Chart:
    """Boxes over steps and addresses.

    Args:
        boxes: what lives when and where; kinds are of :data:`COLOURS`.
        steps: how many there are.
        units: of the axes.
    """
    chart = Chart(10, 4.4)
    (axes,) = chart.axes
    for box in boxes:
        bars = axes.broken_barh(
            [(box.first, box.last - box.first + 1)], (box.offset / 1e6, box.nbytes / 1e6),
            facecolors=COLOURS[box.kind], alpha=0.7, edgecolors=INK, linewidth=0.5,
        )  # fmt: skip
        chart.titled(bars, box.title)
    for kind in dict.fromkeys(box.kind for box in boxes):
        axes.plot([], [], "s", ms=6, color=COLOURS[kind], label=kind)
    axes.set(xlim=(0, max(steps, 1)), ylim=(0, None), xlabel=units[0], ylabel=units[1])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper right")
    return chart
