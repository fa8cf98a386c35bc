"""The report of an offload: where each ONNX node runs and why, and what is known of each region."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import OptionError
from .plain import read, reading
from .table import Column, Table, plain


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
            ArtifactError: the report is damaged.
        """
        found = report.get("offload")
        if found is None:
            wrong = f"model {model!r} was compiled without offload, and all of it is computed here"
            raise OptionError(wrong, fix="compile(model, offload='systolic')")
        with reading("offload"):
            return read(cls, {"model": model, **{key: found[key] for key in ("backend", "ops", "regions")}})

    @property
    def offloaded(self) -> tuple[OpRow, ...]:
        """Nodes that a region computes."""
        names = {region.name for region in self.regions}
        return tuple(row for row in self.ops if row.place in names)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**plain(self), "ops": [list(vars(row).values()) for row in self.ops]}

    def __str__(self) -> str:
        names = dict.fromkeys(region.backend for region in self.regions) or [self.backend]
        head = f"{self.model}: {len(self.offloaded)} of {len(self.ops)} nodes run on {' and '.join(map(repr, names))}"
        lines, rest = [f"{head}, in {len(self.regions)} regions", self.region_table().text()], self._rest()
        return "\n".join([*lines, "", rest.text()] if rest.rows else lines)

    def _repr_html_(self) -> str:
        """For notebooks: all nodes."""
        return self.region_table().html() + self.op_table().html()

    def op_table(self) -> Table:
        """A row a node."""
        return Table(("node", "operator", "place", "reason"), [tuple(vars(row).values()) for row in self.ops])

    def _rest(self) -> Table:
        """What had no choice of place; one row for all nodes whose reasons are alike but for numbers."""
        alike: dict[tuple[str, ...], list[OpRow]] = {}
        chosen = {region.name for region in self.regions if region.host_seconds is not None}
        for row in self.ops:
            if row.place not in chosen:
                alike.setdefault((row.op, row.place, re.sub(r"\d+", "0", row.reason)), []).append(row)
        rows = [(one.op, len(found), one.place, one.reason) for found in alike.values() for one in found[:1]]
        return Table(("operator", "nodes", "place", "reason (of the first)"), rows)

    def region_table(self) -> Table:
        """A row a region; what nobody estimates is empty."""
        columns = (
            "region", "composites", "nodes", Column("program", "kB", ".1f"), Column("there", "us", ".1f"),
            Column("on the CPU", "us", ".1f"), Column("ONNX nodes", page=True),
        )  # fmt: skip
        rows = [
            (one.name, len(one.composites), len(one.nodes), one.program_bytes / 1e3, _micros(one.seconds),
             _micros(one.host_seconds), ", ".join(one.nodes))
            for one in self.regions
        ]  # fmt: skip
        return Table(columns, rows)


def _micros(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6
