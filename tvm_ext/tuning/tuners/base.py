"""What a tuner is: it proposes configurations and is told what they took. And what every other one has to beat:
every legal point in the order of the space, and legal points by chance.
"""

import abc
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from ...core.errors import OptionError
from ...core.recipe import Config
from ..task import Task

WarmRecord = tuple[Sequence[float] | np.ndarray, float, int]
"""Features of a configuration of another task (as :func:`.rank_model.feature_rows` gives them, or without the
estimate), its seconds (infinite: failed), and a number of that task."""


class Tuner(abc.ABC):
    """A search through the space of a task. Equal seeds and equal results give equal proposals.

    Args:
        task: its `space`, `default`, `prior` and `features` are read, nothing else.
        seed: of all that is random.

    Attributes:
        name: by which users choose it.
        results: index of a configuration in the space -> seconds, infinite if it failed.
        seen: indices of all that were proposed or reported.
    """

    name: ClassVar[str]

    def __init__(self, task: Task, seed: int = 0) -> None:
        self.task, self.space = task, task.space
        self.rng = np.random.default_rng(seed)
        self.results: dict[int, float] = {}
        self.seen: set[int] = set()

    def propose(self, count: int) -> list[Config]:
        """Configurations to measure next: legal ones, none of them proposed or reported before.

        Args:
            count: at most so many. There may be fewer, if the search wants to see results first.

        Returns:
            An empty list only when the space is used up (of a space too large to list: when sampling finds no more).

        Raises:
            OptionError: a count below one.
        """
        if count < 1:
            raise OptionError(f"propose({count}): a count of 1 or more is needed")
        chosen = self._fresh(self._choose(count), count) or self._fresh(self.sample(count), count)
        self.seen.update(chosen)
        return list(chosen.values())

    def update(self, results: Sequence[tuple[Config, float]]) -> None:
        """Tell what configurations took, of this session or (before the first proposal) of an earlier one.

        Args:
            results: configurations with seconds; infinity or nan for one that failed. Of one that is reported twice,
                the better figure counts.
        """
        for config, seconds in results:
            index = self.space.index(config)
            value = float(seconds) if 0 < seconds < math.inf else math.inf
            self.results[index] = min(value, self.results.get(index, math.inf))
            self.seen.add(index)

    def warm(self, records: Sequence[WarmRecord]) -> None:  # noqa: B027  (nothing to learn is no error)
        """Learn from other tasks of the same recipe; a tuner without a model learns nothing."""

    @property
    def best(self) -> tuple[Config, float] | None:
        """The fastest configuration and its seconds; None as long as none succeeded."""
        leaders = self.leaders(1)
        return (self.space.at(leaders[0]), self.results[leaders[0]]) if leaders else None

    def leaders(self, count: int) -> list[int]:
        """Indices of the fastest configurations, fastest first."""
        good = [(seconds, index) for index, seconds in self.results.items() if seconds < math.inf]
        return [index for _, index in sorted(good)[:count]]

    def sample(self, count: int) -> list[Config]:
        """Random configurations, legal and never seen; fewer than `count` only where no more are found."""
        return self.space.sample(self.rng, count, exclude=self.seen) if count > 0 else []

    def _fresh(self, configs: Iterable[Config], count: int) -> dict[int, Config]:
        """The first `count` legal ones that were never seen, each once, by index."""
        chosen: dict[int, Config] = {}
        for config in configs:
            index = self.space.index(config)
            if index not in self.seen and index not in chosen and self.space.legal(config):
                chosen[index] = config
                if len(chosen) == count:
                    break
        return chosen

    @abc.abstractmethod
    def _choose(self, count: int) -> Iterable[Config]:
        """Configurations in the order they are wanted. Of those that are illegal or were seen, the caller takes none;
        if none is left, it takes random ones."""


class GridTuner(Tuner):
    """Points in the order of their index; for small spaces."""

    name = "grid"

    def __init__(self, task: Task, seed: int = 0) -> None:
        super().__init__(task, seed)
        self._points = map(self.space.at, range(self.space.points))

    def _choose(self, count: int) -> Iterator[Config]:
        return self._points


class RandomTuner(Tuner):
    """Points drawn uniformly from the legal ones, each once."""

    name = "random"

    def _choose(self, count: int) -> Iterable[Config]:
        return self.sample(count)
