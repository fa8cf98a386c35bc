"""The report of an offload: where each ONNX node runs and why, and what is known of each region."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ...core.errors import OptionError, check_whole
from ..files import write_text
from ..plain import read, reading
from ..table import Column, Table, few, percent_cell, plain
from .overlap import BUFFERS, HOST, Call, Overlap

#: Runs of the table of overlap.
RUNS = (1, 2, 4, 16)


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
class KeptRow:
    """A kernel of the CPU beside the regions: its recipe, its ONNX nodes, and estimated seconds of all its calls in a
    run; None if nobody estimates."""

    kernel: str
    recipe: str
    nodes: tuple[str, ...]
    seconds: float | None


@dataclass(frozen=True)
class CallRow:
    """A call of the program: the name of its region, else of its kernel; and numbers of the calls that it reads."""

    name: str
    reads: tuple[int, ...]


@dataclass(frozen=True)
class OffloadReport:
    """What was offloaded, and why; why the rest was not; what the CPU keeps, and how much faster a run can be at most;
    `str()` prints it.

    Attributes:
        model: its name.
        backend: name of the back end that was asked; regions say who runs them.
        ops: every ONNX node of the model, in order.
        regions: in order.
        kept: kernels that the CPU runs, in order.
        calls: of a run, in order.
        keeps_state: whether a run reads what the last one left.
        asynchronous: whether the CPU goes on while a region runs.
    """

    model: str
    backend: str
    ops: tuple[OpRow, ...]
    regions: tuple[RegionRow, ...]
    kept: tuple[KeptRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    keeps_state: bool = False
    asynchronous: bool = False

    @classmethod
    def of(cls, report: Mapping[str, Any], model: str) -> OffloadReport:
        """The report of a compiled model, from what its artifact keeps.

        Raises:
            OptionError: nothing was to be offloaded.
            ArtifactError: the report is damaged.
        """
        facts = report.get("offload")
        if facts is None:
            wrong = f"model {model!r} was compiled without offload, and all of it is computed here"
            raise OptionError(wrong, fix="compile(model, offload='systolic')")
        with reading("offload"):
            names = [field.name for field in fields(cls) if field.name in facts]
            offload: OffloadReport = read(cls, {**{name: facts[name] for name in names}, "model": model})
            if any(not 0 <= at < number for number, call in enumerate(offload.calls) for at in call.reads):
                raise ValueError("a call reads one that comes later")
            return offload

    @property
    def offloaded(self) -> tuple[OpRow, ...]:
        """Nodes that a region computes."""
        names = {region.name for region in self.regions}
        return tuple(row for row in self.ops if row.place in names)

    @property
    def kept_seconds(self) -> float:
        """Estimated, of the kernels that the CPU keeps; those that nobody estimates are left out."""
        return sum(row.seconds or 0.0 for row in self.kept)

    @property
    def host_seconds(self) -> float | None:
        """Estimated, of a run on the CPU alone; None without regions, or if nothing here computes nodes of one."""
        regions = [region.host_seconds for region in self.regions if region.host_seconds is not None]
        return sum(regions, self.kept_seconds) if regions and len(regions) == len(self.regions) else None

    @property
    def speedup(self) -> float | None:
        """Time of the CPU alone over that of CPU and back end, one after the other; None if one of them is unknown."""
        there = [region.seconds for region in self.regions if region.seconds is not None]
        total = sum(there, self.kept_seconds) if len(there) == len(self.regions) else None
        return self.host_seconds / total if self.host_seconds is not None and total else None

    @property
    def bound(self) -> float | None:
        """The speedup if regions took no time (Amdahl's law); infinite if the CPU keeps nothing; None if unknown."""
        return None if self.host_seconds is None else _ratio(self.host_seconds, self.kept_seconds)

    def overlap(self, runs: int = 1) -> Overlap | None:
        """Runs with regions that are asynchronous, by the times here, those that nobody estimates left out; None if
        nothing was offloaded, or a region has no time.

        Args:
            runs: how many, of which two are under way at once.

        Raises:
            OptionError: fewer than 1.
        """
        runs = check_whole("runs", runs, 1)
        counts = Counter(call.name for call in self.calls)
        known = {row.kernel: (HOST, row.seconds or 0.0) for row in self.kept}
        known |= {row.name: (row.backend, row.seconds) for row in self.regions if row.seconds is not None}
        if not self.regions or not counts or not known.keys() >= counts.keys():
            return None
        calls = [Call(c.name, known[c.name][0], known[c.name][1] / counts[c.name], c.reads) for c in self.calls]
        return Overlap.of(calls, runs, 1 if self.keeps_state else BUFFERS)

    def timeline(self, path: str | os.PathLike[str], runs: int = 2) -> None:
        """Writes :meth:`overlap` as trace events, which ui.perfetto.dev draws: a track for the host and for each back
        end, and an arrow for each token.

        Raises:
            OptionError: fewer runs than 1, or calls without times.
        """
        overlap = self.overlap(runs)
        if overlap is None:
            fix = "offload to a back end that has a cost model"
            raise OptionError(f"no region of {self.model!r} has a time", fix=fix)
        write_text(path, json.dumps(overlap.trace()) + "\n")

    def measured(self, seconds: Mapping[str, float]) -> OffloadReport:
        """The report with measured times of what the CPU keeps.

        Args:
            seconds: kernel -> seconds of all its calls in a run, as a profile of this model has them.
        """
        kept = tuple(replace(row, seconds=seconds.get(row.kernel, row.seconds)) for row in self.kept)
        return replace(self, kept=kept)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**plain(self, "speedup", "bound"), "ops": [list(vars(row).values()) for row in self.ops]}

    def __str__(self) -> str:
        tables = self.layer_table(), self.edge_table(), self.amdahl_table(), self.overlap_table(), self._rest()
        shown = (table for table in tables if table.rows)
        texts = (f"\n{table.caption}\n{table.text()}" if table.caption else f"\n{table.text()}" for table in shown)
        return "\n".join([*self.heads(), self.region_table().text(), *texts])

    def heads(self) -> list[str]:
        """A line of what runs where, and one of what that can bring, if it is known."""
        names = dict.fromkeys(region.backend for region in self.regions) or [self.backend]
        head = f"{self.model}: {len(self.offloaded)} of {len(self.ops)} nodes run on {' and '.join(map(repr, names))}"
        lines = [f"{head}, in {len(self.regions)} regions" + ", beside the CPU" * self.asynchronous]
        if self.host_seconds is not None and self.bound is not None:
            least = "" if math.isinf(self.bound) else f", at most {self.bound:.3g} times as fast as the CPU alone"
            told = "" if self.speedup is None else f", {self.speedup:.3g} times as regions are estimated"
            unknown = sum(row.seconds is None for row in self.kept)
            out = f"; {unknown} kernels that nobody estimates left out" if unknown else ""
            kept = f"{self.kept_seconds * 1e6:.1f} us of {self.host_seconds * 1e6:.1f} us stay on the CPU"
            lines.append(f"estimated: {kept}{least}{told}{out}")
        return lines

    def _repr_html_(self) -> str:
        """For notebooks: all nodes."""
        return "".join(table.html() for table in self.tables())

    def tables(self) -> tuple[Table, ...]:
        """Those of a page that have rows: regions, layers, results between these, what the CPU keeps, all nodes."""
        tables = self.region_table(), self.layer_table(), self.edge_table(), self.amdahl_table(), self.overlap_table()
        return tuple(table for table in (*tables, self.op_table()) if table.rows)

    def layer_table(self) -> Table:
        """A row a layer, of the back ends that say what energy it takes, by level, and what its weights go as, where it
        is said; the caption names the source."""
        rows = [row for region in self.regions for row in region.facts.get("layers", ()) if row.get("energy")]
        levels = dict.fromkeys(level for row in rows for level in row["energy"])
        has_weights = any("weights" in row for row in rows)
        columns = [Column("layer"), Column("cycles", right=True), Column("DRAM", "kB", ".1f")]
        columns += [Column(level, "nJ", ".1f") for level in (*levels, "energy")]
        columns += [Column("weights")] * has_weights
        sources = dict.fromkeys(region.facts.get("energy_source", "") for region in self.regions)
        return Table(columns, [
            (row["name"], row["cycles"], row["dram_bytes"] / 1e3,
             *(row["energy"].get(level, 0.0) / 1e3 for level in levels), sum(row["energy"].values()) / 1e3,
             *[row.get("weights", "")] * has_weights)
            for row in rows
        ], f"energy by {' and '.join(filter(None, sources))}")  # fmt: skip

    def edge_table(self) -> Table:
        """A row a result that layers of a region read: where it lies, bytes of DRAM that this saves, why not more."""
        columns = (
            "result of", Column("size", "kB", ".1f"), "read by", "place", Column("DRAM saved", "kB", ".1f"), "why"
        )  # fmt: skip
        return Table(columns, [
            (edge["producer"], edge["nbytes"] / 1e3, few(edge["readers"]), edge["place"], edge["saved"] / 1e3,
             edge["why"])
            for region in self.regions for edge in region.facts.get("edges", ())
        ])  # fmt: skip

    def amdahl_table(self) -> Table:
        """A row a kernel that the CPU keeps, the longest first: its share of a run on the CPU alone, and the bound on
        the speedup if it ran on the back end too."""
        columns = (
            "stays on the CPU", "recipe", Column("time", "us", ".1f"), Column("share", right=True),
            Column("bound without it", form=".3g"), "ONNX nodes",
        )  # fmt: skip
        total = self.host_seconds
        rows = [] if total is None else [
            (
                row.kernel, row.recipe, _micros(row.seconds), percent_cell(row.seconds and row.seconds / total),
                row.seconds and _ratio(total, self.kept_seconds - row.seconds), few(row.nodes),
            )
            for row in sorted(self.kept, key=lambda row: -(row.seconds or 0.0))
        ]  # fmt: skip
        return Table(columns, rows)

    def overlap_table(self) -> Table:
        """A row a number of runs: their time one after the other, and with regions that are asynchronous, of which each
        unit works for a share."""
        swept = [self.overlap(runs) for runs in RUNS]
        overlaps = [overlap for overlap in swept if overlap is not None]
        units = overlaps[0].units if overlaps else ()
        columns = [Column("runs", right=True), Column("one by one", "us", ".1f"), Column("overlapped", "us", ".1f")]
        columns += [Column("times as fast", form=".2f"), *(Column(f"{unit} works", right=True) for unit in units)]
        return Table(columns, [
            (each.runs, 1e6 * each.serial_seconds, 1e6 * each.seconds, _ratio(each.serial_seconds, each.seconds),
             *(percent_cell(each.busy(unit)) for unit in units))
            for each in overlaps
        ], "regions that are asynchronous, as estimated")  # fmt: skip

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
        rows = [(first.op, len(same), first.place, first.reason) for same in alike.values() for first in same[:1]]
        return Table(("operator", "nodes", "place", "reason (of the first)"), rows)

    def region_table(self) -> Table:
        """A row a region; what nobody estimates is empty."""
        columns = (
            "region", "composites", "nodes", Column("program", "kB", ".1f"), Column("there", "us", ".1f"),
            Column("on the CPU", "us", ".1f"), Column("ONNX nodes", page=True),
        )  # fmt: skip
        rows = [
            (r.name, len(r.composites), len(r.nodes), r.program_bytes / 1e3, _micros(r.seconds),
             _micros(r.host_seconds), ", ".join(r.nodes))
            for r in self.regions
        ]  # fmt: skip
        return Table(columns, rows)


def _ratio(total: float, part: float) -> float:
    """Infinite where the part is none of it, up to what sums of floats leave."""
    return total / part if part > 1e-9 * total else math.inf


def _micros(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6
