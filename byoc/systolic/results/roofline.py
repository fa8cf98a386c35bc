"""Layers on the roofline of the accelerator, as SVG and as text: what bounds each, and how close to that it comes.

A layer that does `x` multiply-adds for each byte between DRAM and the chip cannot do more of them a cycle than either
roof allows (Williams, Waterman and Patterson, CACM 2009)::

    multiply-adds a cycle <= min(rows * cols, x * bytes a cycle of the DMA)
"""

from __future__ import annotations

from collections.abc import Sequence

from ....core.errors import OptionError
from ....core.pages.charts import Roof, RooflinePoint, roofline_chart
from ....runtime.table import Cell, Column, Markup, Table
from ..config import Accelerator
from .report import LayerRow


def roofline_points(rows: Sequence[LayerRow], accelerator: Accelerator) -> tuple[RooflinePoint, ...]:
    """The points of layers, with multiply-adds for each byte of DRAM traffic, and a cycle.

    A layer that moves or multiplies nothing has none, but keeps its number.

    Raises:
        OptionError: no layer is left.
    """
    points = []
    for number, row in enumerate(rows, start=1):
        if row.macs and row.dram_bytes and row.cycles:
            roof = min(accelerator.macs_per_cycle, row.intensity * accelerator.dma_bytes_per_cycle)
            rate = row.macs / row.cycles
            points.append(RooflinePoint(number, row.name, row.name, row.intensity, rate, roof, row.bound))
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
    columns = ("", "layer", Column("a byte", form=".2f"), Column("a cycle", form=".1f"), Column("roof", form=".1f"),
               "bound", Column("of the roof", right=True, bar=20))  # fmt: skip
    cells = [
        (p.number, p.label, p.intensity, p.rate, p.roof, p.bound, Cell(f"{p.of_roof:.0%}", share=p.of_roof))
        for p in roofline_points(rows, accelerator)
    ]
    ridge = accelerator.macs_per_cycle / accelerator.dma_bytes_per_cycle
    roofs = (
        f"roofs: {accelerator.macs_per_cycle} multiply-adds a cycle; "
        f"{accelerator.dma_bytes_per_cycle} bytes a cycle from DRAM; they meet at {ridge:g} a byte"
    )
    return f"{roofs}\n{Table(columns, cells).text()}"


def roofline_svg(rows: Sequence[LayerRow], accelerator: Accelerator, title: str) -> Markup:
    """The roofline as a picture that needs nothing else: both roofs, a numbered point a layer, their names beside it.

    Raises:
        OptionError: no layer is left.
        ToolError: matplotlib is not installed.
    """
    several = f"{accelerator.arrays} arrays of " if accelerator.arrays > 1 else ""
    about = (
        f"{several}{accelerator.rows} x {accelerator.cols} PEs, {accelerator.dtype}, "
        f"{accelerator.dma_bytes_per_cycle} bytes a cycle from DRAM; both axes logarithmic"
    )
    roof = Roof("DRAM and array", accelerator.dma_bytes_per_cycle, accelerator.macs_per_cycle)
    units = ("multiply-adds for each byte of DRAM traffic", "multiply-adds a cycle")
    return roofline_chart(title, about, roofline_points(rows, accelerator), [roof], units).svg()
