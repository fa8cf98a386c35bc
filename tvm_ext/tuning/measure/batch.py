"""Measuring some candidates of one task: who builds and who runs when, and what a dying worker leaves.

Each candidate gets exactly one Measurement. One that was built by a worker that died over another is built again.
"""

import math
import selectors
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...benchmarking.process import Died
from ...core.recipe import Config
from ..task import Task
from .measurement import BAD_TASK, NO_SERVER, MeasureError, Measurement, TaskError
from .slot import Slot
from .timing import lower_quartile

#: Candidates that a worker keeps built before they run: more even out builds of different length, and hold memory.
_KEPT = 8
#: Seconds for the unscheduled function, which nobody made fast.
REFERENCE_TIMEOUT = 300.0
#: Workers that may die over it.
_REFERENCE_TRIES = 2
#: How often workers may find no machine to run a kernel on, one after the other.
_REFUSALS = 4
#: Of several rounds, a candidate that takes so many times as long as the fastest gets no further one; but a second one,
#: if it takes about twice as long: a thread that shares its core for a while does so.
_CLOSE, _TWICE = 1.1, (1.6, 2.2)


@dataclass(frozen=True)
class Limits:
    """What the pool may do at a time.

    Attributes:
        builds: candidates.
        spare: builds beside a running kernel.
        build_timeout, run_timeout: seconds.
        remote: whether kernels run on other machines, as many as there are workers; else one at a time, here.
        rounds: how often candidates that are close to the fastest are timed, one after the other and again from the
            first, so that what slows this machine down for a while slows them all.
    """

    builds: int
    spare: int
    build_timeout: float
    run_timeout: float
    remote: bool = False
    rounds: int = 1


@dataclass
class _Trial:
    """A candidate: what its runs took so far, and the answer of the last one."""

    config: Config
    seconds: float = 0.0
    runs: int = 0
    costs: tuple[float, ...] = ()
    answer: Mapping[str, Any] = field(default_factory=dict)


