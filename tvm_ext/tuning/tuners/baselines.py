"""What every other tuner has to beat: every legal point in the order of the space, and legal points by chance."""

from collections.abc import Iterable, Iterator

from ...core.recipe import Config
from ..task import Task
from .base import Tuner


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
