"""`tvm_ext.tune`: a model or a template goes in, a log of measured configurations comes out, and a report."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import tuner_names
from ..core.errors import OptionError, TvmExtError, check_choice, check_switch, check_whole, listener, names_of
from ..core.machine import Machine, machine_for
from ..core.options import CompileOptions
from ..core.recipe import Config
from ..core.records.record_book import REMOTE
from ..core.records.task_key import TaskKey
from ..frontend.reading.reader import read_model
from ..rates.loops import call_of_fma, round_minimum
from ..runtime.cpu import why_not_here
from ..runtime.files import path_of
from .by_metaschedule import MetaScheduleRun
from .extract import Workload, workloads_of
from .log import TuningLog
from .measure import LocalMeasurer, Measurer, RPCMeasurer, check_tracker, measuring
from .report import INTERRUPTED, INTERRUPTED_LATE, TaskRow, TuneReport
from .resume import Known, known_of
from .session import Budget, Event, Session, session_name
from .task import Task
from .verdict import Judgement, judge, why_elsewhere

#: Without any other limit a session takes this long.
DEFAULT_MINUTES = 10.0


def tune(
    model: Any, *, log: str | os.PathLike[str] | None = None, trials: int | None = None, minutes: float | None = None,
    tasks: Sequence[str] = (), tuner: str = tuner_names.DEFAULT, patience: int = 128, goal: float = 0.0, seed: int = 0,
    resume: bool = False, dry_run: bool = False, measurer: Measurer | None = None,
    rpc: tuple[str, int, str] | None = None, on_event: Callable[[Event], None] | None = None, **options: Any,
) -> TuneReport:  # fmt: skip
    """Search configurations of a model's kernels, or of a template, by measuring them.

    Each candidate is built and run in a worker process, its output compared with the unscheduled function, and its
    record appended to the log at once. At the end the whole model is timed with and without the best records; a task
    that is no faster there keeps its default. `compile(model, records=log)` uses the log.

    Args:
        model: a path, the bytes of an ONNX file, an `onnx.ModelProto`, or a task of a :func:`tvm_ext.template`.
        log: file to append to; None for NAME.tuning.json.
        trials: candidates to measure in all.
        minutes: time to measure; 10 if neither is given.
        tasks: only tasks whose name, recipe or ONNX node contains one of these.
        tuner: "beam", "xgb" (a rank model; needs the extra `tune`), "ga", "random" or "grid"; or "metaschedule": TVM's
            own search over the same kernels, for which `log` is the folder of its database.
        patience: trials without progress that end a task.
        goal: stop when the kernels' time, tuned over untuned, is estimated to be this; 0 for never.
        seed: of the tuners and of inputs.
        resume: go on with the log: what it has is not measured again.
        dry_run: measure nothing; the report lists tasks and spaces.
        measurer: builds, checks and times candidates; None for this machine, or for `rpc`.
        rpc: (host, port, key) of a TVM RPC tracker: measure on all of its servers under this key.
        on_event: is told what happens, as plain values: "start", "peak", "trial", "end".
        **options: compile options, as for :func:`tvm_ext.compile`; `records` is not among them.

    Returns:
        A report: one row a task, and the ratio of the whole model with its interval; `str()` prints it. After Ctrl-C
        it has what was measured until then.

    Raises:
        OptionError: a bad option, no such task, or nothing to tune.
        ModelError, UnsupportedError: as for :func:`tvm_ext.compile`.
    """
    if trials is None and minutes is None:
        minutes = DEFAULT_MINUTES
    for name, value in (("resume", resume), ("dry_run", dry_run)):
        check_switch(name, value)
    if "records" in options:
        raise OptionError("records: tune compares with the defaults", fix="to go on with a log: log=LOG, resume=True")
    compile_options = CompileOptions.of(**options)
    if compile_options.offload is not None:
        raise OptionError("offload: tune measures kernels of the CPU", fix="leave it out; compile takes it")
    if compile_options.choose != "estimate":
        raise OptionError("choose='measure': tune measures by itself", fix="leave it out; `minutes` says for how long")
    machine = machine_for(compile_options)
    setup = _Setup(
        machine, Budget(trials, minutes, patience, goal), tuner, seed, measurer, rpc, listener(on_event)
    )  # fmt: skip
    _check(setup)
    wanted = names_of("tasks", tasks)
    log = None if log is None else path_of(log, OptionError, "the path of the log")
    if tuner == tuner_names.METASCHEDULE:
        return _by_metaschedule(model, compile_options, setup, log, wanted, resume, dry_run)
    subject = _Template(model) if _is_template(model) else _Model(model, compile_options, machine, wanted)
    path = Path(log) if log is not None else Path(f"{subject.name}.tuning.json")
    if dry_run:
        return subject.report(session_name(), str(path), notes=_estimate(subject, setup.budget))
    known = known_of(path, [task for task, _ in subject.tasks], machine) if resume else Known()
    return _carried_out(subject, setup, path, known)


@dataclass(frozen=True)
class _Setup:
    """How a session measures: see :func:`tune`."""

    machine: Machine
    budget: Budget
    tuner: str
    seed: int
    measurer: Measurer | None
    rpc: tuple[str, int, str] | None
    tell: Callable[[Event], None]

    @functools.cached_property
    def elsewhere(self) -> str:
        """Why the whole model cannot be timed here as it would run there; "" if it can."""
        return why_elsewhere(self.machine) if self.rpc else ""

    def measuring(self) -> AbstractContextManager[Measurer]:
        """The measurer, for as long as it is needed."""
        rpc = self.rpc
        return measuring(self.measurer, lambda: RPCMeasurer(self.machine, *rpc) if rpc else LocalMeasurer(self.machine))


def _carried_out(subject: _Tuned, setup: _Setup, path: Path, known: Known) -> TuneReport:
    """Measure, then compare the whole model; everything is in the log as soon as it is known."""
    book, name = TuningLog(path), session_name()
    book.begin(name, setup.machine, {"model": subject.name, "tuner": setup.tuner, "seed": setup.seed})
    setup.tell(_start(subject, name, path, known))
    peak = 0.0 if setup.elsewhere else _peak(setup.machine, setup.tell)
    with setup.measuring() as measurer:
        session = Session(
            subject.tasks, setup.machine, measurer, book, name, budget=setup.budget, tuner=setup.tuner, seed=setup.seed,
            known=known.records, peak=peak, cpu=REMOTE if setup.rpc else "", tell=setup.tell,
        )  # fmt: skip
        stopped = _run(subject, session, measurer)
    seconds = time.monotonic() - session.started
    judged, failed, notes = None, "", list(known.notes)
    if setup.elsewhere:
        notes.append(f"the whole model was not timed ({setup.elsewhere}): a compile takes the fastest records")
    elif stopped != INTERRUPTED:
        try:
            judged, failed = _judged(subject, session, book, setup)
        except KeyboardInterrupt:
            stopped = INTERRUPTED_LATE
    return subject.report(name, str(path), session, judged, stopped, seconds, notes, failed)


def _start(subject: _Tuned, name: str, path: Path, known: Known) -> Event:
    return {
        "event": "start", "session": name, "tasks": [t.name for t, _ in subject.tasks], "log": str(path),
        "known": len(known.records), "refused": dict(known.refused),
    }  # fmt: skip


def _check(setup: _Setup) -> None:
    """Raises OptionError: a value does not fit, or kernels for this machine cannot run here and nowhere else."""
    check_choice("tuner", setup.tuner, tuner_names.NAMES)
    check_whole("seed", setup.seed)
    if setup.rpc is not None:
        check_tracker(setup.rpc)
    if setup.measurer is not None and not hasattr(setup.measurer, "measure"):
        raise OptionError(f"measurer={setup.measurer!r:.200} measures nothing", fix="leave it out, or give rpc=")
    if setup.rpc is None and (why := why_not_here(setup.machine.as_dict())):
        raise OptionError(f"nothing can be measured here: {why}", fix="measure elsewhere: rpc=(host, port, key)")


def _run(subject: _Tuned, session: Session, measurer: Measurer) -> str:
    """Why the measuring stopped. Ctrl-C ends it, and nothing else: no record is lost."""
    try:
        subject.before(session, measurer)
        return session.run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _judged(subject: _Tuned, session: Session, book: TuningLog, setup: _Setup) -> tuple[Judgement | None, str]:
    """What the whole model says, written to the log; and what went wrong: ten minutes of records outlive it."""
    try:
        judged = subject.judge(session, setup.seed, lambda text: setup.tell({"event": "end", "step": text}))
        for verdict in judged.verdicts if judged else ():
            book.verdict(verdict)
    except TvmExtError as error:
        return None, f"the tuned model cannot be timed: {error}"
    if judged and judged.checked and not judged.checked.ok:
        return judged, f"the tuned model disagrees with onnxruntime, so no record is kept:\n{judged.checked}"
    return judged, ""


def _by_metaschedule(
    model: Any, options: CompileOptions, setup: _Setup, log: Any, wanted: Sequence[str], resume: bool, dry_run: bool
) -> TuneReport:
    if _is_template(model) or options.symbol is not None:
        raise OptionError("tuner='metaschedule' takes a model of static shapes", fix="bind all of its shapes")
    name = Path(read_model(model).name).stem
    folder = Path(log) if log is not None else Path(f"{name}.metaschedule")
    if resume and not folder.exists():
        raise OptionError(f"--resume: there is no folder {str(folder)!r}", fix="leave it out to begin a new one")
    run = MetaScheduleRun(model, name, options, setup.machine, folder, wanted)
    if dry_run:
        return run.plan()
    return run.tune(setup.budget, setup.seed, setup.measuring, setup.tell, setup.elsewhere)


def _is_template(model: Any) -> bool:
    return hasattr(model, "describe") and hasattr(model, "space")


class _Tuned:
    """What is tuned: a model or a template."""

    name: str
    tasks: list[tuple[Task, int]]

    def before(self, session: Session, measurer: Measurer) -> None:
        """Measure what the session's results are compared with, if that is no candidate."""

    def judge(self, session: Session, seed: int, tell: Callable[[str], None]) -> Judgement | None:
        """Compare the whole model with and without the best records; None if there is no whole model."""
        return None

    def report(
        self, name: str, log: str, session: Session | None = None, judged: Judgement | None = None, stopped: str = "",
        seconds: float = 0.0, notes: Sequence[str] = (), failed: str = "",
    ) -> TuneReport:  # fmt: skip
        """The report of a finished session, or of none."""
        keys: dict[TaskKey, list[tuple[Task, int]]] = {}
        for task, calls in self.tasks:
            keys.setdefault(task.key, []).append((task, calls))
        rows = [_row(group, session, judged) for group in keys.values()]
        rows.sort(key=lambda row: -row.calls * row.before if math.isfinite(row.before) else 0.0)
        checked = judged.checked if judged else None
        if judged and judged.verdicts and not judged.kept and not failed:
            notes = [*notes, f"nothing is kept: {judged.reason}"]
        return TuneReport(
            self.name, name, log, tuple(rows), seconds, stopped, judged.ratio if judged else None,
            checked.of_range if checked else None, tuple(notes), failed,
        )  # fmt: skip


