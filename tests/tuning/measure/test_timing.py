"""Repeats: how many, which arguments, and when to give up; with a function that takes no time worth a name."""

import math
import time

import pytest

from tvm_ext.tuning.measure import timing
from tvm_ext.tuning.measure.timing import Repeats, lower_quartile, timed


@pytest.fixture(autouse=True)
def one_call_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WARM_UP", 0.0)


def test_one_call_warms_up_and_arguments_rotate() -> None:
    seen: list[int] = []
    costs, discarded = timed(seen.append, [[0], [1], [2]], math.inf, Repeats(5, 100.0))
    assert seen == [0, 1, 2, 0, 1, 2]
    assert len(costs) == 5
    assert not discarded


def test_it_stops_when_the_time_is_used() -> None:
    costs, _ = timed(lambda: time.sleep(0.002), [[]], math.inf, Repeats(1000, 0.001))
    assert len(costs) == 1


def test_a_clear_loser_is_called_twice() -> None:
    seen: list[int] = []
    costs, discarded = timed(seen.append, [[0]], 1e-15, Repeats())
    assert (len(seen), len(costs), discarded) == (2, 1, True)


def test_warming_up_leaves_the_other_arguments_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WARM_UP", 0.002)
    seen: list[int] = []
    timed(seen.append, [[0], [1], [2]], math.inf, Repeats(4, 100.0))
    assert seen[-5:] == [0, 1, 2, 0, 1] and set(seen[:-4]) == {0} and len(seen) > 6


def test_the_lower_quartile_is_blind_to_calls_that_were_disturbed() -> None:
    calm = [1.0 + 0.01 * i for i in range(10)]
    assert lower_quartile(calm) == 1.02
    assert lower_quartile([*calm, *(2 * c for c in calm), *(2 * c for c in calm)]) == 1.07
    assert lower_quartile([3.0]) == 3.0
