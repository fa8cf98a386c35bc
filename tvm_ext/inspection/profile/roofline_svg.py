"""A roofline as SVG: roofs, a dot a row (its area is its time), names beside it, all figures in the dots' titles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from ...core.plot_labels import Box, numbered
from .axes import LogAxes, power_text, ticks
from .roofline import longest
from .text import short

if TYPE_CHECKING:
    from .roofline import Roofline

WIDTH, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 1000, 72, 64, 530, 400
_LEGEND, _LINE, _NAMES = LEFT + PLOT_WIDTH + 26, 18, 36

#: All below the class of the picture: in a page it stands beside other pictures.
STYLE = """
  .roofline text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328; }
  .roofline .title { font-size: 15px; font-weight: 600; }
  .roofline .faint { fill: #59636e; font-size: 12px; }
  .roofline .number { font-size: 12px; font-weight: 600; }
  .roofline .grid { stroke: #d1d9e0; stroke-width: 1; }
  .roofline .roof { stroke: #1f2328; stroke-width: 2; fill: none; }
  .roofline .cache { stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }
  .roofline .leader { stroke: #8b949e; stroke-width: 1; }
  .roofline .compute { fill: #2f6fdb; fill-opacity: 0.75; }
  .roofline .memory { fill: #d9772b; fill-opacity: 0.75; }
  @media (prefers-color-scheme: dark) {
    .roofline text { fill: #e6edf3; }
    .roofline .faint { fill: #9198a1; }
    .roofline .grid { stroke: #3d444d; }
    .roofline .roof { stroke: #f0f6fc; }
    .roofline .cache { stroke: #9198a1; }
    .roofline .leader { stroke: #6e7681; }
    .roofline .compute { fill: #5b96f5; }
    .roofline .memory { fill: #e8964f; }
  }
"""


def svg_of(roofline: Roofline) -> str:
    """The picture."""
    axes = LogAxes.around(roofline)
    legend = list(_legend(roofline))
    height = max(TOP + PLOT_HEIGHT + 56, TOP + _LINE * len(legend) // 3 + 40)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="roofline" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(roofline.title)}</title>", f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(roofline.title)}</text>',
        f'<text class="faint" x="12" y="44">{escape(roofline.about)}; both axes logarithmic</text>',
        *_grid(axes), *_roofs(roofline, axes), *_marks(roofline, axes), *legend, "</svg>",
    ])  # fmt: skip


def _x(axes: LogAxes, intensity: float) -> float:
    return round(LEFT + axes.across(intensity) * PLOT_WIDTH, 1)


def _y(axes: LogAxes, rate: float) -> float:
    return round(TOP + (1 - axes.along(rate)) * PLOT_HEIGHT, 1)


def _grid(axes: LogAxes) -> Iterator[str]:
    low = TOP + PLOT_HEIGHT
    for power in ticks(axes.left, axes.right):
        x = _x(axes, 2.0**power)
        yield f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{low}"/>'
        yield f'<text class="faint" x="{x}" y="{low + 17}" text-anchor="middle">{power_text(power)}</text>'
    for power in ticks(axes.bottom, axes.top):
        y = _y(axes, 2.0**power * 1e9)
        yield f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{LEFT + PLOT_WIDTH}" y2="{y}"/>'
        yield f'<text class="faint" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{power_text(power)}</text>'
    across, along = LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT / 2
    below = "operations executed for each byte of arguments and results"
    yield f'<text x="{across}" y="{low + 38}" text-anchor="middle">{below}</text>'
    yield f'<text x="16" y="{along}" text-anchor="middle" transform="rotate(-90 16 {along})">GFLOP/s executed</text>'


def _roofs(roofline: Roofline, axes: LogAxes) -> Iterator[str]:
    roofs = roofline.roofs
    for name, bandwidth in (("cache", roofs.cache_bandwidth), ("roof", roofs.bandwidth)):
        corners = axes.roof(roofs.flops, bandwidth)
        kind = "L2" if name == "cache" else "memory"
        for instruction, peak in roofs.peaks.items():
            text = " ".join(f"{_x(axes, x)},{_y(axes, y)}" for x, y in axes.roof(peak, bandwidth))
            by = f" by {instruction}" if instruction else ""
            title = f"{kind}: {bandwidth / 1e9:.1f} GB/s, up to {peak / 1e9:.0f} GFLOP/s{by}"
            yield f'<polyline class="{name}" points="{text}"><title>{title}</title></polyline>'
        yield _roof_name(kind, corners, axes)


def _roof_name(kind: str, corners: Sequence[tuple[float, float]], axes: LogAxes) -> str:
    """The name along the slope of a roof, above its middle."""
    (x0, y0), (x1, y1) = ((_x(axes, x), _y(axes, y)) for x, y in corners[:2])
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    x, y = (x0 + x1) / 2, (y0 + y1) / 2 - 7
    return (
        f'<text class="faint" x="{x:.1f}" y="{y:.1f}" text-anchor="middle" '
        f'transform="rotate({angle:.1f} {x:.1f} {y:.1f})">{kind}</text>'
    )


def _marks(roofline: Roofline, axes: LogAxes) -> Iterator[str]:
    """Dots, the largest first, and numbers where there is room, with a line to their dots where that is far."""
    points = roofline.points
    places = [(_x(axes, p.intensity), _y(axes, p.rate)) for p in points]
    radii = [3 + 14 * math.sqrt(max(p.share, 0.0)) for p in points]
    taken: list[Box] = [*((x - 3, y - 3, x + 3, y + 3) for x, y in places), *_boxes_of_roofs(roofline, axes)]
    for at in sorted(range(len(points)), key=lambda at: -radii[at]):
        (x, y), point = places[at], points[at]
        title = f"<title>{escape(point.detail)}</title>"
        yield f'<circle class="{point.bound}" cx="{x}" cy="{y}" r="{radii[at]:.1f}">{title}</circle>'
    within = (LEFT, TOP, LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT)
    yield from numbered(places, [point.number for point in points], taken, within)


def _boxes_of_roofs(roofline: Roofline, axes: LogAxes) -> Iterator[Box]:
    """Small boxes along the roofs, which labels keep clear of."""
    roofs = roofline.roofs
    for bandwidth in (roofs.bandwidth, roofs.cache_bandwidth):
        for step in range(4 * (axes.right - axes.left) + 1):
            intensity = 2.0 ** (axes.left + step / 4)
            for peak in roofs.peaks.values():
                x, y = _x(axes, intensity), _y(axes, min(peak, intensity * bandwidth))
                yield x - 6, y - 1, x + 6, y + 1


def _legend(roofline: Roofline) -> Iterator[str]:
    """Number, name, share of the run and of the roof of the rows that take longest, and what the colours mean."""
    for at, bound in enumerate(("compute", "memory")):
        x = _LEGEND + 142 * at
        yield f'<circle class="{bound}" cx="{x + 4}" cy="{TOP - 8}" r="4"/>'
        yield f'<text class="faint" x="{x + 14}" y="{TOP - 4}">bound by {bound}</text>'
    shown, left = longest(roofline.points, _NAMES)
    yield f'<text class="faint" x="{WIDTH - 62}" y="{TOP + 14}" text-anchor="end">of run</text>'
    yield f'<text class="faint" x="{WIDTH - 12}" y="{TOP + 14}" text-anchor="end">of roof</text>'
    y = TOP + 14
    for point in shown:
        y += _LINE
        yield f'<text class="number" x="{_LEGEND + 20}" y="{y}" text-anchor="end">{point.number}</text>'
        yield f'<text x="{_LEGEND + 28}" y="{y}">{escape(short(point.label, 30))}</text>'
        yield (
            f'<text x="{WIDTH - 62}" y="{y}" text-anchor="end">{100 * point.share:.1f} %</text>'
            f'<text x="{WIDTH - 12}" y="{y}" text-anchor="end">{point.of_roof:.0%}</text>'
        )
    rest = [f"and {left} more"] * bool(left) + [f"no place: {', '.join(roofline.left_out)}"] * bool(roofline.left_out)
    for text in rest:
        y += _LINE
        yield f'<text class="faint" x="{_LEGEND + 28}" y="{y}">{escape(short(text, 48))}</text>'
