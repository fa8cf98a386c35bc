"""The loop of a tuning session: which task, which candidates, measured by whom; every record is logged at once."""

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..core import tuner_names
from ..core.errors import OptionError, check_whole, is_number
from ..core.machine import Machine
from ..core.recipe import Config
from ..core.records.record import Record
from ..core.records.record_book import machine_fields
from ..core.records.task_key import TaskKey
from .measure import MeasureError, Measurement, Measurer, TaskError
from .state import TaskState, next_state
from .task import Task
from .tuners import make_tuner
from .tuners.rank_model import feature_rows

Event = Mapping[str, Any]
"""Something that happened: "event" names it, the rest are plain values."""


#: Results of another task that a tuner learns from at most.
_LESSON = 100


class Log(Protocol):
    """Where records go."""

    def append(self, record: Record) -> None:
        """Write it, flushed."""
        ...


@dataclass(frozen=True)
class Budget:
    """When a session stops: whatever comes first.

    Attributes:
        trials: candidates measured in all.
        minutes: of wall time, the end's timing of the whole model not included.
        patience: trials without progress after which a task is left alone.
        goal: estimated time of all kernels, tuned over untuned, at which it is good enough; 0 for none.
        batch: candidates proposed at once.
    """

    trials: int | None = None
    minutes: float | None = None
    patience: int = 128
    goal: float = 0.0
    batch: int = 16

    def __post_init__(self) -> None:
        for name in ("trials", "patience", "batch"):
            if name != "trials" or self.trials is not None:
                object.__setattr__(self, name, check_whole(name, getattr(self, name), 1))
        for name in ("minutes", "goal"):
            value = getattr(self, name)
            if not (is_number(value) and value >= 0) and not (name == "minutes" and value is None):
                raise OptionError(f"{name}={value!r}: a number of 0 or more is needed")


