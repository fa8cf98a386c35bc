"""Layers on the roofline of the accelerator, as SVG and as text: what bounds each, and how close to that it comes.

A layer that does `x` multiply-adds for each byte between DRAM and the chip cannot do more of them a cycle than either
roof allows (Williams, Waterman and Patterson, CACM 2009)::

    multiply-adds a cycle <= min(rows * cols, x * bytes a cycle of the DMA)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ...core.errors import OptionError
from ...core.plot_labels import Box, numbered
from .config import Accelerator
from .report import LayerRow

WIDTH, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 980, 64, 64, 520, 380
_LEGEND, _LINE = LEFT + PLOT_WIDTH + 28, 18
_DOT = 4

STYLE = """
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #59636e; font-size: 12px; }
  .number { font-size: 12px; font-weight: 600; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .roof { stroke: #1f2328; stroke-width: 2; fill: none; }
  .leader { stroke: #8b949e; stroke-width: 1; }
  .compute { fill: #2f6fdb; }
  .memory { fill: #d9772b; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .roof { stroke: #f0f6fc; }
    .leader { stroke: #6e7681; }
    .compute { fill: #5b96f5; }
    .memory { fill: #e8964f; }
  }
"""


@dataclass(frozen=True)
class RooflinePoint:
    """One layer.

    Attributes:
        number: from 1, in the order of the layers.
        name: of the layer.
        intensity: multiply-adds for each byte between DRAM and the chip.
        rate: multiply-adds a cycle.
        roof: the most that accelerator and intensity allow, in the same unit.
        bound: "compute" or "memory", the roof above it.
    """

    number: int
    name: str
    intensity: float
    rate: float
    roof: float
    bound: str

    @property
    def of_roof(self) -> float:
        """Share of what the roof allows, 0 to 1."""
        return self.rate / self.roof


def roofline_points(rows: Sequence[LayerRow], accelerator: Accelerator) -> tuple[RooflinePoint, ...]:
    """The points of layers; one that moves or multiplies nothing has none, but keeps its number.

    Raises:
        OptionError: no layer is left.
    """
    points = []
    for number, row in enumerate(rows, start=1):
        if row.macs and row.dram_bytes and row.cycles:
            roof = min(accelerator.macs_per_cycle, row.intensity * accelerator.dma_bytes_per_cycle)
            points.append(RooflinePoint(number, row.name, row.intensity, row.macs / row.cycles, roof, row.bound))
    if not points:
        raise OptionError(
            "there is no layer to draw", fix="give layer_rows(simulate(program)) of a program with layers"
        )
    return tuple(points)


def roofline_text(rows: Sequence[LayerRow], accelerator: Accelerator) -> str:
    """The roofline as a table for terminals, with a bar for the share of the roof.

    Raises:
        OptionError: no layer is left.
    """
    points = roofline_points(rows, accelerator)
    width = max(len("layer"), *(len(point.name) for point in points))
    lines = [
        f"roofs: {accelerator.macs_per_cycle} multiply-adds a cycle; "
        f"{accelerator.dma_bytes_per_cycle} bytes a cycle from DRAM; they meet at {_ridge(accelerator):g} a byte",
        f"{'':3} {'layer':{width}} {'a byte':>8} {'a cycle':>8} {'roof':>8}  bound    of the roof",
    ]
    for p in points:
        bar = "#" * round(20 * p.of_roof)
        figures = f"{p.intensity:8.2f} {p.rate:8.1f} {p.roof:8.1f}"
        lines.append(f"{p.number:3} {p.name:{width}} {figures}  {p.bound:7} {p.of_roof:5.0%} {bar}")
    return "\n".join(lines)


def roofline_svg(rows: Sequence[LayerRow], accelerator: Accelerator, title: str) -> str:
    """The roofline as a picture that needs nothing else: both roofs, a numbered point a layer, their names beside it.

    Raises:
        OptionError: no layer is left.
    """
    points = roofline_points(rows, accelerator)
    axes = _Axes.around(points, accelerator)
    legend = list(_legend(points))
    height = max(TOP + PLOT_HEIGHT + 52, TOP + _LINE * (len(points) + 2) + 8)
    about = (
        f"{accelerator.rows} x {accelerator.cols} PEs, {accelerator.dtype}, "
        f"{accelerator.dma_bytes_per_cycle} bytes a cycle from DRAM; both axes logarithmic"
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<text class="faint" x="12" y="44">{escape(about)}</text>',
        *axes.grid(), axes.roof(accelerator), *_marks(points, axes), *legend, "</svg>",
    ])  # fmt: skip


@dataclass(frozen=True)
class _Axes:
    """Logarithmic axes, from a power of two to another one."""

    left: int
    right: int
    bottom: int
    top: int

    @classmethod
    def around(cls, points: Sequence[RooflinePoint], accelerator: Accelerator) -> _Axes:
        """Axes on which the points and the ridge, where the roofs meet, have room."""
        across = [math.log2(x) for x in (*(p.intensity for p in points), _ridge(accelerator))]
        along = [math.log2(y) for y in (*(p.rate for p in points), accelerator.macs_per_cycle)]
        right = max(math.floor(max(across)) + 1, math.floor(min(across)) + 2)
        return cls(math.floor(min(across)), right, math.floor(min(along)), math.ceil(max(along) + 0.2))

    def x(self, value: float) -> float:
        return round(LEFT + (math.log2(value) - self.left) / (self.right - self.left) * PLOT_WIDTH, 1)

    def y(self, value: float) -> float:
        part = (math.log2(value) - self.bottom) / (self.top - self.bottom)
        return round(TOP + (1 - part) * PLOT_HEIGHT, 1)

    def grid(self) -> Iterator[str]:
        """Lines at powers of two, with their numbers; not more than a dozen on an axis."""
        low, high = TOP + PLOT_HEIGHT, TOP
        for power in _ticks(self.left, self.right):
            x = self.x(2.0**power)
            yield f'<line class="grid" x1="{x}" y1="{high}" x2="{x}" y2="{low}"/>'
            yield f'<text class="faint" x="{x}" y="{low + 17}" text-anchor="middle">{_power(power)}</text>'
        for power in _ticks(self.bottom, self.top):
            y = self.y(2.0**power)
            yield f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{LEFT + PLOT_WIDTH}" y2="{y}"/>'
            yield f'<text class="faint" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{_power(power)}</text>'
        middle_x, middle_y = LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT / 2
        below = "multiply-adds for each byte of DRAM traffic"
        yield f'<text x="{middle_x}" y="{low + 38}" text-anchor="middle">{below}</text>'
        yield (
            f'<text x="18" y="{middle_y}" text-anchor="middle" transform="rotate(-90 18 {middle_y})">'
            "multiply-adds a cycle</text>"
        )

    def roof(self, accelerator: Accelerator) -> str:
        """Bandwidth up to the ridge, then the array."""
        peak, bandwidth = accelerator.macs_per_cycle, accelerator.dma_bytes_per_cycle
        start = max(2.0**self.left, 2.0**self.bottom / bandwidth)
        corners = [(start, start * bandwidth), (_ridge(accelerator), peak), (2.0**self.right, peak)]
        text = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in corners)
        return f'<polyline class="roof" points="{text}"/>'


def _ridge(accelerator: Accelerator) -> float:
    """Multiply-adds a byte at which the roofs meet."""
    return accelerator.macs_per_cycle / accelerator.dma_bytes_per_cycle


def _ticks(low: int, high: int) -> range:
    return range(low, high + 1, max(1, -(-(high - low) // 12)))


def _power(exponent: int) -> str:
    return str(2**exponent) if exponent >= 0 else f"1/{2**-exponent}"


def _marks(points: Sequence[RooflinePoint], axes: _Axes) -> Iterator[str]:
    """Dots, and numbers where there is room, with a line to their dots where that is not beside them."""
    places = [(axes.x(p.intensity), axes.y(p.rate)) for p in points]
    taken: list[Box] = [(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in places]
    for point, (x, y) in zip(points, places, strict=True):
        yield f'<circle class="{point.bound}" cx="{x}" cy="{y}" r="{_DOT}"><title>{escape(point.name)}</title></circle>'
    within = (LEFT, TOP, LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT)
    yield from numbered(places, [point.number for point in points], taken, within)


def _legend(points: Sequence[RooflinePoint]) -> Iterator[str]:
    """Number, name and share of the roof of each layer, and what the colours mean."""
    for at, bound in enumerate(("compute", "memory")):
        x = _LEGEND + 150 * at
        yield f'<circle class="{bound}" cx="{x + 4}" cy="{TOP - 8}" r="{_DOT}"/>'
        yield f'<text class="faint" x="{x + 14}" y="{TOP - 4}">bound by {bound}</text>'
    yield f'<text class="faint" x="{WIDTH - 12}" y="{TOP - 4}" text-anchor="end">of roof</text>'
    for at, point in enumerate(points, start=1):
        y = TOP + _LINE * at
        yield f'<text class="number" x="{_LEGEND + 18}" y="{y}" text-anchor="end">{point.number}</text>'
        yield f'<text x="{_LEGEND + 26}" y="{y}">{escape(_short(point.name))}</text>'
        yield f'<text x="{WIDTH - 12}" y="{y}" text-anchor="end">{point.of_roof:.0%}</text>'


def _short(name: str) -> str:
    return name if len(name) <= 36 else "…" + name[-35:]
