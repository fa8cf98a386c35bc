"""A cost model that ranks configurations, gradient-boosted trees on pairs, by XGBoost; and the rows that it learns
from: a task's features, and its analytic estimate.

Which of two configurations is faster is all that a search asks, and unlike seconds it can be learnt from several tasks
at once: pairs are formed within a task only. T. Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.extras import extra
from ...core.recipe import Config
from ..task import Task

#: One thread: training never competes with what is being measured. Shallow trees, few rounds: 20 ms for 300 points.
_PARAMETERS = {
    "objective": "rank:pairwise", "lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 16,
    "max_depth": 5, "eta": 0.25, "min_child_weight": 0.05, "nthread": 1, "tree_method": "exact", "seed": 0,
}  # fmt: skip
_ROUNDS = 40
#: Times that differ by less are taken as equal: noise has no order.
_NOISE = 1.02


class RankModel:
    """Scores of configurations; a higher one is expected to be faster. Equal data give an equal model."""

    def __init__(self) -> None:
        self._xgboost = extra("xgboost", "tune", "the xgb tuner")
        self._booster: Any = None

    def fit(self, rows: np.ndarray, seconds: Sequence[float], groups: Sequence[int], weights: Sequence[float]) -> None:
        """Learn.

        Args:
            rows: (points, features); nan where a feature is unknown.
            seconds: of each point; infinite if it failed.
            groups: the task of each point; points are compared within one.
            weights: of each group, by its number.
        """
        numbers = np.asarray(groups)
        order = np.argsort(numbers, kind="stable")
        labels = np.empty(len(order), dtype=np.float32)
        for group in np.unique(numbers):
            labels[numbers == group] = _labels(np.asarray(seconds, dtype=float)[numbers == group])
        present = np.unique(numbers)
        data = self._xgboost.DMatrix(
            rows[order], label=labels[order], qid=numbers[order], nthread=1,
            weight=np.asarray(weights, dtype=np.float32)[present],
        )  # fmt: skip
        self._booster = self._xgboost.train(_PARAMETERS, data, num_boost_round=_ROUNDS)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Scores of (points, features)."""
        return np.asarray(self._booster.inplace_predict(rows), dtype=float)


def _labels(seconds: np.ndarray) -> np.ndarray:
    """Whole numbers, higher is faster, equal within the noise; failures are the lowest."""
    good = np.isfinite(seconds)
    if not good.any():
        return np.zeros(len(seconds))
    steps = np.log(np.where(good, seconds, seconds[good].max())) / math.log(_NOISE)
    return np.where(good, np.round(steps[good].max() - steps) + 1, 0)


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
