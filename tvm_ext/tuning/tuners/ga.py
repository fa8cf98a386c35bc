"""A genetic algorithm: the fastest points are the parents of the next ones."""

from collections.abc import Iterator

import numpy as np

from ...core.errors import OptionError
from ...core.recipe import Config
from ..task import Task
from .base import Tuner

#: Children that are bred for each one that is asked for: many of them are known already.
_ATTEMPTS = 8


class GATuner(Tuner):
    """A steady-state genetic algorithm: every result may enter the population at once, so any batch size will do.

    Args:
        population: the fastest points so far that are parents; so many random ones begin.
        mutation: chance that a child is mutated after the crossover of its parents.

    AutoTVM's `GATuner` breeds whole generations; G. Syswerda, "A Study of Reproduction in Generational and
    Steady-State Genetic Algorithms", FOGA 1991, describes this form.
    """

    name = "ga"

    def __init__(self, task: Task, seed: int = 0, *, population: int = 16, mutation: float = 0.5) -> None:
        super().__init__(task, seed)
        if population < 2:
            raise OptionError(f"population={population}: 2 or more are needed")
        if not 0 <= mutation <= 1:
            raise OptionError(f"mutation={mutation}: a chance from 0 to 1 is needed")
        self.population, self.mutation = population, mutation

    def _choose(self, count: int) -> Iterator[Config]:
        if self.task.default is not None:
            yield self.task.default
        parents = self.leaders(self.population)
        if len(self.results) >= self.population and len(parents) > 1:
            for _ in range(_ATTEMPTS * count):
                yield self._child(parents)
        yield from self.sample(count)

    def _child(self, parents: list[int]) -> Config:
        """Of two parents, the faster the likelier (by rank, linearly)."""
        weights = np.arange(len(parents), 0, -1, dtype=float)
        a, b = self.rng.choice(len(parents), 2, replace=False, p=weights / weights.sum())
        child = self.space.crossover(self.space.at(parents[a]), self.space.at(parents[b]), self.rng)
        known = self.space.index(child) in self.seen
        return self.space.mutate(child, self.rng) if known or self.rng.random() < self.mutation else child
