"""What a session knows of a task: the best, progress, expected gain; and which task comes next."""

import math

import pytest

from tests.tuning.fakes import FakeTask
from tvm_ext.core.records.record import Record
from tvm_ext.tuning.state import TaskState, next_state
from tvm_ext.tuning.tuners import make_tuner


def state(op="one", weight=1, floor=0.0, **changes):
    task = FakeTask(op)
    return TaskState(task, make_tuner("random", task), weight, floor, **changes)


def record(of, seconds=None, a=1, b=1, error="", discarded=False):
    costs = () if seconds is None else (seconds,)
    return Record(of.task.key, of.task.recipe, 1, {"a": a, "b": b}, costs, error, discarded=discarded)


def following(states, patience=100, rivals=None):
    return next_state(states, rivals or {i: s.cost for i, s in enumerate(states)}, patience)


def test_the_best_of_the_usable_records_is_kept():
    one = state()
    assert one.take(record(one, 2e-3)) and not one.take(record(one, 3e-3))
    assert not one.take(record(one, 1e-3, discarded=True))
    assert not one.take(record(one, error="wrong")) and not one.take(record(one, error="crash"))
    assert (one.trials, one.failed, one.wrong) == (5, 2, 1)
    assert one.cost == 2e-3 and one.config == {"a": 1, "b": 1} and one.curve == [(1, 2e-3)]
    assert one.take(record(one, 1e-3, a=2)) and one.curve[-1] == (6, 1e-3) and one.config["a"] == 2


def test_the_default_is_remembered_even_if_it_failed():
    one = state()
    assert math.isnan(one.default_cost)
    one.take(record(one, 4e-3, a=0, b=0))
    assert one.default_cost == 4e-3
    one.take(record(one, error="wrong", a=0, b=0))
    assert math.isinf(one.default_cost)


def test_a_gain_below_one_percent_is_no_progress():
    one = state()
    one.take(record(one, 1.0))
    assert one.without_progress == 0
    one.take(record(one, 0.995))
    assert one.cost == 0.995 and one.without_progress == 1
    one.take(record(one, 0.98))
    assert one.without_progress == 0


def test_hope_is_what_lies_above_the_floor_and_fades():
    assert math.isinf(state().expected_gain)
    assert state(weight=3, cost=2.0, floor=0.5).expected_gain == pytest.approx(3 * 2.0 * 0.75)
    assert state(cost=2.0, without_progress=24).expected_gain == pytest.approx(1.0)  # halved
    assert state(cost=1.0, floor=1.0).expected_gain > 0  # the floor is an estimate
    assert state(cost=1.0, used_up=True).expected_gain == 0 == state(unusable="no reference").expected_gain


def test_the_task_with_the_most_hope_is_next():
    small, large = state("small", 1, cost=1e-3), state("large", 8, cost=1e-3)
    assert following([small, large]) is large
    large.without_progress = 24 * 4
    assert following([small, large]) is small
    fresh = state("fresh")
    assert following([small, large, fresh]) is fresh


def test_a_recipe_far_behind_its_rival_waits():
    slow, other = state("same", cost=4e-3), state("other", cost=1e-3)
    assert following([slow, other], rivals={0: 4e-3, 1: 1e-3}) is slow
    assert following([slow, other], rivals={0: 1e-3, 1: 1e-3}) is other


def test_nothing_is_next_without_expected_gain():
    assert (
        following([state(used_up=True), state(unusable="no"), state(cost=1.0, without_progress=7)], patience=7) is None
    )
    assert following([]) is None
    failing = state(trials=3, without_progress=3)  # nothing of it ran: only if there is nothing else
    assert following([failing, state("other", cost=1e-3)]).task.key.op == "other"
    assert following([failing]) is failing
