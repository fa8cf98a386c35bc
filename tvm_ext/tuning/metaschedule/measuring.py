"""Builder and runner of MetaSchedule over the measuring pool: a candidate is built, checked and timed in a worker.

MetaSchedule's builder hands an artifact's path to its runner. Here the builder only numbers the candidates of a batch,
the runner has the pool do the rest. Each result goes into the database as soon as it is there, so that a session that
is killed loses none: `AddToDatabase`, TVM's own callback for it, would add a whole batch at its end.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.database import Workload as StoredWorkload
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerInput, RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from ...core.recipe import Config
from ...core.records.schedule_database import FAILED_SECONDS
from ...core.records.task_key import TaskKey
from ..measure.measurement import Measurement, Measurer


class ModuleTask:
    """A kernel whose candidates are scheduled modules: only what measurers see of a task.

    Args:
        name: of the kernel.
        mod: unscheduled; the reference that every candidate is checked against.
        flops: of one run.
    """

    def __init__(self, name: str, mod: IRModule, flops: float = 0.0) -> None:
        self.name, self.mod, self.flops = name, mod, flops
        self.key = TaskKey.of("metaschedule", [name])
        self.candidates: Sequence[IRModule] = ()

    @functools.cached_property
    def _reference(self) -> str:
        return str(tvm.ir.save_json(self.mod))

    def describe(self) -> dict[str, Any]:
        """The unscheduled module as TVM's JSON."""
        return {"kind": "module", "reference": self._reference}

    def candidate(self, config: Config) -> dict[str, Any]:
        """The scheduled module as TVM's JSON."""
        return {"module": str(tvm.ir.save_json(self.candidates[config["candidate"]]))}


@derived_object
class NumberingBuilder(PyBuilder):
    """Builds nothing: an artifact is the number of its candidate in the batch."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """One result an input, in order."""
        return [BuilderResult(str(i), None) for i in range(len(build_inputs))]


@derived_object
class Finished(PyRunnerFuture):
    """A result that is there."""

    def __init__(self, result: RunnerResult) -> None:
        super().__init__()
        self._result = result

    def done(self) -> bool:
        """True: the result is there from the start."""
        return True

    def result(self) -> RunnerResult:
        """What the runner measured."""
        return self._result


@dataclass
class Recorder:
    """The trials of a session: measures what the search picks, and writes each result into the database at once.

    Attributes:
        measurer: does the work.
        database: of the session.
        target: of the records.
        on_trial: called with (kernel, measurement) after each.
        left: trials.
        stopped: why the session ends early: what a callback or the measurer raised, Ctrl-C among others.
        task, stored, candidates: on their way from the search to the runner: the kernel, the same one in the database,
            and what the search picked.
        best: kernel -> least seconds so far.
        seconds: that the measurer was at work.
    """

    measurer: Measurer
    database: Database
    target: Any
    on_trial: Callable[[str, Measurement], None]
    left: int = 0
    stopped: BaseException | None = None
    task: ModuleTask | None = None
    stored: StoredWorkload | None = None
    candidates: Sequence[MeasureCandidate] = ()
    best: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def pick(
        self, task: ModuleTask, stored: StoredWorkload, candidates: Sequence[MeasureCandidate]
    ) -> list[MeasureCandidate]:
        """Take so many candidates of a kernel as trials are left: those that the runner is to measure next."""
        count = 0 if self.stopped else min(len(candidates), self.left)
        self.left -= count
        picked = list(candidates[:count])
        self.task, self.stored, self.candidates = task, stored, picked
        return picked

    def results(self, numbers: Sequence[int]) -> list[RunnerResult]:
        """One result a candidate. A failed or wrong one has a message and no time, and so has one left out at the end
        of a session that was stopped."""
        results: dict[int, RunnerResult] = {}
        start = time.perf_counter()
        try:
            results.update(self._measured(numbers))  # keeps those that are finished if it raises
        except BaseException as error:
            self.stopped = error
        self.seconds += time.perf_counter() - start
        return [results.get(n, RunnerResult(None, "the session was stopped")) for n in numbers]

    def _measured(self, numbers: Sequence[int]) -> Iterator[tuple[int, RunnerResult]]:
        task = self.task
        assert task is not None
        task.candidates = [c.sch.mod for c in self.candidates]
        configs = [{"candidate": n} for n in numbers]
        for measurement in self.measurer.measure(task, configs, best=self.best.get(task.name, float("inf"))):
            number = int(measurement.config["candidate"])
            good = bool(measurement.costs) and not measurement.error
            self._commit(number, list(measurement.costs) if good else [FAILED_SECONDS])
            if good and not measurement.discarded:
                self.best[task.name] = min(self.best.get(task.name, float("inf")), measurement.cost)
            why = None if good else f"{measurement.error or 'no time'}: {measurement.detail}"
            yield number, RunnerResult(list(measurement.costs) if good else None, why)
            self.on_trial(task.name, measurement)

    def _commit(self, number: int, seconds: Sequence[float]) -> None:
        candidate = self.candidates[number]
        record = TuningRecord(candidate.sch.trace, self.stored, list(seconds), self.target, candidate.args_info)
        self.database.commit_tuning_record(record)


@derived_object
class PoolRunner(PyRunner):
    """Measures a whole batch before it returns: while kernels are timed, no search may run beside them."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[Any]:
        """Finished futures, in order."""
        numbers = [int(runner_input.artifact_path) for runner_input in runner_inputs]
        return [Finished(result) for result in self._recorder.results(numbers)]
