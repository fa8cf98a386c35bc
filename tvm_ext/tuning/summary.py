"""What a log says, task by task: how much was measured, what was fastest, and what a compile would do with it."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.machine import Machine
from ..core.records.record import Record
from ..core.records.record_book import Choice, RecordBook, Verdict
from ..core.records.task_key import TaskKey


@dataclass(frozen=True)
class TaskSummary:
    """The rows of one task.

    Attributes:
        records: in the order of the logs.
        verdict: the newest; None if there is none.
    """

    task: TaskKey
    records: tuple[Record, ...]
    verdict: Verdict | None

    @property
    def failed(self) -> int:
        """Rows of candidates that failed."""
        return sum(bool(record.error) for record in self.records)

    @property
    def best(self) -> Record | None:
        """The fastest usable record, of whatever machine."""
        return min((r for r in self.records if r.usable), key=lambda r: r.cost, default=None)

    @property
    def sessions(self) -> tuple[str, ...]:
        """Names of the sessions that measured it, first come first."""
        return tuple(dict.fromkeys(r.session for r in self.records if r.session))


def summaries(book: RecordBook, text: str = "") -> list[TaskSummary]:
    """All tasks of a log, in the order of their first row.

    Args:
        text: only tasks whose name for people, key or recipe contains it.
    """
    verdicts = {v.task: v for v in sorted(book.verdicts, key=lambda v: v.timestamp)}
    tasks = dict.fromkeys([*(r.task for r in book.records), *verdicts])
    every = (TaskSummary(task, tuple(book.of(task)), verdicts.get(task)) for task in tasks)
    return [summary for summary in every if any(text in where for where in _texts(summary))]


def choices(book: RecordBook, machine: Machine) -> list[tuple[TaskKey, Choice]]:
    """For each task the record that a compile for a machine would use, if it has all recipes to choose from."""
    from ..schedules import recipes

    versions = {recipe.name: recipe.version for recipe in recipes()}
    return [(summary.task, book.best(summary.task, machine, versions)) for summary in summaries(book)]


def _texts(summary: TaskSummary) -> Iterator[str]:
    yield from (summary.task.short, summary.task.op, summary.task.text)
    yield from (record.recipe for record in summary.records)
