"""Rows of numbers that the cost model learns from: a task's features, and its analytic estimate."""

import math
from collections.abc import Sequence

import numpy as np

from ...core.recipe import Config
from ..task import Task


def feature_rows(task: Task, configs: Sequence[Config]) -> np.ndarray:
    """Features of configurations, and log2 of the estimated seconds (nan without an estimate) as the last column.

    A task with a method `features_of(configs) -> array` computes them all at once.

    Returns:
        float32, (configurations, features of the task + 1).
    """
    together = getattr(task, "features_of", None)
    own = together(configs) if together else np.stack([task.features(config) for config in configs])
    estimates = [[_log2(task.prior(config))] for config in configs]
    return np.hstack([np.asarray(own, dtype=np.float32), np.asarray(estimates, dtype=np.float32)])


def _log2(seconds: float) -> float:
    return math.log2(seconds) if 0 < seconds < math.inf else math.nan


class Rows:
    """Feature rows of one task, each computed once."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._known: dict[int, np.ndarray] = {}

    def of(self, indices: Sequence[int]) -> np.ndarray:
        """Rows of points of the space, in order."""
        missing = [index for index in dict.fromkeys(indices) if index not in self._known]
        if missing:
            rows = feature_rows(self._task, [self._task.space.at(index) for index in missing])
            self._known.update(zip(missing, rows, strict=True))
        return np.stack([self._known[index] for index in indices])
