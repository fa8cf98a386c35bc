"""Candidates of one group for a choice by measuring, what they took so far, and which of them is the fastest.

records of other machines, the best by estimate of each recipe, then of each tile size, ...   -> the queue
all measured                                       -> what differs from the fastest in one knob
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..core.errors import OptionError
from ..core.machine import Machine
from ..core.recipe import Config, config_text
from ..core.records.record import Record
from ..core.records.record_book import RecordBook, why_not
from ..core.records.task_key import TaskKey
from .extract import Workload
from .in_model import quantile_interval
from .measure.timing import lower_quartile
from .task import RecipeTask

#: Candidates by estimate, and of records; neighbours at once, and candidates in all.
FEW, RECORDS, NEIGHBOURS, MOST = 8, 3, 5, 24
#: An estimate so many times the least is no candidate.
WORTH = 1.6
#: Another configuration has to be so much faster, beyond the noise, to be taken.
FASTER = 0.985


@dataclass
class Candidates:
    """One kind of group: candidates are configurations of a :class:`.task.GroupTask`.

    Attributes:
        work: the group, its calls and recipes.
        default: what a compile by estimate takes; best: the fastest so far, at first the default.
        queue: candidates that were not measured, in order.
        known: candidate as text -> its best record.
        without_progress: batches without progress.
        checked: whether the default was measured a second time, beside what was found to be faster.
        reason: why nothing of it can be measured; "" if it can.
        inside: seconds in a call of the model, of the fastest and of the default; none if not timed there.
        confirmed: what they say of the fastest.
    """

    work: Workload
    default: Config
    best: Config
    queue: list[Config] = field(default_factory=list)
    known: dict[str, Record] = field(default_factory=dict)
    without_progress: int = 0
    checked: bool = False
    reason: str = ""
    inside: tuple[float, ...] = ()
    confirmed: str = ""

    @classmethod
    def of(cls, work: Workload, machine: Machine, timings: RecordBook, records: RecordBook) -> Candidates:
        """Those of a group, with what the timing cache knows of them.

        Args:
            records: of any machine.
        """
        default = candidate(work.plan.recipe.name, work.plan.config)
        candidates = cls(work, default, default)
        for record in timings.of(work.key):
            if not why_not(record, machine, candidates._versions):
                candidates.take(record)
        verdict = timings.verdict(work.key, machine)
        if verdict is not None and verdict.recipe is not None and verdict.config is not None:
            named = candidate(verdict.recipe, verdict.config)
            candidates.best = named if config_text(named) in candidates.known else default
        recorded = candidates._recorded(records.candidates(work.key, machine, candidates._versions))
        candidates.add([*recorded, *candidates._estimated()])
        return candidates

    @property
    def _tasks(self) -> dict[str, RecipeTask]:
        return {task.recipe: task for task in self.work.tasks}

    @property
    def _versions(self) -> dict[str, int]:
        return {task.recipe: task.version for task in self.work.tasks}

    def _estimated(self) -> list[Config]:
        """The best of each recipe, then the least estimates of all."""
        leading = {task.recipe: (task, task.leading()) for task in self.work.tasks}
        first = [candidate(name, points[0]) for name, (_, points) in leading.items() if points]
        priced = sorted(
            (task.prior(config), config_text(candidate(name, config)))
            for name, (task, points) in leading.items() for config in points[1:]
        )  # fmt: skip
        rest = [json.loads(text) for cost, text in priced if cost <= WORTH * self.work.plan.cost]
        return [*first, *rest][:FEW]

    def _recorded(self, records: Iterable[Record]) -> list[Config]:
        named = {config_text(config): config for r in records if self._legal(config := candidate(r.recipe, r.config))}
        return list(named.values())[:RECORDS]

    def _legal(self, config: Config) -> bool:
        task = self._tasks.get(config["recipe"])
        try:
            return task is not None and task.space.index(config["config"]) >= 0 and task.space.legal(config["config"])
        except OptionError:
            return False

    def add(self, candidates: Iterable[Config]) -> None:
        """Queue those that are neither queued nor known."""
        old = {*self.known, *map(config_text, [self.default, *self.queue])}
        self.queue += {config_text(config): config for config in candidates if config_text(config) not in old}.values()

    def adopt(self, config: Config) -> None:
        """Measure this one first: it is the fastest of a group like this."""
        if self._legal(config) and config_text(config) not in {*self.known, config_text(self.default)}:
            self.queue = [config, *(other for other in self.queue if other != config)]

    def next(self, count: int) -> list[Config]:
        """What is measured now: the best so far, once more the default that it was faster than, and some of the queue,
        which they leave."""
        again = [] if self.checked or self.best == self.default else [self.default]
        batch, self.queue = self.queue[:count], self.queue[count:]
        self.checked = self.checked or bool(again)
        return [self.best, *again, *batch]

    def take(self, record: Record) -> None:
        """Remember what a candidate took."""
        text = config_text(candidate(record.recipe, record.config))
        if text not in self.known or seconds_of(record) < seconds_of(self.known[text]):
            self.known[text] = record

    def judge(self, records: Sequence[Record]) -> None:
        """Take the fastest of a batch, if it is faster than the best so far, which is among them, beyond the noise."""
        holder = next((r for r in records if candidate(r.recipe, r.config) == self.best), None)
        fastest = min((r for r in records if r.usable), key=lambda r: (seconds_of(r), r.to_row()), default=None)
        self.without_progress += 1
        if fastest is not None and fastest is not holder and is_faster(fastest.costs, holder.costs if holder else ()):
            self.best, self.without_progress = candidate(fastest.recipe, fastest.config), 0
        best, default = self.seconds(self.best), self.seconds(self.default)
        if best is not None and default is not None and best > FASTER * default:  # it was disturbed the first time
            self.best = self.default
        if not self.queue and len(self.known) < MOST:
            self._widen()

    def _widen(self) -> None:
        """What differs from the best in one knob comes next, the least estimates first."""
        task, config = self._tasks[self.best["recipe"]], self.best["config"]
        near = [other for other in task.neighbours(config) if task.prior(other) <= WORTH * task.prior(config)]
        fresh = [other for other in (candidate(task.recipe, c) for c in near) if config_text(other) not in self.known]
        self.add(fresh[:NEIGHBOURS])

    def confirm(self, inside: tuple[float, ...], why: str) -> None:
        """Keep the fastest unless it is no faster inside the model: then the default is the best.

        Args:
            inside: seconds of it in a call of the model, and of the default; none if it was not timed there.
            why: it was not.
        """
        self.inside, self.confirmed = inside, "measured to be faster, inside the model too"
        if not inside:
            self.confirmed = f"measured to be faster alone; not timed inside the model: {why}"
        elif inside[0] >= inside[1]:
            self.best, self.confirmed = self.default, "a candidate is faster alone, and no faster inside the model"

    @property
    def left(self) -> bool:
        """Whether there is something to measure that can be."""
        return bool(self.queue) and not self.reason

    @property
    def expected_gain(self) -> float:
        """Seconds of a run of the model that are at stake, less with each batch that found nothing."""
        seconds = self.seconds(self.best)
        saved = len(self.work.calls) * (seconds or self.work.plan.cost)
        return saved * 0.5**self.without_progress if self.left else 0.0

    def seconds(self, config: Config) -> float | None:
        """What a candidate was measured to take; None if it has no time."""
        record = self.known.get(config_text(config))
        return seconds_of(record) if record is not None and record.usable else None

    def facts(self) -> dict[str, float]:
        """Figures for the report: candidates and how many of them have a time, seconds of the best and the default, and
        those of the fastest and the default in a call of the model."""
        times = {"seconds": self.seconds(self.best), "default_seconds": self.seconds(self.default)}
        times |= dict(zip(("model_seconds", "default_model_seconds"), self.inside, strict=False))
        every = {*self.known, *map(config_text, [self.default, *self.queue])}
        measured = sum(record.usable for record in self.known.values())
        return {"measured": measured, "candidates": len(every), **{k: v for k, v in times.items() if v is not None}}

    @property
    def kernel(self) -> TaskKey:
        """The anchor with the operands it reads first: groups that differ in what is behind it want alike tiles."""
        args = self.work.key.args
        return TaskKey.of(self.work.key.op, [*args[:2], *(a for a in args if a[0] == self.work.key.op)])


def candidate(recipe: str, config: Config) -> Config:
    """A configuration of a :class:`.task.GroupTask`."""
    return {"recipe": recipe, "config": dict(config)}


def seconds_of(record: Record) -> float:
    """What a kernel takes undisturbed: the lower quartile of its repeats; infinite if it has no time."""
    return lower_quartile(record.costs) if record.usable else float("inf")


def is_faster(costs: Sequence[float], than: Sequence[float]) -> bool:
    """Whether a sample of seconds is smaller beyond the noise: intervals of the lower quartiles do not touch.

    A kernel that is disturbed takes twice as long: of two quartiles neither one sees it, unless it is so in most calls.

    Args:
        than: of the other; empty if it has no time.
    """
    if not than or not costs:
        return bool(costs)
    (_, high), (low, _) = _interval(costs), _interval(than)
    return high < low and lower_quartile(costs) < FASTER * lower_quartile(than)


def _interval(costs: Sequence[float]) -> tuple[float, float]:
    low, high = quantile_interval(len(costs), 0.25)
    return sorted(costs)[low], sorted(costs)[high]
