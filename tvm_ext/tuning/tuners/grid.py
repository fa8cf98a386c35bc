"""Every legal point, in the order of the space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core.recipe import Config
from .base import Tuner

if TYPE_CHECKING:
    from ..task import Task


class GridTuner(Tuner):
    """Points in the order of their index; for small spaces."""

    name = "grid"

    def __init__(self, task: Task, seed: int = 0) -> None:
        super().__init__(task, seed)
        self._points = map(self.space.at, range(self.space.points))

    def _choose(self, count: int) -> Iterator[Config]:
        return self._points
