"""Kernels on the roofline of the machine: how fast each is, of what its operations a byte allow.

A kernel that executes `x` operations for each byte of its arguments cannot do more of them a second than either roof
allows (Williams, Waterman and Patterson, CACM 2009)::

    operations a second <= min(multiply-adds in registers, x * bytes a second of memory)

A kernel whose products another instruction adds (dot products, tile registers) has the peak of that one. What lies in a
cache comes faster: the roof of L2 is drawn too, and a kernel may stand above that of memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import OptionError, ToolError, UnsupportedError
from ...core.pages.charts import Chart, Dot, Roof, roofline_chart
from ...runtime.files import write_whole
from ...runtime.table import Markup, few
from .roofs import Roofs
from .rows import Row

if TYPE_CHECKING:
    from .profile import Profile


@dataclass(frozen=True)
class Point:
    """One row of a profile.

    Attributes:
        number: of its row, from 1.
        label: of the row; detail: all figures, in words.
        intensity: operations executed for each byte of arguments and results.
        rate: operations executed a second.
        roof: the most that memory and the kernel's instruction allow, in the same unit.
        bound: "compute" or "memory", the roof above it.
        share: of the whole run.
    """

    number: int
    label: str
    detail: str
    intensity: float
    rate: float
    roof: float
    bound: str
    share: float

    @property
    def of_roof(self) -> float:
        """Part of what the roof allows; above 1 where caches give more than memory."""
        return self.rate / self.roof


@dataclass(frozen=True)
class Roofline:
    """Points below (or, from caches, above) the roofs of a machine.

    Attributes:
        title, about: what it shows, and on which machine.
        points: in the order of the rows.
        roofs: measured.
        left_out: labels of rows without operations or bytes, which have no place.
    """

    title: str
    about: str
    points: tuple[Point, ...]
    roofs: Roofs
    left_out: tuple[str, ...] = ()

    def chart(self) -> Chart:
        """The picture: a dot a row, whose area is its time, and the names of those that take longest.

        Raises:
            ToolError: matplotlib is not installed.
        """
        bandwidths = (("L2", self.roofs.cache_bandwidth), ("memory", self.roofs.bandwidth))
        roofs = [
            Roof(
                f"{kind} {rate / 1e9:.1f} GB/s{f', {name}' if name else ''}",
                rate / 1e9,
                peak / 1e9,
                kind == "L2",
            )
            for kind, rate in bandwidths
            for name, peak in self.roofs.peaks.items()
        ]
        dots = [
            Dot(p.number, p.label, p.detail, p.intensity, p.rate / 1e9, p.bound, p.of_roof, p.share)
            for p in self.points
        ]
        units = ("operations executed for each byte of arguments and results", "GFLOP/s executed")
        notes = [f"no place: {few(self.left_out)}"] if self.left_out else []
        return roofline_chart(self.title, self.about, dots, roofs, units, notes)

    def svg(self) -> Markup:
        """The picture, as SVG that needs nothing else.

        Raises:
            ToolError: matplotlib is not installed.
        """
        return self.chart().svg()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it, as the end of the name says: .svg or .png (by matplotlib, extra `plots`), or .txt.

        Raises:
            OptionError: another ending.
            ToolError: the file cannot be written, or matplotlib is missing.
        """
        makers = {
            ".png": lambda: self.chart().png(), ".svg": lambda: f"{self.svg()}\n".encode(),
            ".txt": lambda: f"{self}\n".encode(),
        }  # fmt: skip
        make = makers.get(os.path.splitext(os.fspath(path))[1].lower())
        if make is None:
            raise OptionError(f"roofline {os.fspath(path)!r}: a name that ends in .svg, .png or .txt is needed")
        data = make()
        write_whole(path, lambda stream: stream.write(data))

    def __str__(self) -> str:
        from .roofline_text import text_of

        return text_of(self)

    def _repr_svg_(self) -> str | None:
        """For notebooks; None, for the text, where matplotlib is not installed."""
        try:
            return self.svg()
        except ToolError:
            return None


def roofline_of(profile: Profile, group_by: str = "launch") -> Roofline:
    """The rows of a profile on its machine.

    Raises:
        OptionError: no such grouping.
        UnsupportedError: no row has operations and bytes.
    """
    rows = profile.rows(group_by)
    drawn = [(number, row) for number, row in enumerate(rows, start=1) if row.executed and row.work.bytes]
    drawn = [(number, row) for number, row in drawn if row.median]
    if not drawn:
        raise UnsupportedError(f"{profile.model}: no kernel's operations and bytes are known: there is nothing to draw")
    numbers = {number for number, _ in drawn}
    threads = f"{profile.threads} thread{'s' if profile.threads > 1 else ''}"
    batch = f", batch {profile.batch}" if profile.batch else ""
    products = "".join(f"{rate / 1e9:.0f} by {name}, " for name, rate in profile.roofs.instructions.items())
    return Roofline(
        f"{profile.model}{batch}: {'launches' if group_by == 'launch' else f'by {group_by}'} on the roofline",
        f"{profile.machine.get('cpu', '')}, {profile.machine.get('isa', '')}, {threads}; "
        f"{profile.roofs.flops / 1e9:.0f} GFLOP/s, {products}memory {profile.roofs.bandwidth / 1e9:.1f} GB/s, "
        f"L2 {profile.roofs.cache_bandwidth / 1e9:.0f} GB/s",
        tuple(_point(number, row, profile.roofs) for number, row in drawn), profile.roofs,
        tuple(row.label for number, row in enumerate(rows, start=1) if number not in numbers),
    )  # fmt: skip


def _point(number: int, row: Row, roofs: Roofs) -> Point:
    executed, size = row.executed or 0.0, row.work.bytes or 1
    intensity, rate = executed / size, executed / row.median
    roof = min(row.peak, intensity * roofs.bandwidth)
    label, nodes = row.label, f" ({', '.join(row.nodes)})" if row.nodes and row.label != ", ".join(row.nodes) else ""
    detail = (
        f"{number}: {label}{nodes}: {row.median * 1e3:.4f} ms, {100 * row.share:.1f} % of the run; "
        f"{rate / 1e9:.1f} GFLOP/s executed, {intensity:.2f} operations a byte, {100 * rate / roof:.0f} % of the roof, "
        f"bound by {row.bound}"
    )
    return Point(number, label, detail, intensity, rate, roof, row.bound, row.share)
