"""The learnt tuner: better than chance, warmed by other tasks, cheap enough to run beside measurements."""

import math
import statistics
import sys
from typing import Any

import numpy as np
import pytest

from tvm_ext.core.errors import OptionError, ToolError
from tvm_ext.tuning.tuners import make_tuner
from tvm_ext.tuning.tuners import xgb as module
from tvm_ext.tuning.tuners.rank_model import RankModel, Rows, _labels, feature_rows
from tvm_ext.tuning.tuners.xgb import anneal

from .landscapes import Landscape, kernel, plain, search, trials_to

SEEDS = range(5)


def median_trials(task: Landscape, name: str) -> float:
    target = min(task.legal.values()) / 0.95
    return statistics.median(trials_to(task, make_tuner(name, task, seed), target) for seed in SEEDS)


@pytest.mark.parametrize("seed", [0, 1])
def test_it_needs_less_than_half_of_random_without_an_estimate(seed: int) -> None:
    task = kernel(seed)
    assert median_trials(task, "xgb") <= 0.5 * median_trials(task, "random")


def test_an_estimate_helps() -> None:
    without, with_it = (
        sum(min(search(task, make_tuner("xgb", task, seed), 16)) for seed in SEEDS)
        for task in (kernel(), kernel(estimate=True))
    )
    assert with_it < 0.9 * without


def test_the_first_batch_is_default_estimate_and_chance() -> None:
    task = kernel(estimate=True)
    task.default = task.space.at(min(task.legal))
    configs = make_tuner("xgb", task).propose(8)
    assert configs[0] == task.default
    ranks = sorted(task.prior(task.space.at(index)) for index in task.legal)
    worst_of_best = ranks[len(ranks) // 50]
    assert sum(task.prior(config) <= worst_of_best for config in configs) >= 4
    assert any(task.prior(config) > 1.2 * worst_of_best for config in configs)


def test_batches_are_small_while_little_is_known() -> None:
    task = kernel()
    tuner = make_tuner("xgb", task)
    sizes = []
    while len(tuner.results) < 200:
        configs = tuner.propose(32)
        sizes.append(len(configs))
        tuner.update([(config, task.seconds(config)) for config in configs])
    assert sizes[0] == sizes[1] == 8 and sizes == sorted(sizes) and sizes[-1] == 32


def warm_records(tasks: list[Landscape]) -> list[module.WarmRecord]:
    return [
        (row, seconds, number)
        for number, task in enumerate(tasks)
        for index, seconds in list(task.legal.items())[::20]
        for row in feature_rows(task, [task.space.at(index)])
    ]


def test_records_of_other_tasks_help() -> None:
    """The same landscape, ten times slower: its order is what can be learnt, its seconds are not."""
    task, other = kernel(3), kernel(3)
    right = other.seconds
    other.seconds = lambda config: 10 * right(config)
    records, cold, warm = warm_records([other]), 0.0, 0.0
    for seed in SEEDS:
        tuner = make_tuner("xgb", task, seed)
        tuner.warm(records)
        warm += min(search(task, tuner, 8))
        cold += min(search(task, make_tuner("xgb", task, seed), 8))
    assert warm < 0.85 * cold


def test_records_of_many_tasks_and_own_results_go_together() -> None:
    task = kernel(0, estimate=True)
    tuner = make_tuner("xgb", task)
    tuner.warm(warm_records([kernel(1), kernel(2)]))
    tuner.warm([(np.zeros(5), math.inf, 7)])  # without the estimate, and a failure
    before = tuner.propose(4)  # ranked by what the others taught
    tuner.warm(warm_records([kernel(3)]))
    assert len(before) == 4 and len(search(task, tuner, 64)) == 64


def test_records_with_other_features_are_refused() -> None:
    tuner = make_tuner("xgb", kernel())
    with pytest.raises(OptionError, match=r"group 4 has 9 features; this task has 5, and 6 with the estimate") as error:
        tuner.warm([(np.zeros(9), 1.0, 4)])
    assert "same recipe" in str(error.value)


def test_a_long_history_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HISTORY", 40)
    task = kernel()
    tuner = make_tuner("xgb", task)
    search(task, tuner, 120)
    records = warm_records([kernel(1), kernel(2)])
    tuner.warm(records)
    assert {group for _, _, group in tuner._others(30)} == {0, 1} and len(tuner._others(30)) == 30
    own = tuner._own()
    assert len(own) == len(set(own)) == 40 and set(tuner.leaders(20)) <= set(own)


def test_without_xgboost_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)  # importing it fails
    with pytest.raises(ToolError, match=r"pip install 'tvm-ext\[tune\]'"):
        make_tuner("xgb", plain())
    assert make_tuner("ga", plain()).propose(1)  # the others do without


# ------------------------------------------------------------------------------------------------ its parts
def test_the_model_ranks_within_groups() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((200, 3)).astype("float32")
    groups = np.repeat([0, 1], 100)
    seconds = np.exp(rows[:, 0] + rows[:, 1]) * np.where(groups, 100.0, 1.0)  # the second task is slower as a whole
    model = RankModel()
    model.fit(rows, seconds, groups, [1.0, 1.0])
    unseen = rng.random((100, 3)).astype("float32")
    order = np.argsort(np.argsort(model.predict(unseen)))
    exact = np.argsort(np.argsort(-(unseen[:, 0] + unseen[:, 1])))
    assert np.corrcoef(order, exact)[0, 1] > 0.9


def test_labels() -> None:
    labels = _labels(np.array([1.0, 1.005, 2.0, math.inf]))
    assert labels[0] == labels[1] > labels[2] > labels[3] == 0  # half a percent is noise
    assert (_labels(np.array([math.inf, math.inf])) == 0).all()


def test_features_end_with_the_estimate() -> None:
    configs = [{"a": 1, "b": 1, "c": 0}, {"a": 4, "b": 2, "c": 1}]
    rows = feature_rows(plain(prior=lambda c: 0.25 * c["a"]), configs)
    assert rows.dtype == np.float32 and rows[:, -1].tolist() == [-2, 0]
    assert np.isnan(feature_rows(plain(), configs)[:, -1]).all()


def test_features_are_computed_together_and_once() -> None:
    task, asked = plain(), []

    def features_of(configs: list[dict[str, int]]) -> np.ndarray:
        asked.append(len(configs))
        return np.array([[config["a"]] for config in configs])

    task.features_of = features_of  # type: ignore[attr-defined]
    rows = Rows(task)
    indices = [task.space.index({"a": a, "b": 1, "c": 0}) for a in (2, 4, 2)]
    assert rows.of(indices)[:, 0].tolist() == [2, 4, 2]
    assert rows.of([*indices, task.space.index({"a": 8, "b": 1, "c": 0})])[:, 0].tolist() == [2, 4, 2, 8]
    assert asked == [2, 1]


def test_annealing_climbs() -> None:
    task = kernel()
    scores = {index: -seconds for index, seconds in task.legal.items()}
    starts = sorted(scores, key=scores.__getitem__)[:16]  # the slowest

    def score(indices: Any) -> np.ndarray:
        return np.array([scores[index] for index in indices])

    visited = anneal(task.space, score, starts, np.random.default_rng(0), steps=40)
    assert visited.keys() <= scores.keys() and all(visited[index] == scores[index] for index in visited)
    better = sum(value > max(visited.values()) for value in scores.values())
    assert better < 0.01 * len(scores)
