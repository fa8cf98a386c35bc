"""The report of an offload: where each ONNX node runs and why, and what is known of each region."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import OptionError


@dataclass(frozen=True)
class OpRow:
    """One ONNX node: its operator, the region that computes it, "cpu", or "compile time", and why."""

    node: str
    op: str
    place: str
    reason: str


@dataclass(frozen=True)
class RegionRow:
    """One offloaded region.

    Attributes:
        name, backend: of the region, and of who runs it.
        nodes: ONNX nodes it computes.
        composites: (pattern, operators) of each composite in it.
        seconds: estimated, of one run there; None if the back end has no cost model. host_seconds: on the CPU; None if
            nothing here computes it.
        program_bytes: of its program, constants included.
        facts: what the back end says of it.
    """

    name: str
    backend: str
    nodes: tuple[str, ...]
    composites: tuple[tuple[str, tuple[str, ...]], ...]
    seconds: float | None
    host_seconds: float | None
    program_bytes: int
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class OffloadReport:
    """What was offloaded, and why; why the rest was not; `str()` prints it.

    Attributes:
        model: its name.
        backend: name of the back end that was asked; regions say who runs them.
        ops: every ONNX node of the model, in order.
        regions: in order.
    """

    model: str
    backend: str
    ops: tuple[OpRow, ...]
    regions: tuple[RegionRow, ...]

    @classmethod
    def of(cls, report: Mapping[str, Any], model: str) -> OffloadReport:
        """The report of a compiled model, from what its artifact keeps.

        Raises:
            OptionError: nothing was to be offloaded.
        """
        found = report.get("offload")
        if found is None:
            wrong = f"model {model!r} was compiled without offload, and all of it is computed here"
            raise OptionError(wrong, fix="compile(model, offload='systolic')")
        return cls(model, found["backend"], tuple(OpRow(*row) for row in found["ops"]), _regions(found["regions"]))

    @property
    def offloaded(self) -> tuple[OpRow, ...]:
        """Nodes that a region computes."""
        names = {region.name for region in self.regions}
        return tuple(row for row in self.ops if row.place in names)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.model, "backend": self.backend, "ops": [list(vars(row).values()) for row in self.ops],
            "regions": [dict(vars(region)) for region in self.regions],
        }  # fmt: skip

    def __str__(self) -> str:
        regions = self._region_table()
        names = dict.fromkeys(region.backend for region in self.regions) or [self.backend]
        head = f"{self.model}: {len(self.offloaded)} of {len(self.ops)} nodes run on {' and '.join(map(repr, names))}"
        lines = [f"{head}, in {len(self.regions)} regions", *_text(regions)]
        rest = self._rest()
        return "\n".join([*lines, "", *_text(rest)] if len(rest) > 1 else lines)

    def _repr_html_(self) -> str:
        """For notebooks: all nodes."""
        rows = [("node", "op", "place", "reason"), *((r.node, r.op, r.place, r.reason) for r in self.ops)]
        return _html(self._region_table()) + _html(rows)

    def _rest(self) -> list[tuple[Any, ...]]:
        """What had no choice of place; one row for all nodes whose reasons are alike but for numbers."""
        alike: dict[tuple[str, ...], list[OpRow]] = {}
        chosen = {region.name for region in self.regions if region.host_seconds is not None}
        for row in self.ops:
            if row.place not in chosen:
                alike.setdefault((row.op, row.place, re.sub(r"\d+", "0", row.reason)), []).append(row)
        rows = [(one.op, len(found), one.place, one.reason) for found in alike.values() for one in found[:1]]
        return [("op", "nodes", "place", "reason (of the first)"), *rows]

    def _region_table(self) -> list[tuple[Any, ...]]:
        head = ("region", "composites", "nodes", "program", "there", "on the CPU")
        return [head, *(_region_cells(region) for region in self.regions)]


def _regions(rows: Any) -> tuple[RegionRow, ...]:
    return tuple(
        RegionRow(
            row["name"], row["backend"], tuple(row["nodes"]), tuple((p, tuple(ops)) for p, ops in row["composites"]),
            row["seconds"], row["host_seconds"], row["program_bytes"], row["facts"],
        )
        for row in rows
    )  # fmt: skip


def _region_cells(region: RegionRow) -> tuple[Any, ...]:
    there, host = (_micros(seconds) for seconds in (region.seconds, region.host_seconds))
    size = f"{region.program_bytes / 1e3:.1f} kB"
    return region.name, len(region.composites), len(region.nodes), size, there, host


def _micros(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1e6:.1f} us"


def _text(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as aligned text; the first one is the head."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _html(rows: list[tuple[Any, ...]]) -> str:
    head, *body = ["".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows]
    head = head.replace("td>", "th>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in body)}</tbody></table>"
