"""Repeats: how many, which arguments, and when to give up; with a function that takes no time worth a name."""

from __future__ import annotations

import math
import time

from tvm_ext.tuning.measure.timing import Repeats, timed


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
