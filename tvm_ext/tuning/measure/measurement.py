"""What is known of one candidate after it was measured."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from ...core.errors import TvmExtError
from ...core.recipe import Config

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
