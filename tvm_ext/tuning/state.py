"""What a session knows of each task, and which one is to be measured next: the budget goes where it pays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.recipe import Config, config_text
from ..core.records.record import Record
from .task import Task
from .tuners import Tuner

#: A candidate has to be so much faster to count as progress.
_PROGRESS = 0.99
#: Trials without progress after which the gain expected of more is halved.
_HALVING = 24.0


@dataclass
class TaskState:
    """A task with its tuner and what was measured.

    Attributes:
        weight: calls of the kernel in the model.
        cost: seconds of the best candidate; infinite before the first.
        record: of the best candidate.
        default_cost: seconds of the default; nan before it was measured.
        trials: measured, failed ones and those of an earlier session included; failed, wrong, known: of these.
        without_progress: trials since the last progress.
        curve: (trials, best seconds) at each progress.
        transferred: whether the tuner was told of other tasks.
        used_up: the tuner has no further candidate.
        unusable: why nothing of it can be measured; "" if it can.
    """

    task: Task
    tuner: Tuner
    weight: int
    floor: float
    cost: float = math.inf
    record: Record | None = None
    default_cost: float = math.nan
    trials: int = 0
    failed: int = 0
    wrong: int = 0
    known: int = 0
    without_progress: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)
    transferred: bool = False
    used_up: bool = False
    unusable: str = ""

    def take(self, record: Record) -> bool:
        """Count one record; whether it is the new best."""
        self.trials += 1
        self.failed += bool(record.error)
        self.wrong += record.error == "wrong"
        if self.task.default is not None and config_text(record.config) == config_text(self.task.default):
            self.default_cost = record.cost
        better = record.usable and record.cost < self.cost
        progress = record.usable and record.cost < _PROGRESS * self.cost
        self.without_progress = 0 if progress else self.without_progress + 1
        if better:
            self.cost, self.record = record.cost, record
            self.curve.append((self.trials, record.cost))
        return better

    @property
    def config(self) -> Config | None:
        """Of the best candidate."""
        return self.record.config if self.record else None

    @property
    def over(self) -> bool:
        """Whether there is nothing left to measure."""
        return self.used_up or bool(self.unusable)

    @property
    def expected_gain(self) -> float:
        """Seconds of a run of the model that further trials may save: what is above the floor of the machine, less
        with each trial that found nothing."""
        if self.over or math.isinf(self.cost):
            return 0.0 if self.over else math.inf
        above = max(0.05, 1 - self.floor / self.cost)
        return float(self.weight * self.cost * above * 0.5 ** (self.without_progress / _HALVING))


def next_state(states: Sequence[TaskState], rivals: dict[int, float], patience: int) -> TaskState | None:
    """The task to measure next; None if nothing is expected of any.

    Args:
        rivals: for each state (by position) the best seconds of any recipe for the same work: a recipe that lies far
            behind another gets what its own progress would be worth, which is what it may gain over the other.
        patience: trials without progress after which a task is done.
    """
    open_states = [(i, s) for i, s in enumerate(states) if not s.over and s.without_progress < patience]
    if not open_states:
        return None

    def worth(pair: tuple[int, TaskState]) -> float:
        index, state = pair
        if math.isinf(state.cost):
            return math.inf if not state.trials else 0.0
        behind = rivals[index] / state.cost
        return state.expected_gain * behind**4

    return max(open_states, key=worth)[1]