class _Model(_Tuned):
    """A model: its tasks, and what it says at the end."""

    def __init__(self, model: Any, options: CompileOptions, machine: Machine, wanted: Sequence[str]) -> None:
        self._model, self._options, self._machine = model, options, machine
        self.name = Path(read_model(model).name).stem
        workloads = workloads_of(model, options, machine)
        self._workloads = [w for w in workloads if _wanted(w, wanted)]
        if not self._workloads:
            names = sorted(w.key.short for w in workloads)
            wrong = (
                f"tasks={list(wanted)}: no task of {self.name} has such a name" if names else "nothing to tune in it"
            )
            raise OptionError(f"{self.name}: {wrong}", fix=f"tasks: {'; '.join(names)}" if names else "")
        self.tasks = [(task, len(w.calls)) for w in self._workloads for task in w.tasks]

    def judge(self, session: Session, seed: int, tell: Callable[[str], None]) -> Judgement | None:
        best = {key: state.record for key, state in session.best().items() if state.record is not None}
        return judge(
            self._model, self._options, self._machine, self._workloads, best, session.name, seed=seed, tell=tell
        )


class _Template(_Tuned):
    """One template with its arguments."""

    def __init__(self, task: Task) -> None:
        self.name = task.recipe
        self.tasks = [(task, 1)]

    def before(self, session: Session, measurer: Measurer) -> None:
        (untuned,) = measurer.measure(_Unscheduled(self.tasks[0][0]), [{}])
        session.states[0].default_cost = untuned.cost if untuned.costs else math.nan


