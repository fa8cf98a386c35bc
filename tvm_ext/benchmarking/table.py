"""The result of a benchmark: a row a contender, the machine, the warnings; as text, Markdown and plain values."""

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..core.pages.page import Note, Part, Shown
from ..runtime.table import Column, Table, Value, plain_named
from .noise import RATIO_SPREAD, quartiles, spread


@dataclass(frozen=True)
class BenchmarkRow:
    """One contender.

    Attributes:
        name: "tvm_ext", "onnxruntime", "tvm".
        version: what ran.
        rounds: samples of each round, in seconds; empty if it has no time.
        of_range: largest error against onnxruntime, of the output's range; None if nothing was compared.
        reason: why it has no time: it failed, or its outputs disagree. Empty if it has one.
        prepare_seconds: compiling or opening the model, imports included.
        details: what the contender said of itself.
    """

    name: str
    version: str = ""
    rounds: tuple[tuple[float, ...], ...] = ()
    of_range: float | None = None
    reason: str = ""
    prepare_seconds: float | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.reason and bool(self.rounds)

    @property
    def minima(self) -> list[float]:
        """Least time of each round, in seconds."""
        return [min(samples) for samples in self.rounds]

    def statistics(self) -> dict[str, float]:
        """min, median and interquartile range over all samples, in seconds; empty without a time."""
        if not self.ok:
            return {}
        samples = [s for round_ in self.rounds for s in round_]
        low, middle, high = quartiles(samples)
        return {"min": min(samples), "median": middle, "iqr": high - low}


@dataclass(frozen=True)
class BenchmarkTable(Shown):
    """What `benchmark` returns.

    Attributes:
        model: what was timed.
        machine: CPU, cores, instruction set, versions.
        threads: threads of every contender.
        rows: ours first, then the others.
        warnings: reasons to doubt the figures.
        calibration: seconds of a fixed piece of work before each round.
        reference: what the outputs were compared with; empty if they could not be.
    """

    model: str
    machine: dict[str, Any]
    threads: int
    rows: tuple[BenchmarkRow, ...]
    warnings: tuple[str, ...] = ()
    calibration: tuple[float, ...] = ()
    reference: str = ""

    @property
    def ok(self) -> bool:
        """Whether every contender has a time."""
        return all(row.ok for row in self.rows)

    def row(self, name: str) -> BenchmarkRow:
        """The row of a contender.

        Raises:
            KeyError: there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no row {name!r}; rows: {[row.name for row in self.rows]}")

    def round_ratios(self, name: str) -> list[float]:
        """Our minimum over the other's minimum of each round; empty if one of them has no time."""
        ours, other = self.rows[0], self.row(name)
        if not (ours.ok and other.ok):
            return []
        return [a / b for a, b in zip(ours.minima, other.minima, strict=True)]

    def ratio(self, name: str) -> float | None:
        """The figure: median over rounds of :meth:`round_ratios`; below 1 we are faster. None without times."""
        ratios = self.round_ratios(name)
        return median(ratios) if ratios else None

    def too_noisy(self, name: str) -> bool:
        """Whether the ratio to a contender scatters so much between rounds that it tells nothing."""
        return spread(self.round_ratios(name)) > RATIO_SPREAD

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times in milliseconds."""
        fields = plain_named(self, "model", "machine", "threads", "reference", "warnings")
        rows = [self._row_dict(row) for row in self.rows]
        return {**fields, "calibration_ms": [_ms(seconds) for seconds in self.calibration], "rows": rows}

    def parts(self) -> list[Part]:
        """The machine, a row a contender, and what to know of the figures."""
        columns = (
            "contender", Column("ours / its", form=".3f"), Column("min", "ms", ".3f"), Column("median", "ms", ".3f"),
            Column("IQR", "ms", ".3f"), Column("error of range", form=".1e"), Column("prepare", "s", ".2f"), "note",
        )  # fmt: skip
        return [Note(self._heading()), Table(columns, map(self._row, self.rows)), *map(Note, self._notes())]

    def _heading(self) -> str:
        machine, packages = self.machine, self.machine.get("packages", {})
        isa = f", {machine['isa']}" if machine.get("isa") else ""
        versions = ", ".join(f"{name} {version}" for name, version in packages.items())
        return (
            f"{self.model}: {self.threads} threads on {machine.get('cpu', 'an unknown CPU')} "
            f"({machine.get('cores', '?')} cores{isa}), Python {machine.get('python', '?')}, {versions}"
        )

    def _row(self, row: BenchmarkRow) -> tuple[Value, ...]:
        stats, ratio = row.statistics(), None if row is self.rows[0] else self.ratio(row.name)
        times = (1e3 * stats[key] if stats else None for key in ("min", "median", "iqr"))
        return row.version or row.name, ratio, *times, row.of_range, row.prepare_seconds, row.reason

    def _notes(self) -> list[str]:
        about = f"outputs compared with {self.reference}" if self.reference else "outputs were NOT compared"
        rounds = max((len(row.rounds) for row in self.rows), default=0)
        figure = f"ours / its: median over {rounds} interleaved rounds of the rounds' minima; below 1 we are faster"
        return [*([figure] if rounds else []), about, *(f"warning: {w}" for w in self.warnings)]

    def _row_dict(self, row: BenchmarkRow) -> dict[str, Any]:
        stats = {f"{key}_ms": _ms(value) for key, value in row.statistics().items()}
        ratio = None if row is self.rows[0] else self.ratio(row.name)
        return {
            "name": row.name, "version": row.version, "ok": row.ok, "reason": row.reason, **stats,
            "ratio": None if ratio is None else round(ratio, 4),
            "round_ratios": [round(r, 4) for r in self.round_ratios(row.name)] if row is not self.rows[0] else [],
            "round_minima_ms": [_ms(m) for m in row.minima], "samples": sum(map(len, row.rounds)),
            "of_range": row.of_range, "prepare_seconds": row.prepare_seconds, "details": row.details,
        }  # fmt: skip


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 5)
