"""A roofline as PNG, drawn by matplotlib."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...core.errors import ToolError
from ...core.plot_labels import LETTER, Box, clusters, free_place, label_box, ranges
from ...verification.arrays import write_whole
from .axes import LogAxes
from .roofline import longest
from .text import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .roofline import Roofline

_COLOURS = {"compute": "#2f6fdb", "memory": "#d9772b"}
_NAMES = 40


def write_png(roofline: Roofline, path: str | os.PathLike[str]) -> None:
    """Draw it.

    Raises:
        ToolError: matplotlib is missing, or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        fix = "pip install 'tvm-ext[plots]', or give a name that ends in .svg"
        raise ToolError(f"a PNG needs matplotlib: {error}", fix=fix) from error
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes, names = figure.subplots(1, 2, width_ratios=(3, 1))
    canvas = FigureCanvasAgg(figure)
    _draw(axes, roofline)
    _list(names, roofline)
    canvas.draw()  # settles where dots are, in pixels
    _number(axes, roofline)
    write_whole(path, canvas.print_png)


def _draw(axes: Axes, roofline: Roofline) -> None:
    """Roofs and dots."""
    limits, roofs = LogAxes.around(roofline), roofline.roofs
    for bandwidth, style, name in ((roofs.cache_bandwidth, "--", "L2"), (roofs.bandwidth, "-", "memory")):
        for instruction, peak in roofs.peaks.items():
            corners = limits.roof(peak, bandwidth)
            label = None if instruction else f"{name} {bandwidth / 1e9:.1f} GB/s"
            across, along = [x for x, _ in corners], [y / 1e9 for _, y in corners]
            axes.plot(across, along, style, color="#1f2328", lw=1.5, label=label)
    for bound, colour in _COLOURS.items():
        points = [point for point in roofline.points if point.bound == bound]
        sizes = [20 + 1500 * max(point.share, 0.0) for point in points]
        across, along = [point.intensity for point in points], [point.rate / 1e9 for point in points]
        axes.scatter(across, along, s=sizes, c=colour, alpha=0.7, label=f"bound by {bound}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlim(2.0**limits.left, 2.0**limits.right)
    axes.set_ylim(2.0**limits.bottom, 2.0**limits.top)
    axes.set_xlabel("operations executed for each byte of arguments and results")
    axes.set_ylabel("GFLOP/s executed")
    axes.set_title(f"{roofline.title}\n{roofline.about}", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right", markerscale=0.5)


def _number(axes: Axes, roofline: Roofline) -> None:
    """Numbers beside the dots, where they cover nothing, as in the SVG; y grows upwards here."""
    points = roofline.points
    places = [tuple(axes.transData.transform((p.intensity, p.rate / 1e9))) for p in points]
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    frame = axes.get_window_extent()
    for members in clusters(places, near=10):
        text = ranges([points[at].number for at in members])
        x, y = (sum(places[at][axis] for at in members) / len(members) for axis in (0, 1))
        half = LETTER * len(text) / 2
        at_x, at_y = free_place(x, y, half, taken, (frame.x0, frame.y0, frame.x1, frame.y1))
        taken.append(label_box(at_x, at_y, half))
        axes.annotate(
            text, (x, y), (at_x, at_y), xycoords="figure pixels", textcoords="figure pixels", fontsize=8, ha="center",
            va="center", arrowprops={"arrowstyle": "-", "color": "#8b949e", "lw": 0.6},
        )  # fmt: skip


def _list(axes: Axes, roofline: Roofline) -> None:
    """Names of the rows that take longest."""
    shown, left = longest(roofline.points, _NAMES)
    lines = [f"{p.number:3} {short(p.label, 24):24} {100 * p.share:4.1f} % {p.of_roof:5.0%}" for p in shown]
    text = "\n".join([f"{'':28} of run of roof", *lines, *([f"    and {left} more"] if left else [])])
    axes.text(0, 1, text, fontsize=7, family="monospace", va="top", transform=axes.transAxes)
    axes.set_axis_off()
