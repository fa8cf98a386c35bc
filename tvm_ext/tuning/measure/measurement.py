"""What is known of one candidate after it was measured, and what measures it."""

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from ...core.errors import TvmExtError
from ...core.recipe import Config
from ...core.records.record import Record
from ...core.records.task_key import TaskKey

#: Answer of a worker that found no machine that runs its kernels; it is no error of the candidate.
NO_SERVER = "no server"
#: Answer of a worker that cannot make anything of the description of a task.
BAD_TASK = "task"


class MeasureError(TvmExtError, RuntimeError):
    """Nothing can be measured: workers do not start, or the unscheduled function does not run."""


class TaskError(MeasureError):
    """One task cannot be measured: its unscheduled function does not run. Others can."""


@dataclass(frozen=True)
class Measurement:
    """One candidate, measured.

    Attributes:
        config: knob -> value.
        costs: seconds, one a repeat; empty if it failed.
        error: "" or one of :data:`tvm_ext.core.records.record.ERRORS`; detail: its message.
        check: largest error of the output against the unscheduled function, as a part of its range; None: not known.
        discarded: run once and found to be a clear loser; `costs` has that one time.
        seconds: that building, checking and timing took.
    """

    config: Config
    costs: tuple[float, ...] = ()
    error: str = ""
    detail: str = ""
    check: float | None = None
    discarded: bool = False
    seconds: float = 0.0

    @property
    def cost(self) -> float:
        """Seconds: the median repeat; infinite if there is no time."""
        return statistics.median(self.costs) if self.costs else math.inf

    def record(
        self, task: TaskKey, recipe: str, version: int, config: Config, machine: Mapping[str, Any], session: str,
        **drawn: Any,
    ) -> Record:  # fmt: skip
        """The row of a log, written now.

        Args:
            task, recipe, version, config, machine, session: as in a :class:`tvm_ext.core.records.record.Record`.
            **drawn: `kinds` and `index` of a configuration that was drawn from a space.
        """
        outcome = (self.costs, self.error, self.detail, self.check, self.discarded)
        times = (round(time.time(), 6), round(self.seconds, 6))
        return Record(task, recipe, version, config, *outcome, machine, session, *times, **drawn)


class Measurer(Protocol):
    """Builds, checks and times candidates: on this machine, or on many."""

    def measure(self, task: Any, configs: Sequence[Config], best: float = ...) -> Iterable[Measurement]:
        """A :class:`Measurement` of each configuration, as they finish."""
        ...


@contextlib.contextmanager
def measuring(measurer: Measurer | None, make: Callable[[], AbstractContextManager[Measurer]]) -> Iterator[Measurer]:
    """The measurer of a caller, which stays open, or one of our own for as long as it is needed."""
    if measurer is not None:
        yield measurer
        return
    with make() as own:
        yield own