class Batch:
    """One call of `measure`.

    Args:
        slots: workers; they may still be starting.
        task, configs, best: as :meth:`.pool.WorkerPool.measure` was given.
        reference: file of the unscheduled function's results; made here if it is not there.
        key, what: of the task, and its description.
        number: of this batch, for workers to forget what is left of another.
    """

    def __init__(
        self, slots: Sequence[Slot], task: Task, configs: Sequence[Config], best: float, limits: Limits,
        reference: Path, key: str, what: Mapping[str, Any], number: int,
    ) -> None:  # fmt: skip
        self._slots, self._task, self._best, self._limits = slots, task, best, limits
        self._reference, self._key, self._what, self._number = reference, key, what, number
        self._trials = [_Trial(dict(config)) for config in configs]
        self._pending = deque(range(len(self._trials)))
        self._done: deque[Measurement] = deque()
        self._left = len(self._trials)
        self._running_phase = False
        self._tries = self._refusals = 0
        for slot in slots:
            slot.built.clear()

    def results(self) -> Iterator[Measurement]:
        """Measurements as they finish; none while a kernel runs, so that who reads them does not disturb it."""
        while self._left:
            self._dispatch()
            if not self._done or self._timing():
                self._collect()
            while self._done and not self._timing():
                self._left -= 1
                yield self._done.popleft()

    def abandon(self) -> None:
        """Stop what still runs; workers that wait stay as they are."""
        for slot in self._slots:
            if slot.job is not None and slot.job.kind != "start":
                slot.replace()

    # ------------------------------------------------------------ who does what
    def _timing(self) -> bool:
        """Whether a kernel runs here, that nothing may disturb."""
        return bool(self._busy("run")) and not self._limits.remote

    def _busy(self, *kinds: str) -> list[Slot]:
        return [s for s in self._slots if s.job is not None and s.job.kind in kinds]

    def _idle(self) -> list[Slot]:
        return [s for s in self._slots if s.job is None]

    def _dispatch(self) -> None:
        self._ask_for_reference()
        self._leave_behind()
        while self._ask_for_run():
            pass
        room = self._limits.spare if self._busy("run") or self._wants_to_run() else self._limits.builds
        for slot in sorted(self._idle(), key=lambda s: len(s.built)):
            if len(self._busy("build", "reference")) >= room or len(slot.built) >= _KEPT:
                break
            self._ask_for_build(slot)

    def _wants_to_run(self) -> bool:
        """Whether runs come before builds. They alternate where a run takes all cores: all that was built is run."""
        ready = any(self._ready(s) for s in self._slots)
        full = not self._pending or self._full()
        self._running_phase = ready and (self._running_phase or full or self._limits.spare > 0)
        return self._running_phase and self._reference.exists()

    def _full(self) -> bool:
        return all(len(s.built) >= _KEPT for s in self._slots)

    def _ready(self, slot: Slot) -> list[int]:
        """What a worker has built and may run: a second round begins when the first one of all is over."""
        return slot.built if self._compared() else [t for t in slot.built if not self._trials[t].runs]

    def _compared(self) -> bool:
        """Whether each candidate was timed once, so that none falls behind by who was built first; or no worker has
        room for those that were not."""
        waiting = (*self._pending, *(t for s in self._slots for t in s.built))
        running = (s.job.trial for s in self._slots if s.job is not None and s.job.trial >= 0)
        return self._full() or all(self._trials[t].runs for t in (*waiting, *running))

    def _ask_for_reference(self) -> None:
        idle = self._idle()
        if idle and not self._reference.exists() and not self._busy("reference", "run"):
            self._ask(idle[0], "reference", -1, REFERENCE_TIMEOUT, {"path": str(self._reference)})

    def _ask_for_run(self) -> bool:
        """Start a run, if one may start now; whether it did."""
        crowded = (self._busy("run") and not self._limits.remote) or len(
            self._busy("build", "reference")
        ) > self._limits.spare
        built = [(slot, trial) for slot in self._idle() for trial in self._ready(slot)]
        if not built or crowded or not self._wants_to_run():
            return False
        slot, trial = min(built, key=lambda pair: (self._trials[pair[1]].runs, -len(pair[0].built)))
        slot.built.remove(trial)
        runs = self._trials[trial].runs
        best = math.inf if self._limits.rounds > 1 else self._best
        message = {"path": str(self._reference), "best": best, "again": runs + 1 < self._limits.rounds}
        self._ask(slot, "run", trial, self._limits.run_timeout, message)
        return True

    def _leave_behind(self) -> None:
        """Candidates that were timed, and lie behind the fastest, get no further round."""
        for slot in self._slots if self._compared() else ():
            for trial in [t for t in slot.built if self._trials[t].runs and not self._close(t)]:
                slot.built.remove(trial)
                self._finish(trial, self._trials[trial].answer)

    def _close(self, trial: int) -> bool:
        """Whether a candidate that was timed may be the fastest yet, and gets a further round."""
        timed = self._trials[trial]
        ratio = lower_quartile(timed.costs) / self._best
        return ratio <= _CLOSE or (timed.runs == 1 and _TWICE[0] <= ratio <= _TWICE[1])

    def _ask_for_build(self, slot: Slot) -> None:
        while self._pending:
            trial = self._pending.popleft()
            try:
                candidate = self._task.candidate(self._trials[trial].config)
            except Exception as error:
                text = str(error).strip().splitlines() or [""]
                self._finish(trial, {"error": "schedule", "detail": f"{type(error).__name__}: {text[0][:400]}"})
                continue
            self._ask(slot, "build", trial, self._limits.build_timeout, {"candidate": candidate})
            return

    def _ask(self, slot: Slot, kind: str, trial: int, timeout: float, message: Mapping[str, Any]) -> None:
        """Send a job; if the worker has died meanwhile, what it had goes back to be built."""
        what = {} if self._key in slot.known else {"describe": self._what}
        if kind == "run" and not self._limits.remote:
            for other in self._idle():
                if other is not slot:
                    other.process.pause()
        try:
            slot.ask(kind, trial, timeout, {"task": self._key, "batch": self._number, **what, **message})
            slot.known.add(self._key)
        except Died:
            self._replace(slot, [trial] if trial >= 0 else [])

    def _replace(self, slot: Slot, also: Sequence[int] = ()) -> None:
        """A new worker; what the old one had built is built again, but for what was timed already."""
        for trial in reversed([*also, *slot.replace()]):
            if self._trials[trial].runs:
                self._finish(trial, self._trials[trial].answer)
            else:
                self._pending.appendleft(trial)

    # ------------------------------------------------------------ what comes back
    def _collect(self) -> None:
        """Wait until some worker answers, dies, or has had its time."""
        with selectors.DefaultSelector() as ready:
            for slot in self._slots:
                ready.register(slot.process, selectors.EVENT_READ, slot)
            least = min((s.job.left for s in self._slots if s.job is not None), default=None)
            answering = [key.data for key, _ in ready.select(None if least is None else max(0.0, least))]
        for slot in answering:
            self._hear(slot)
        for slot in self._slots:
            if slot.job is not None and slot.job.left <= 0 and slot not in answering:
                self._gone(slot, f"no answer within {slot.job.timeout:g} s", timeout=True)

    def _hear(self, slot: Slot) -> None:
        try:
            answer = slot.process.answer()
        except Died as died:
            self._gone(slot, str(died))
            return
        job = slot.job
        if answer is None or job is None:
            return
        slot.job = None
        if answer["error"] == BAD_TASK:
            slot.known.discard(self._key)
            raise TaskError(f"task {self._task.name}: {answer['detail']}")
        if job.kind == "reference" and answer["error"]:
            raise TaskError(f"task {self._task.name}: the unscheduled function: {answer['detail']}")
        if job.trial < 0:
            return
        self._trials[job.trial].seconds += job.seconds
        if answer["error"] == NO_SERVER:
            self._refused(job.trial, answer["detail"])
        elif job.kind == "build" and not answer["error"]:
            slot.built.append(job.trial)
        elif job.kind == "run" and not answer["error"]:
            self._ran(slot, job.trial, answer)
        else:
            self._finish(job.trial, answer)

    def _ran(self, slot: Slot, trial: int, answer: Mapping[str, Any]) -> None:
        """Another round for a candidate that has one left; else it is finished."""
        timed = self._trials[trial]
        timed.runs, timed.costs = timed.runs + 1, (*timed.costs, *answer["costs"])
        timed.answer = {**answer, "costs": timed.costs}
        if answer.get("discarded") or timed.runs >= self._limits.rounds:
            self._finish(trial, timed.answer)
            return
        self._best = min(self._best, lower_quartile(timed.costs))
        slot.built.append(trial)

    def _gone(self, slot: Slot, how: str, timeout: bool = False) -> None:
        """A worker has died, or takes too long: its job fails, and another takes its place.

        Raises:
            MeasureError: it was starting.
            TaskError: several have died over the unscheduled function.
        """
        job = slot.job
        if job is not None and job.kind == "start":
            raise MeasureError(f"a worker process does not start: {how}")
        self._replace(slot)
        if job is not None and job.kind == "reference":
            self._tries += 1
            if timeout or self._tries >= _REFERENCE_TRIES:
                raise TaskError(f"task {self._task.name}: the unscheduled function: {how}")
        elif job is not None:
            self._trials[job.trial].seconds += job.seconds
            self._finish(job.trial, {"error": f"{job.kind}-timeout" if timeout else "crash", "detail": how})

    def _refused(self, trial: int, how: str) -> None:
        """No machine was there for a kernel: it is built and tried again.

        Raises:
            MeasureError: so it was several times, and nothing ran meanwhile.
        """
        self._refusals += 1
        if self._refusals > _REFUSALS:
            raise MeasureError(how)
        self._pending.appendleft(trial)

    def _finish(self, trial: int, answer: Mapping[str, Any]) -> None:
        """The measurement of a candidate, which is the result of this batch from now on."""
        finished = self._trials[trial]
        self._refusals = 0
        costs = tuple(answer.get("costs", ()))
        measurement = Measurement(
            finished.config, costs, answer["error"], answer["detail"], answer.get("check"),
            bool(answer.get("discarded", False)), finished.seconds,
        )  # fmt: skip
        if costs and not measurement.discarded:
            self._best = min(self._best, measurement.cost)
        self._done.append(measurement)
