"""Legal points by chance: what every other tuner has to beat."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.recipe import Config
from .base import Tuner


class RandomTuner(Tuner):
    """Points drawn uniformly from the legal ones, each once."""

    name = "random"

    def _choose(self, count: int) -> Iterable[Config]:
        return self.sample(count)
