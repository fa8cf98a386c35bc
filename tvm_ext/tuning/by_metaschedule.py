"""A whole session by MetaSchedule: a model's kernels go in, a database folder comes out, and a report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import OptionError
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..core.sample_inputs import seeded_inputs
from ..driver.compile import compile_model
from ..verification.verify import verify
from .in_model import Ratio, paired
from .measure import Measurer
from .metaschedule import Trial, Workload, kernels_of, tune_kernels
from .report import INTERRUPTED, INTERRUPTED_LATE, TaskRow, TuneReport
from .session import Budget, Event, session_name

Measuring = Callable[[], AbstractContextManager[Measurer]]
"""Opens a measurer."""


class _BudgetSpent(Exception):
    """The time is over: raised in the progress callback, it ends the session with all trials in the database."""


class MetaScheduleRun:
    """All kernels of a model that have designs, tuned into one database.

    Args:
        model: path, bytes or ModelProto; name: of it.
        folder: of the database; one that exists is gone on with.
        wanted: texts, one of which a kernel's name must contain; empty: all kernels.

    Raises:
        OptionError: there is no kernel to tune.
    """

    def __init__(
        self, model: Any, name: str, options: CompileOptions, machine: Machine, folder: Path, wanted: Sequence[str]
    ) -> None:
        self._model, self._name, self._options, self._machine, self._folder = model, name, options, machine, folder
        kernels = kernels_of(model, options, machine)
        self._kernels = {k: w for k, w in kernels.items() if not wanted or any(text in k for text in wanted)}
        if not self._kernels:
            wrong = f"tasks={list(wanted)}: no kernel has such a name" if kernels else "no kernel for MetaSchedule"
            raise OptionError(f"{name}: {wrong}", fix=f"kernels: {', '.join(kernels)}" if kernels else "")

    def plan(self) -> TuneReport:
        """What would be tuned."""
        rows = (TaskRow(kernel, int(w.weight), 0, recipe="MetaSchedule") for kernel, w in self._kernels.items())
        return TuneReport(self._name, session_name(), str(self._folder), tuple(rows), notes=("nothing was measured",))

    def tune(
        self, budget: Budget, seed: int, measuring: Measuring, tell: Callable[[Event], None], elsewhere: str = ""
    ) -> TuneReport:
        """Tune until the budget is used, and time the whole model.

        Args:
            measuring: opens the measurer; it is closed before the whole model is timed.
            elsewhere: why the whole model is not timed here; "" if it is.
        """
        session = session_name()
        tell({"event": "start", "session": session, "tasks": list(self._kernels), "log": str(self._folder)})
        clock = _Clock(budget, tell, self._kernels)
        stopped = self._measure(clock, budget, seed, measuring)
        seconds = time.monotonic() - clock.started
        ratio, worst, failed = None, None, ""
        notes = (f"the whole model was not timed: {elsewhere}",) if elsewhere else ()
        if not elsewhere and stopped != INTERRUPTED and clock.count:
            tell({"event": "end", "step": "timing the whole model, with and without the schedules"})
            try:
                ratio, worst, failed = self._whole(seed)
            except KeyboardInterrupt:
                stopped = INTERRUPTED_LATE
        rows = tuple(clock.row(kernel, workload) for kernel, workload in self._kernels.items())
        return TuneReport(self._name, session, str(self._folder), rows, seconds, stopped, ratio, worst, notes, failed)

    def _measure(self, clock: _Clock, budget: Budget, seed: int, measuring: Measuring) -> str:
        """Tune the kernels; the reason why the session ended, for the report."""
        trials = budget.trials or 1 << 30
        try:
            with measuring() as measurer:
                tune_kernels(
                    self._kernels, self._machine, self._folder, trials, seed=seed, progress=clock, measurer=measurer
                )
        except _BudgetSpent:
            return f"{budget.minutes:g} minutes are over"
        except KeyboardInterrupt:
            return INTERRUPTED
        return f"{trials} trials are done" if clock.count >= trials else "no space has new candidates"

    def _whole(self, seed: int) -> tuple[Ratio | None, float | None, str]:
        """The whole model: its ratio, its error, and what is wrong with it."""
        untuned = compile_model(self._model, replace(self._options, records=None, cache=False))
        tuned = compile_model(self._model, replace(self._options, records=(str(self._folder),), cache=False))
        checked = verify(tuned, self._model, seed=seed)
        if not checked.ok:
            return None, checked.of_range, f"the tuned model disagrees with onnxruntime:\n{checked}"
        return paired(tuned, untuned, seeded_inputs(untuned.inputs, seed)), checked.of_range, ""


class _Clock:
    """Counts trials, of which the recipe's default is a kernel's first; tells of them; ends the session in time."""

    def __init__(self, budget: Budget, tell: Callable[[Event], None], kernels: Mapping[str, Workload]) -> None:
        self.started, self.count = time.monotonic(), 0
        self._budget, self._tell = budget, tell
        self._trials: dict[str, list[Trial]] = {name: [] for name in kernels}

    def __call__(self, trial: Trial) -> None:
        mine = self._trials[trial.kernel]
        better = trial.seconds < (mine[-1].best if mine else math.inf)
        mine.append(trial)
        self.count += 1
        elapsed = time.monotonic() - self.started
        left = None if self._budget.minutes is None else max(0.0, 60 * self._budget.minutes - elapsed)
        self._tell({
            "event": "trial", "task": trial.kernel, "trial": self.count, "of": self._budget.trials,
            "seconds": trial.seconds, "best": trial.best, "default": mine[0].seconds, "flops": 0.0,
            "better": better, "error": trial.error, "detail": trial.detail, "discarded": False, "config": {},
            "elapsed": elapsed, "left": left,
        })  # fmt: skip
        if left == 0.0:
            raise _BudgetSpent

    def row(self, kernel: str, workload: Workload) -> TaskRow:
        """What became of a kernel."""
        trials = self._trials[kernel]
        failed, wrong = sum(bool(t.error) for t in trials), sum(t.error == "wrong" for t in trials)
        default, best = (trials[0].seconds, trials[-1].best) if trials else (math.nan, math.nan)
        return TaskRow(
            kernel, int(workload.weight), 0, len(trials), failed, wrong, default,
            best if math.isfinite(best) else math.nan, None, "MetaSchedule", {}, best < default,
        )  # fmt: skip
