"""One session: contexts of all kernels over one database, one cost model and one measurer; and what it tells."""

import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.s_tir.meta_schedule.measure_callback import UpdateCostModel
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.s_tir.meta_schedule.task_scheduler import GradientBased

from ...core.machine import Machine
from ...core.records.schedule_database import FAILED_SECONDS, RECORDS, WORKLOADS, normalized
from ..measure.measurement import Measurement, Measurer
from .context import context_of, space_of
from .cost_model import BoundedModel, train_with
from .designs import Design, Workload
from .measuring import ModuleTask, NumberingBuilder, PoolRunner, Recorder
from .strategy import NewCandidates, trace_text

#: Candidates of one kernel between two searches, at most and at least: each search costs as much as some trials.
BATCH, SMALL_BATCH = 32, 8
#: Searches of a kernel, on average, before batches become larger.
_SEARCHES = 3


@dataclass(frozen=True)
class Trial:
    """One candidate, for a progress callback.

    Attributes:
        kernel: its name.
        number: of the trial in this session, from 1.
        seconds: its time; infinite if it failed.
        best: the least time of the kernel so far, earlier sessions included.
        error: "" or one of the names of errors; "wrong" if its result is.
        detail: the message.
    """

    kernel: str
    number: int
    seconds: float
    best: float
    error: str = ""
    detail: str = ""


@dataclass
class KernelSummary:
    """What became of one kernel.

    Attributes:
        trials: measured in this session.
        errors: name of an error -> how many.
        known: records of earlier sessions.
        best: least seconds of a right candidate, earlier sessions included; infinite if there is none.
        flops: floating-point operations of one run.
        space: "recipes" or "rules".
    """

    trials: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    known: int = 0
    best: float = math.inf
    flops: float = 0.0
    space: str = "rules"


@dataclass(frozen=True)
class TuneSummary:
    """What a session did.

    Attributes:
        kernels: by name.
        seconds: of the whole session; measuring: the part in which the pool built, checked and timed.
        repaired: lines of the database that an earlier session left unfinished, and that were cut off.
    """

    kernels: Mapping[str, KernelSummary]
    seconds: float
    measuring: float
    repaired: int = 0

    @property
    def trials(self) -> int:
        return sum(summary.trials for summary in self.kernels.values())


class Session:
    """Kernels that share a budget of trials.

    Args:
        folder: of the database.
        machine: to tune for.
        designs: whether a workload's own designs are used, where it has some.
        seed: of the search.
        measurer: measures.
        progress: called after each trial.

    Attributes:
        kernels: name -> what became of it.
    """

    def __init__(
        self, folder: Path, machine: Machine, designs: bool, seed: int, measurer: Measurer,
        progress: Callable[[Trial], None] | None,
    ) -> None:  # fmt: skip
        self._machine, self._designs, self._progress = machine, designs, progress
        self._random = random.Random(seed)
        self._database = JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
        self._model = BoundedModel(seed)
        self._target = machine.target()
        self._recorder = Recorder(measurer, self._database, self._target, self._on_trial)
        self.kernels: dict[str, KernelSummary] = {}

    @property
    def measuring(self) -> float:
        """Seconds that the measurer was at work."""
        return self._recorder.seconds

    def tune(self, kernels: dict[str, Workload], trials: int) -> None:
        """Tune until `trials` candidates were measured or no space has new ones.

        Raises:
            BaseException: whatever the measurer or `progress` raised.
        """
        self._recorder.left = trials
        batch = batch_of(trials, len(kernels))
        contexts = [self._context(name, workload, batch) for name, workload in kernels.items()]
        GradientBased(seed=self._seed()).tune(
            tasks=contexts,
            task_weights=[workload.weight for workload in kernels.values()],
            max_trials_global=trials, max_trials_per_task=trials, num_trials_per_iter=batch,
            builder=NumberingBuilder(), runner=PoolRunner(self._recorder), measure_callbacks=[UpdateCostModel()],
            database=self._database, cost_model=self._model,
        )  # fmt: skip
        if self._recorder.stopped is not None:
            raise self._recorder.stopped

    def _context(self, name: str, workload: Workload, batch: int) -> Any:
        """The context of a kernel; the cost model learns what earlier sessions found about it."""
        mod = normalized(workload.function)
        designs = workload.designs if self._designs else ()
        summary = KernelSummary(flops=float(estimate_tir_flops(mod)), space="recipes" if designs else "rules")
        stored = self._database.commit_workload(mod)
        old = self._records(stored)
        task = ModuleTask(name, mod, summary.flops)
        known = {trace_text(record.trace) for record in old}
        search = NewCandidates(task, stored, known, self._recorder, batch)
        context = context_of(name, mod, self._machine, space_of(designs, self._seed()), search, self._seed())
        good = sorted((r for r in old if _seconds(r) < FAILED_SECONDS), key=_seconds)
        train_with(self._model, context, good)
        summary.known, summary.best = len(old), _seconds(good[0]) if good else math.inf
        self._recorder.best[name] = summary.best
        self.kernels[name] = summary
        if designs and workload.default is not None:
            self._measure_default(task, stored, known, workload.default)
        return context

    def _measure_default(self, task: ModuleTask, stored: Any, known: set[str], default: Design) -> None:
        """The schedule of a compile without tuning is the first candidate."""
        sch = default(Schedule(task.mod))
        candidate = MeasureCandidate(sch, ArgInfo.from_entry_func(sch.mod, remove_preproc=True))
        if trace_text(sch.trace) not in known and self._recorder.pick(task, stored, [candidate]):
            self._recorder.results([0])

    def _records(self, stored: Any) -> list[Any]:
        """Records of a kernel on this machine."""
        own = self._target.export()
        return [
            record for record in self._database.get_all_tuning_records()
            if record.workload.same_as(stored) and record.target.export() == own
        ]  # fmt: skip

    def _seed(self) -> int:
        return self._random.randrange(1, 2**30)

    def _on_trial(self, kernel: str, measurement: Measurement) -> None:
        summary = self.kernels[kernel]
        summary.trials += 1
        summary.best = self._recorder.best[kernel]
        if measurement.error:
            summary.errors[measurement.error] = summary.errors.get(measurement.error, 0) + 1
        if self._progress is not None:
            seconds = math.inf if measurement.error else measurement.cost
            number = sum(k.trials for k in self.kernels.values())
            self._progress(Trial(kernel, number, seconds, summary.best, measurement.error, measurement.detail))


def batch_of(trials: int, kernels: int) -> int:
    """Candidates of a batch: every kernel gets one, if there are trials enough."""
    return max(1, min(BATCH, max(trials // (_SEARCHES * kernels), min(SMALL_BATCH, trials // kernels))))


def _seconds(record: Any) -> float:
    return statistics.median(map(float, record.run_secs))
