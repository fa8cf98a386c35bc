"""The tuner of choice: a learnt cost model ranks the points that simulated annealing visits; the best are measured.

The annealing runs many chains at a time: each step mutates every chain and scores them together. S. Kirkpatrick,
C. Gelatt, M. Vecchi, "Optimization by Simulated Annealing", Science 220, 1983.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...core.errors import OptionError
from ...core.recipe import Config
from ..task import Task
from ..templates.space import ConfigSpace
from .base import Tuner, WarmRecord
from .rank_model import RankModel, Rows

Score = Callable[[Sequence[int]], np.ndarray]
"""Indices of points -> their scores, higher is better."""

#: Steps without a better chain after which it ends.
_PATIENCE = 8


def anneal(
    space: ConfigSpace, score: Score, starts: Sequence[int], rng: np.random.Generator, steps: int = 24
) -> dict[int, float]:
    """Walk from each start towards higher scores.

    Args:
        space: whose points are mutated.
        score: of many points; called once a step.
        starts: legal points; each is a chain.
        steps: at most so many; the temperature falls to zero over them, from the spread of the starts' scores.

    Returns:
        Every point that was visited, with its score.
    """
    chains, current = [space.at(index) for index in starts], score(starts)
    visited = dict(zip(starts, current.tolist(), strict=True))
    spread, best, idle = float(current.std()) or 1.0, float(current.max()), 0
    for step in range(steps):
        moved = [space.mutate(config, rng) for config in chains]
        indices = [space.index(config) for config in moved]
        scores = score(indices)
        visited.update(zip(indices, scores.tolist(), strict=True))
        temperature = 0.5 * spread * (1 - step / steps)
        accepted = scores - current > temperature * np.log(rng.random(len(chains)))
        chains = [new if yes else old for new, old, yes in zip(moved, chains, accepted.tolist(), strict=True)]
        current = np.where(accepted, scores, current)
        idle = 0 if float(scores.max()) > best else idle + 1
        best = max(best, float(scores.max()))
        if idle == _PATIENCE:
            break
    return visited


#: Points the model learns from at most: training stays below 50 ms.
_HISTORY = 400
#: Chains of the annealing, and those of them that begin at the fastest points.
_CHAINS, _LEADERS = 48, 16
#: Results of this task below which its own points are chosen without the model, unless other tasks taught it.
_ENOUGH = 8
#: Points that are proposed at once at least, and then one more for each so many results: while little is known, each
#: result teaches much, and a large batch would be chosen without it.
_BATCH, _GROWTH = 8, 4
#: Weight of other tasks' pairs.
_FOREIGN = 0.3


class XGBTuner(Tuner):
    """XGBoost ranks, simulated annealing proposes, some points are left to chance.

    The first batch is the default, points of a low analytic estimate where the task has one, and random points. After
    each batch the model learns anew.

    Args:
        epsilon: part of a batch that is random: what the model never saw it cannot rank.

    Raises:
        ToolError: xgboost is not installed.
    """

    name = "xgb"

    def __init__(self, task: Task, seed: int = 0, *, epsilon: float = 0.1) -> None:
        super().__init__(task, seed)
        if not 0 <= epsilon <= 1:
            raise OptionError(f"epsilon={epsilon}: a part from 0 to 1 is needed")
        self.epsilon = epsilon
        self._model, self._rows = RankModel(), Rows(task)
        self._foreign: list[WarmRecord] = []
        self._learnt = -1  # results and foreign records that the model knows

    def warm(self, records: Sequence[WarmRecord]) -> None:
        """Learn from other tasks of the same recipe before this one has results.

        Raises:
            OptionError: features of another length than this task's.
        """
        width = self._width
        for features, seconds, group in records:
            if len(features) not in (width - 1, width):
                raise OptionError(
                    f"a record of group {group} has {len(features)} features; this task has {width - 1}, "
                    f"and {width} with the estimate",
                    fix="warm up with records of the same recipe and version only",
                )
            self._foreign.append((features, seconds, group))

    @functools.cached_property
    def _width(self) -> int:
        """Columns of a row."""
        start = self.task.default if self.task.default is not None else next(iter(self.sample(1)), self.space.at(0))
        return self._rows.of([self.space.index(start)]).shape[1]

    def _choose(self, count: int) -> Iterator[Config]:
        count = min(count, max(_BATCH, len(self.results) // _GROWTH))
        yield from itertools.islice(self._candidates(count), count)

    def _candidates(self, count: int) -> Iterator[Config]:
        """The default; what the model (or, at first, the estimate) ranks highest; random points."""
        if self.task.default is not None and self.space.index(self.task.default) not in self.seen:
            yield self.task.default
        lucky = round(self.epsilon * count)
        yield from self._ranked(count - lucky) if self._ready() else self._estimated(count // 2)
        yield from self.sample(count)

    def _ready(self) -> bool:
        """Whether there is anything to learn from."""
        return bool(self._foreign) or (len(self.results) >= _ENOUGH and bool(self.leaders(1)))

    def _ranked(self, count: int) -> list[Config]:
        """Unseen points of the highest scores that annealing finds."""
        self._learn()
        leaders = self.leaders(_LEADERS)
        return self._anneal(lambda indices: self._model.predict(self._rows.of(indices)), leaders, count)

    def _estimated(self, count: int) -> list[Config]:
        """Unseen points of the least analytic estimates, if there is one."""

        def score(indices: Sequence[int]) -> np.ndarray:
            return -np.nan_to_num(self._rows.of(indices)[:, -1].astype(float))

        starts = [self.space.index(config) for config in self.sample(_CHAINS)]
        if not starts or np.isnan(self._rows.of(starts)[:, -1]).any():
            return []
        return self._anneal(score, starts, count)

    def _anneal(self, score: Score, leaders: Sequence[int], count: int) -> list[Config]:
        starts = [*leaders, *(self.space.index(config) for config in self.sample(_CHAINS - len(leaders)))]
        visited = anneal(self.space, score, starts, self.rng) if starts else {}
        fresh = sorted((-value, index) for index, value in visited.items() if index not in self.seen)
        return [self.space.at(index) for _, index in fresh[:count]]

    def _learn(self) -> None:
        """Fit the model anew if there is anything new: to this task's results (group 0) and, with less weight, to
        other tasks'."""
        known = len(self.results) + len(self._foreign)
        if known == self._learnt:
            return
        self._learnt = known
        own = self._own()
        foreign = self._others(_HISTORY - len(own))
        numbers = {group: 1 + i for i, group in enumerate(dict.fromkeys(group for _, _, group in foreign))}
        rows = np.full((len(own) + len(foreign), self._width), math.nan, dtype=np.float32)
        if own:
            rows[: len(own)] = self._rows.of(own)
        for row, (features, _, _) in zip(rows[len(own) :], foreign, strict=True):
            row[: len(features)] = features
        seconds = [*(self.results[index] for index in own), *(cost for _, cost, _ in foreign)]
        groups = [*(0 for _ in own), *(numbers[group] for _, _, group in foreign)]
        self._model.fit(rows, seconds, groups, [1.0, *(_FOREIGN for _ in numbers)])

    def _own(self) -> list[int]:
        """Of many results the fastest half and the newest: the model has to be right about what is fast."""
        if len(self.results) <= _HISTORY:
            return list(self.results)
        fast = dict.fromkeys(self.leaders(_HISTORY // 2))
        newest = [index for index in reversed(self.results) if index not in fast]
        return [*fast, *newest[: _HISTORY - len(fast)]]

    def _others(self, count: int) -> list[WarmRecord]:
        """As many of the other tasks' records, evenly spread."""
        if len(self._foreign) <= count:
            return self._foreign
        return [self._foreign[i * len(self._foreign) // count] for i in range(count)]