def session_name() -> str:
    """Of a session that begins now; no other has it."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


class Session:
    """Measures candidates of some tasks until the budget is used.

    Args:
        tasks: with the number of calls of each in the model.
        machine: they are measured on.
        measurer: measures them.
        log: takes each record as soon as it is there.
        name: of the session, in every record.
        tuner: name of the tuner of each task; options: its options.
        known: records of an earlier session with these tasks, in their spaces; such candidates are not measured again.
        peak: measured multiply-adds of the machine, in FLOP/s, for the floor of a task's time; 0 if unknown.
        cpu: what records say they were measured on; "" is this machine.
        tell: is told what happens.
    """

    def __init__(
        self, tasks: Sequence[tuple[Task, int]], machine: Machine, measurer: Measurer, log: Log, name: str, *,
        budget: Budget, tuner: str = tuner_names.DEFAULT, seed: int = 0, options: Mapping[str, Any] | None = None,
        known: Sequence[Record] = (), peak: float = 0.0, cpu: str = "",
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:  # fmt: skip
        self.states = [
            TaskState(task, make_tuner(tuner, task, seed + i, **(options or {})), weight, _floor(task, peak))
            for i, (task, weight) in enumerate(tasks)
        ]
        self._machine, self._measurer, self._log = machine, measurer, log
        self.name, self._budget, self._tell = name, budget, tell
        self._fields = machine_fields(machine, cpu)
        self.trials = 0
        self.started = time.monotonic()
        self._resume(known)

    def _resume(self, known: Sequence[Record]) -> None:
        for state in self.states:
            mine = [r for r in known if (r.task, r.recipe) == (state.task.key, state.task.recipe)]
            for record in mine:
                state.take(record)
            if mine:
                state.tuner.update([(r.config, r.cost) for r in mine])
                state.known, state.without_progress = len(mine), 0

    # ------------------------------------------------------------ the loop
    def run(self) -> str:
        """Measure until something says stop; what it was.

        Raises:
            MeasureError: nothing can be measured, and nothing was.
        """
        try:
            return self._run()
        except MeasureError as error:
            if not self.trials:
                raise
            return f"nothing can be measured any more: {error.message}"

    def _run(self) -> str:
        self._defaults()
        while not (reason := self._over()):
            state = next_state(self.states, self._rivals(), self._budget.patience)
            if state is None:
                return self._nothing_left()
            self._teach(state)
            configs = state.tuner.propose(self._room())
            if configs:
                self._measure(state, configs)
            else:
                state.used_up = True
        return reason

    def _nothing_left(self) -> str:
        if all(s.unusable for s in self.states):
            return "no task can be measured"
        return "all measured" if all(s.over for s in self.states) else "no task has made progress lately"

    def _defaults(self) -> None:
        """The configuration of a compile without tuning comes first: what all others are compared with."""
        for state in self.states:
            known = not math.isnan(state.default_cost)
            if state.task.default is not None and not known and not state.unusable and not self._over():
                self._measure(state, [state.task.default])

    def _teach(self, state: TaskState) -> None:
        """Before its first proposal a tuner learns from what is known of other tasks of its recipe."""
        if state.transferred:
            return
        state.transferred = True
        for number, other in enumerate(self.states):
            if other is state or other.task.recipe != state.task.recipe or not other.tuner.results:
                continue
            points = list(other.tuner.results.items())[-_LESSON:]
            rows = feature_rows(other.task, [other.task.space.at(index) for index, _ in points])
            state.tuner.warm([(row, cost, number) for row, (_, cost) in zip(rows, points, strict=True)])

    def _measure(self, state: TaskState, configs: Sequence[Config]) -> None:
        results: list[tuple[Config, float]] = []
        try:
            for measurement in self._measurer.measure(state.task, configs, state.cost):
                record = self._record(state.task, measurement)
                self._log.append(record)
                results.append((record.config, record.cost))
                self.trials += 1
                better = state.take(record)
                self._tell({"event": "trial", **self._facts(state, record, better)})
        except TaskError as error:  # the others can go on
            for other in self.states:
                if other.task.key == state.task.key:  # another recipe for it has the same unscheduled function
                    other.unusable = error.message
            self._tell({"event": "unusable", "task": state.task.name, "reason": error.message})
        finally:  # interrupted or not, what was measured is not proposed again
            state.tuner.update(results)

    def _record(self, task: Task, measurement: Measurement) -> Record:
        kinds, config = {knob: kind for knob, kind in task.space.kinds.items() if kind != "ot"}, measurement.config
        names = (task.key, task.recipe, task.version, config, self._fields, self.name)
        return measurement.record(*names, kinds=kinds, index=task.space.index(config))

    def _facts(self, state: TaskState, record: Record, better: bool) -> dict[str, Any]:
        return {
            "task": state.task.name, "trial": self.trials, "of": self._budget.trials, "seconds": record.cost,
            "best": state.cost, "default": state.default_cost, "flops": state.task.flops, "better": better,
            "error": record.error, "detail": record.detail, "discarded": record.discarded, "config": record.config,
            "elapsed": time.monotonic() - self.started, "left": self._left(),
        }  # fmt: skip

    # ------------------------------------------------------------ the budget
    def _over(self) -> str:
        if self._budget.trials is not None and self.trials >= self._budget.trials:
            return f"{self.trials} trials are done"
        if self._budget.minutes is not None and time.monotonic() - self.started >= 60 * self._budget.minutes:
            return f"{self._budget.minutes:g} minutes are over"
        if self._budget.goal and self.estimate <= self._budget.goal:
            return f"the goal of {self._budget.goal:g} is reached"
        return ""

    def _left(self) -> float | None:
        """Seconds until the budget is used, as far as it is known."""
        elapsed = time.monotonic() - self.started
        left = []
        if self._budget.minutes is not None:
            left.append(60 * self._budget.minutes - elapsed)
        if self._budget.trials is not None and self.trials:
            left.append(elapsed / self.trials * (self._budget.trials - self.trials))
        return max(0.0, min(left)) if left else None

    def _room(self) -> int:
        rest = self._budget.trials - self.trials if self._budget.trials is not None else self._budget.batch
        return max(1, min(self._budget.batch, rest))

    def _rivals(self) -> dict[int, float]:
        best = self.best()
        return {i: best[s.task.key].cost for i, s in enumerate(self.states)}

    # ------------------------------------------------------------ what was found
    def best(self) -> dict[TaskKey, TaskState]:
        """For each kind of work the state whose best candidate is the fastest."""
        best: dict[TaskKey, TaskState] = {}
        for state in self.states:
            if state.task.key not in best or state.cost < best[state.task.key].cost:
                best[state.task.key] = state
        return best

    def untuned(self, key: TaskKey) -> TaskState:
        """The state whose default a compile without records chooses: the first of its key."""
        return next(s for s in self.states if s.task.key == key)

    @property
    def estimate(self) -> float:
        """Time of all kernels alone, tuned over untuned; 1 while nothing is measured."""
        pairs = [
            (state.weight * state.cost, state.weight * self.untuned(key).default_cost)
            for key, state in self.best().items()
        ]
        pairs = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        return sum(a for a, _ in pairs) / sum(b for _, b in pairs) if pairs else 1.0


def _floor(task: Task, peak: float) -> float:
    """Seconds that no kernel of a task goes below: Winograd's F(4x4, 3x3) does a quarter of the multiplications."""
    return 0.25 * task.flops / peak if peak else 0.0
