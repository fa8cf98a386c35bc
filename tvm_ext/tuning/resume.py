"""Going on with a log: which of its records need no second trial, and why others do not count."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import OptionError
from ..core.machine import Machine
from ..core.recipe import config_text
from ..core.records.record import Record
from ..core.records.record_book import RecordBook, why_not
from ..core.records.task_key import TaskKey
from .task import Task


@dataclass(frozen=True)
class Known:
    """What a log knows of some tasks.

    Attributes:
        records: of this machine and the recipes as they are, one a candidate, the newest.
        refused: reason -> how many records of these tasks do not count for it.
    """

    records: Sequence[Record] = ()
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """The refused ones, for people."""
        return tuple(f"--resume: {n} records of these tasks do not count: {why}" for why, n in self.refused.items())


def known_of(path: Path, tasks: Sequence[Task], machine: Machine) -> Known:
    """Records of these tasks in a log.

    Raises:
        OptionError: there is no such log, or it cannot be read.
    """
    if not path.exists():
        raise OptionError(f"--resume: there is no log {str(path)!r}", fix="leave it out to begin a new one")
    versions = {task.recipe: task.version for task in tasks}
    by_name = {(task.key, task.recipe): task for task in tasks}
    keys = {task.key for task in tasks}
    records: dict[tuple[str, str, str, str], Record] = {}
    refused: Counter[str] = Counter()
    for record in RecordBook.read([path]).records:
        if record.task not in keys:
            continue
        if why := why_not(record, machine, versions) or _not_in_space(record, by_name):
            refused[why] += 1
        else:
            records[record.task.op, record.task.text, record.recipe, config_text(record.config)] = record
    return Known(tuple(records.values()), dict(refused))


def _not_in_space(record: Record, tasks: Mapping[tuple[TaskKey, str], Task]) -> str:
    task = tasks.get((record.task, record.recipe))
    if task is None:
        return f"recipe {record.recipe!r} is not tuned here"
    try:
        task.space.index(record.config)
    except OptionError:
        return f"its configuration is not in the space of {record.recipe} as it is now"
    return ""
