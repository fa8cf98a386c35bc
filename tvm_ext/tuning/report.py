"""What a tuning session reports: one row a task, and the whole model before and after."""

import math
from dataclasses import dataclass, field
from typing import Any

from ..core.pages.page import Note, Part, Shown
from ..runtime.table import Column, Plain, Table, Value, plain_fields
from .in_model import Ratio

#: Why a session stopped that Ctrl-C ended: while it measured, and while it timed the whole model.
INTERRUPTED = "interrupted: what was measured is in the log, and --resume goes on"
INTERRUPTED_LATE = "interrupted while the whole model was timed: a compile takes the fastest records of the log"


@dataclass(frozen=True)
class TaskRow(Plain):
    """One task.

    Attributes:
        name: of the work; calls: in the model.
        space: configurations of all recipes for it.
        trials: measured, with those that failed and, of these, gave a wrong answer, and with those that an earlier
            session had measured (`known`).
        before, after: seconds alone, of the default and of the best candidate; nan if not measured.
        in_model: seconds inside the model, after and before; None if not timed there.
        recipe, config: of the best candidate.
        kept: whether a compile will use it.
        flops: of one call.
        curve: (trials, best seconds) at each progress.
        unusable: why nothing can be measured; "" if it can.
    """

    name: str
    calls: int
    space: int
    trials: int = 0
    failed: int = 0
    wrong: int = 0
    before: float = math.nan
    after: float = math.nan
    in_model: tuple[float, float] | None = None
    recipe: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    kept: bool = False
    flops: float = 0.0
    curve: tuple[tuple[int, float], ...] = ()
    known: int = 0
    unusable: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        times = {"seconds_before": _or_none(self.before), "seconds_after": _or_none(self.after)}
        fields = {name: value for name, value in plain_fields(self).items() if name not in ("name", "before", "after")}
        return {"task": self.name, **times, **fields}


@dataclass(frozen=True)
class TuneReport(Shown):
    """A finished session, or what one would do (`dry_run`).

    Attributes:
        model: its name; session: the name in its records; log: where they are.
        rows: one a task, that with the most time in the model first.
        seconds: wall time; stopped: why it stopped.
        ratio: whole model, tuned over untuned; None if it was not timed.
        error: largest error of the tuned model against onnxruntime, as a part of an output's range; None: not checked.
        notes: for people.
        failed: what went wrong at the end, with the whole model; "" if nothing did.
    """

    model: str
    session: str
    log: str
    rows: tuple[TaskRow, ...]
    seconds: float = 0.0
    stopped: str = ""
    ratio: Ratio | None = None
    error: float | None = None
    notes: tuple[str, ...] = ()
    failed: str = ""

    @property
    def trials(self) -> int:
        """Measured in this session."""
        return sum(row.trials - row.known for row in self.rows)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.stopped in (INTERRUPTED, INTERRUPTED_LATE)

    @property
    def ok(self) -> bool:
        """Whether something could be tuned, and the whole model agreed with onnxruntime if it was run."""
        return not self.failed and not all(row.unusable for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = plain_fields(self, "trials", "ok")
        error = None if self.error is None else _or_none(self.error)
        return {"tasks": fields.pop("rows"), **fields, "error": error}

    def parts(self) -> list[Part]:
        """A row a task: times of one call alone, and of all calls inside the model; then the session in words."""
        lines = []
        if self.seconds:
            rate = self.trials / self.seconds
            lines.append(f"{self.trials} trials in {self.seconds:.0f} s ({rate:.1f} a second); {self.stopped}")
        if self.ratio is not None:
            ours, other = (1e3 * s for s in self.ratio.seconds)
            checked = "" if self.error is None else f"; error against onnxruntime {self.error:.1e} of the range"
            lines.append(f"whole model, tuned / untuned: {self.ratio}; {ours:.3f} ms and {other:.3f} ms{checked}")
        lines += [f"{row.name}: cannot be measured: {row.unusable}" for row in self.rows if row.unusable]
        failed = [Note(f"FAILED: {self.failed}", "bad")] if self.failed else []
        return [self.table(), *map(Note, (*lines, *self.notes)), *failed]

    def table(self) -> Table:
        """A row a task."""
        columns = (
            "task", "calls", "space", Column("trials", right=True), Column("before", "us", ".1f"),
            Column("after", "us", ".1f"), Column("GFLOP/s", form=".1f"), Column("in the model", form=".2f"),
            "recipe", "kept",
        )  # fmt: skip
        return Table(columns, map(_row, self.rows))


def _row(row: TaskRow) -> tuple[Value, ...]:
    inside = None if row.in_model is None else row.in_model[0] / row.in_model[1]
    trials = f"{row.trials}{f' ({row.failed} failed)' if row.failed else ''}"
    times = (_or_none(1e6 * seconds) for seconds in (row.before, row.after))
    rate = row.flops / row.after / 1e9 if math.isfinite(row.after) else None
    return row.name, row.calls, row.space, trials, *times, rate, inside, row.recipe, _kept(row)


def _kept(row: TaskRow) -> str:
    return "yes" if row.kept else "unusable" if row.unusable else ""


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