class _Unscheduled:
    """A template's function as it is, as the only candidate of a task."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def candidate(self, config: Config) -> dict[str, Any]:
        return {"module": self._task.describe()["reference"]}


def _wanted(work: Workload, names: Sequence[str]) -> bool:
    texts = [work.key.short, *(task.recipe for task in work.tasks), *(node for site in work.calls for node in site)]
    return not names or any(name in text for name in names for text in texts)


def _row(group: Sequence[tuple[Task, int]], session: Session | None, judged: Judgement | None) -> TaskRow:
    first, calls = group[0]
    space = sum(len(task.space) for task, _ in group)
    name = first.key.short
    if session is None:
        return TaskRow(name, calls, space, recipe=", ".join(task.recipe for task, _ in group), flops=first.flops)
    states = [s for s in session.states if s.task.key == first.key]
    best = session.best()[first.key]
    return TaskRow(
        name, calls, space, sum(s.trials for s in states), sum(s.failed for s in states), sum(s.wrong for s in states),
        session.untuned(first.key).default_cost, best.cost, judged.in_model.get(first.key) if judged else None,
        best.task.recipe, dict(best.config or {}), bool(judged and first.key in judged.kept), first.flops,
        tuple(best.curve), sum(s.known for s in states), states[0].unusable,
    )  # fmt: skip


def _peak(machine: Machine, on_event: Callable[[Event], None]) -> float:
    """Measured multiply-adds of all threads, in FLOP/s."""
    call, operations = call_of_fma(machine, 400_000)
    peak = operations / round_minimum(call, 0.2)
    on_event({"event": "peak", "flops": peak})
    return peak


def _estimate(subject: _Tuned, budget: Budget) -> tuple[str, ...]:
    """What a session would take, in words."""
    points = sum(len(task.space) for task, _ in subject.tasks)
    rate = 5.0  # trials a second, of the slowest machine this was measured on
    trials = min(points, budget.trials or points)
    seconds = min(trials / rate, 60 * budget.minutes if budget.minutes is not None else math.inf)
    return (
        f"{len(subject.tasks)} spaces of {points:,} configurations; at most {trials:,} trials, about "
        f"{seconds / 60:.0f} min (at 5 trials a second), and half a minute for the whole model at the end; nothing was "
        "measured",
    )
