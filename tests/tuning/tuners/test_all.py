"""What holds for every tuner: legal points only, none twice, all of them in the end, the same ones by the same seed."""

import inspect
import math
import sys
from typing import Any

import pytest

import tvm_ext
from tvm_ext.core import tuner_names
from tvm_ext.core.errors import OptionError
from tvm_ext.tuning.session import Session
from tvm_ext.tuning.tuners import TUNERS, make_tuner

from .landscapes import Landscape, kernel, plain, search

ALL = pytest.mark.parametrize("name", sorted(TUNERS))
DEFAULT = {"a": 2, "b": 2, "c": 1}


def run(task: Landscape, name: str, trials: int, batch: int = 5, seed: int = 0, **options: Any) -> list[int]:
    """Indices proposed, in order."""
    tuner, points = make_tuner(name, task, seed, **options), []
    while len(points) < trials and (configs := tuner.propose(batch)):
        assert len(configs) <= batch
        points += [task.space.index(config) for config in configs]
        tuner.update([(config, task.seconds(config)) for config in configs])
    return points


@ALL
@pytest.mark.parametrize("default", [None, DEFAULT])
@pytest.mark.parametrize("batch", [1, 4, 100])
def test_each_legal_point_exactly_once(name: str, default: dict[str, int] | None, batch: int) -> None:
    task = plain(default=default)
    points = run(task, name, 1000, batch)
    assert sorted(points) == sorted(task.legal)
    assert 0 < len(points) < task.space.points


@ALL
def test_used_up_stays_used_up(name: str) -> None:
    task = plain()
    tuner = make_tuner(name, task)
    search(task, tuner, 1000)
    assert tuner.propose(3) == [] and tuner.propose(1) == []


@ALL
def test_equal_seeds_propose_equal_points(name: str) -> None:
    first, again = (run(kernel(estimate=True), name, 60, seed=3) for _ in range(2))
    assert first == again
    if name != "grid":
        assert run(kernel(estimate=True), name, 60, seed=4) != first


@ALL
def test_a_larger_space(name: str) -> None:
    task = kernel()
    points = run(task, name, 150, 16)
    assert len(set(points)) == len(points) >= 150 and set(points) <= task.legal.keys()


@ALL
def test_a_space_too_large_to_list(name: str) -> None:
    choices = {f"k{i}": list(range(1, 11)) for i in range(20)}
    task = Landscape(choices, lambda c: sum(c.values()), legal=lambda c: c["k0"] != c["k1"])
    points = run(task, name, 60, 16)
    assert len(set(points)) == len(points) >= 60
    assert all(task.space.legal(task.space.at(index)) for index in points)


@ALL
def test_one_point(name: str) -> None:
    config = {"a": 1}
    for default in (None, config):
        task = Landscape({"a": [1]}, lambda c: 1.0, default=default)
        assert run(task, name, 10) == [0]


@ALL
def test_no_legal_point(name: str) -> None:
    assert run(Landscape({"a": [1, 2]}, lambda c: 1.0, legal=lambda c: False), name, 10) == []


@ALL
def test_everything_fails(name: str) -> None:
    task = plain(default=DEFAULT)
    task.seconds = lambda config: math.inf
    tuner = make_tuner(name, task)
    assert len(search(task, tuner, 1000, 3)) == len(task.legal)
    assert tuner.best is None


@ALL
def test_some_fail(name: str) -> None:
    task = kernel()
    right = task.seconds
    task.seconds = lambda config: math.inf if config["tile_o"] in (1, 4) else right(config)
    tuner = make_tuner(name, task)
    search(task, tuner, 400)
    assert tuner.best is not None and tuner.best[0]["tile_o"] not in (1, 4)
    assert tuner.best[1] == min(tuner.results.values()) < math.inf


@ALL
def test_results_of_an_earlier_session_are_not_proposed_again(name: str) -> None:
    task = plain(default=DEFAULT)
    known = [(task.space.at(index), seconds) for index, seconds in list(task.legal.items())[::2]]
    tuner = make_tuner(name, task)
    tuner.update(known)
    points = []
    while configs := tuner.propose(4):
        points += [task.space.index(config) for config in configs]
        tuner.update([(config, task.seconds(config)) for config in configs])
    assert sorted(points) == sorted(task.legal.keys() - {task.space.index(config) for config, _ in known})


@ALL
def test_proposing_does_not_wait_for_results(name: str) -> None:
    """A session that measures on many machines asks again before it has any result."""
    task = plain(default=DEFAULT)
    tuner = make_tuner(name, task)
    points = [task.space.index(c) for _ in range(40) for c in tuner.propose(2)]
    assert sorted(points) == sorted(task.legal)


@ALL
def test_update_keeps_the_better_of_two_figures(name: str) -> None:
    tuner = make_tuner(name, plain())
    tuner.update([(DEFAULT, 2.0), (DEFAULT, 1.0), (DEFAULT, math.inf), (DEFAULT, math.nan)])
    assert tuner.best == (DEFAULT, 1.0)


@ALL
def test_a_count_below_one_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"propose\(0\): a count of 1 or more"):
        make_tuner(name, plain()).propose(0)


def test_unknown_names_and_options() -> None:
    with pytest.raises(OptionError, match="tuner='xgboost': choose one of 'grid', 'random', 'ga', 'xgb', 'beam'"):
        make_tuner("xgboost", plain())
    with pytest.raises(OptionError, match="tuner 'beam' has no option 'widht': its options are width, choices"):
        make_tuner("beam", plain(), widht=3)
    with pytest.raises(OptionError, match="tuner 'grid' has no option 'width': it has no options"):
        make_tuner("grid", plain(), width=3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("beam", {"width": 0}, "width=0: 1 or more"), ("beam", {"choices": 0}, "choices=0: 1 or more"),
        ("ga", {"population": 1}, "population=1: 2 or more"), ("ga", {"mutation": 1.5}, "mutation=1.5: a chance"),
        ("xgb", {"epsilon": -0.1}, "epsilon=-0.1: a part from 0 to 1"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_tuner(name, plain(), **options)


def test_grid_goes_in_order() -> None:
    task = plain()
    assert run(task, "grid", 1000) == sorted(task.legal)


def test_names_that_signatures_and_command_lines_list_are_those_of_the_tuners() -> None:
    assert set(tuner_names.NAMES) == {*TUNERS, tuner_names.METASCHEDULE}


def test_the_default_needs_no_further_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)  # importing it fails
    for function in (tvm_ext.tune, Session):
        assert inspect.signature(function).parameters["tuner"].default == tuner_names.DEFAULT
    assert len(search(kernel(), make_tuner(tuner_names.DEFAULT, kernel()), 64)) == 64
