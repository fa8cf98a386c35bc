"""Choice on the machine: the best few configurations of each group, timed, and the fastest kept in the timing cache.

groups of a model, with candidates of each
-> a few at a time beside the fastest so far, of the group that has the most to gain
-> records and verdicts in the timing cache, which `choose-recipes` follows
-> the program beside that of the estimate: a kernel that is no faster inside the model is the default again
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import InputError, OptionError, RunError, ToolError
from ..core.machine import Machine, machine_for
from ..core.options import CompileOptions
from ..core.recipe import Config
from ..core.records.record import Record
from ..core.records.record_book import Verdict, machine_fields
from ..core.records.task_key import TaskKey
from ..core.sample_inputs import seeded_inputs
from ..driver.cache import CacheWarning
from ..driver.compile import compile_model
from ..driver.records import book_of, timing_log, timings_of
from ..driver.stages.state import options_state
from ..frontend.reading.reader import fingerprint
from ..runtime.cpu import why_not_here
from ..runtime.model import CompiledModel
from ..schedules import recipes
from ..verification.sizes import sizes_of
from .candidates import Candidates
from .extract import workloads_of
from .log import TuningLog, locked
from .measure import LocalMeasurer, MeasureError, Measurement, Measurer, TaskError, measuring
from .session import session_name
from .task import GroupTask
from .verdict import seconds_inside

#: Candidates that are measured at once, beside the fastest so far.
BATCH = 5
#: How often candidates close to the fastest are timed, in turn.
ROUNDS = 3

Tell = Callable[[str], None]
"""Told what is going on."""


def measure_choices(
    model: Any, options: CompileOptions | None = None, measurer: Measurer | None = None,
    tell: Tell = lambda text: None, **fields: Any,
) -> None:  # fmt: skip
    """Measure what `choose="measure"` asks for, as far as the timing cache lacks it; a compile then follows the cache.

    Args:
        model: path, bytes or ModelProto.
        options: of the compile, as one object; or give them by keyword.
        measurer: builds, checks and times candidates; None for workers on this machine.
        tell: told what is going on.

    Raises:
        OptionError: kernels for this target cannot run here.
        ModelError, UnsupportedError: as in a compile.
    """
    options = options or CompileOptions.of(**fields)
    machine = machine_for(options)
    if why := why_not_here(machine.as_dict()):
        raise OptionError(f"choose='measure': nothing can be measured here: {why}", fix="choose='estimate'")
    digest = _digest(model, options)
    if _is_known(digest, options, machine):
        return
    path = timing_log(machine)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        tell("waiting for another process that measures")  # two at once would time each other
        with locked(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT):
            if not _is_known(digest, options, machine):
                _measured(model, options, machine, digest, measurer, tell)
    except (OSError, ToolError) as error:
        warnings.warn(f"the timing cache cannot be used, so estimates decide: {error}", CacheWarning, stacklevel=3)


def _digest(model: Any, options: CompileOptions) -> str:
    """What is measured: the model, what decides its groups, the recipes, and the records that are candidates."""
    rest = {name: value for name, value in options_state(options).items() if name not in ("cache", "seconds")}
    versions = {recipe.name: recipe.version for recipe in recipes()}
    parts = [fingerprint(model)[0], rest, versions, book_of(options).fingerprint]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _is_known(digest: str, options: CompileOptions, machine: Machine) -> bool:
    """Whether it was measured already: for as long at least, or until nothing was left to measure."""
    notes = (c for c in timings_of(options, machine).comments if (c.get("kind"), c.get("of")) == ("choice", digest))
    return any(note.get("complete") is True or note.get("seconds", 0.0) >= (options.seconds or 0.0) for note in notes)


def _measured(
    model: Any, options: CompileOptions, machine: Machine, digest: str, measurer: Measurer | None, tell: Tell
) -> None:
    """A session: its records, its verdicts, and that it is done, in the timing cache.

    The program of the estimate compiles first, in the seconds; candidates have half of them at least.
    """
    seconds = options.seconds or 0.0
    deadline = time.monotonic() + seconds
    timeout = min(10.0, max(2.0, seconds / 4))
    books = timings_of(options, machine), book_of(options)
    groups = [Candidates.of(work, machine, *books) for work in workloads_of(model, options, machine)]
    untuned = None
    if measurer is None:  # times of another measurer may be another machine's
        tell("compiling by estimate, to compare with")
        untuned = compile_model(model, replace(options, choose="estimate", seconds=None))
    deadline = max(deadline, time.monotonic() + seconds / 2)
    with measuring(measurer, lambda: LocalMeasurer(machine, None, timeout, timeout, rounds=ROUNDS)) as pool:
        log, name = TuningLog(timing_log(machine)), session_name()
        log.begin(name, machine, {"choose": seconds})
        choice = Choice(groups, machine, pool, log, name, tell)
        done = choice.run(deadline, seconds)
    if untuned is not None and choice.changed:
        tell("comparing kernels inside the model")
        try:
            inside, why = _inside(model, options, untuned, groups), ""
        except (InputError, RunError) as error:  # no inputs can be drawn for it
            inside, why = {}, error.message
        choice.confirm(inside, why, seconds)
    if done:
        complete = not any(group.left for group in groups)
        log.comment({"kind": "choice", "of": digest, "seconds": seconds, "complete": complete, "session": name})


def _inside(
    model: Any, options: CompileOptions, untuned: CompiledModel, groups: Sequence[Candidates]
) -> Mapping[TaskKey, tuple[float, float]]:
    """Of each kind of group: seconds in a call of the program that follows the verdicts, and of the untuned one."""
    inputs = seeded_inputs(untuned.inputs, sizes=sizes_of(untuned))
    return seconds_inside(compile_model(model, options), untuned, [group.work for group in groups], inputs)


class Choice:
    """Measures candidates of groups, and decides.

    Args:
        groups: with their candidates.
        log: takes each record as soon as it is there.
        name: of the session.
    """

    def __init__(
        self, groups: Sequence[Candidates], machine: Machine, measurer: Any, log: TuningLog, name: str, tell: Tell
    ) -> None:
        self._groups, self._measurer, self._log, self._name, self._tell = groups, measurer, log, name, tell
        self._fields = machine_fields(machine)
        self._siblings: dict[TaskKey, Config] = {}

    def run(self, deadline: float, seconds: float) -> bool:
        """Measure until the time is over or nothing is left, and write the verdicts; False if workers do not start.

        Args:
            deadline: of the monotonic clock.
            seconds: how long that is in all.
        """
        try:
            self._until(deadline)
        except MeasureError as error:
            for group in self._groups:
                group.reason = group.reason or error.message
            return False
        finally:
            for group in self._groups:
                self._log.verdict(self._verdict(group, seconds))
        return True

    @property
    def changed(self) -> list[Candidates]:
        """Those whose fastest is not the default."""
        return [group for group in self._groups if group.best != group.default]

    def confirm(self, inside: Mapping[TaskKey, tuple[float, float]], why: str, seconds: float) -> None:
        """Return to the default, and say so, where the fastest is no faster inside the model.

        Args:
            inside: seconds in a call of the program with the fastest, and of that of the estimate.
            why: there are none.
            seconds: of the choice in all.
        """
        for group in self.changed:
            group.confirm(inside.get(group.work.key, ()), why or "its calls are part of others there")
            self._log.verdict(self._verdict(group, seconds))

    def _until(self, deadline: float) -> None:
        taken = 0.0
        while (now := time.monotonic()) + taken / 2 < deadline:
            group = max(self._groups, key=lambda candidates: candidates.expected_gain, default=None)
            if group is None or not group.left:
                return
            self._tell(f"measuring {group.work.key.short}, {deadline - now:.0f} s left")
            self._step(group)
            taken = time.monotonic() - now

    def _step(self, group: Candidates) -> None:
        """Measure the fastest so far and a few candidates beside it."""
        if group.kernel in self._siblings:
            group.adopt(self._siblings[group.kernel])
        try:
            measurements = self._measurer.measure(GroupTask(group.work.tasks), group.next(BATCH))
            records = [self._record(group, measurement) for measurement in measurements]
        except TaskError as error:
            group.reason = error.message
            return
        group.judge(records)
        self._siblings[group.kernel] = group.best

    def _record(self, group: Candidates, measurement: Measurement) -> Record:
        recipe, config = measurement.config["recipe"], measurement.config["config"]
        version = next(task.version for task in group.work.tasks if task.recipe == recipe)
        record = measurement.record(group.work.key, recipe, version, config, self._fields, self._name)
        self._log.append(record)
        group.take(record)
        return record

    def _verdict(self, group: Candidates, seconds: float) -> Verdict:
        key, best, facts = group.work.key, group.best, group.facts()
        stamp: dict[str, Any] = {
            "machine": self._fields, "session": self._name, "timestamp": time.time(), "facts": facts
        }  # fmt: skip
        if "seconds" in facts:
            reason = group.confirmed or (
                "no candidate is faster beyond the noise"
                if best == group.default
                else "measured to be faster than the default"
            )
            return Verdict(key, best["recipe"], best["config"], reason=reason, **stamp)
        failed = [f"{r.error}: {r.detail[:100]}" for r in group.known.values() if r.error]
        reason = group.reason or (
            f"no candidate has a time ({failed[0]})" if failed else f"no time left of {seconds:g} s"
        )
        return Verdict(key, None, None, reason=reason, **stamp)
