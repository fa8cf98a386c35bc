"""Beam search visits the extensions of its best, knob by knob, and nothing else until it is stuck."""

from tvm_ext.core.recipe import Config
from tvm_ext.tuning.tuners import make_tuner

from .landscapes import Landscape, kernel, search

CHOICES = {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3]}
START = {"a": 1, "b": 1, "c": 1}


def cost(c: Config) -> float:
    """Separable: the best is a=2, b=3, c=2."""
    return 1.0 + abs(c["a"] - 2) + abs(c["b"] - 3) + 0.5 * abs(c["c"] - 2)


def step(tuner: object, task: Landscape) -> list[tuple[int, ...]]:
    """One proposal, as tuples of values."""
    configs = tuner.propose(100)  # type: ignore[attr-defined]
    tuner.update([(config, task.seconds(config)) for config in configs])  # type: ignore[attr-defined]
    return [tuple(config.values()) for config in configs]


def test_width_one_is_a_walk_along_the_knobs() -> None:
    task = Landscape(CHOICES, cost, default=START)
    tuner = make_tuner("beam", task, width=1)
    assert step(tuner, task) == [(1, 1, 1)]
    assert step(tuner, task) == [(2, 1, 1), (3, 1, 1)]
    assert step(tuner, task) == [(2, 2, 1), (2, 3, 1)]
    assert step(tuner, task) == [(2, 3, 2), (2, 3, 3)]
    assert tuner.best == ({"a": 2, "b": 3, "c": 2}, 1.0)
    assert step(tuner, task) == [(1, 3, 2), (3, 3, 2)]  # the second round
    assert step(tuner, task) == [(2, 1, 2), (2, 2, 2)]
    (start,) = step(tuner, task)  # nothing better: another start
    assert len({*start}) > 0 and start not in {(2, 3, 2), (1, 1, 1)}


def test_width_two_extends_the_best_two() -> None:
    task = Landscape(CHOICES, cost, default=START)
    tuner = make_tuner("beam", task, width=2)
    assert step(tuner, task) == [(1, 1, 1)]
    assert step(tuner, task) == [(2, 1, 1), (3, 1, 1)]
    assert step(tuner, task) == [(2, 2, 1), (2, 3, 1), (1, 2, 1), (1, 3, 1)]  # of a = 2, then a = 1 (first in order)


def test_small_batches_walk_the_same_way() -> None:
    task = Landscape(CHOICES, cost, default=START)
    one, many = make_tuner("beam", task, width=2), make_tuner("beam", task, width=2)
    assert search(task, one, 18, batch=1) == search(task, many, 18, batch=100)


def test_a_wide_beam_crosses_what_a_narrow_one_cannot() -> None:
    """a=3 is better only with b=3, and bad alone."""
    task = Landscape(CHOICES, lambda c: 0.1 if (c["a"], c["b"]) == (3, 3) else c["a"] + c["b"], default=START)
    best = {width: search(task, make_tuner("beam", task, width=width), 9, batch=100) for width in (1, 3)}
    assert 0.1 in best[3] and 0.1 not in best[1]


def test_illegal_extensions_are_passed_over() -> None:
    task = Landscape(CHOICES, cost, legal=lambda c: c["a"] != 2, default=START)
    tuner = make_tuner("beam", task, width=1)
    assert step(tuner, task) == [(1, 1, 1)]
    assert step(tuner, task) == [(3, 1, 1)]


def test_a_knob_of_many_choices_is_sampled() -> None:
    task = Landscape({"a": list(range(1, 1001)), "b": [1, 2]}, lambda c: c["a"], default={"a": 500, "b": 1})
    tuner = make_tuner("beam", task, choices=10)
    assert step(tuner, task) == [(500, 1)]
    extensions = step(tuner, task)
    assert 9 <= len(extensions) <= 10 and {b for _, b in extensions} == {1}


def test_a_failing_default_is_no_start() -> None:
    task = Landscape(CHOICES, lambda c: float("inf") if c == START else cost(c), default=START)
    tuner = make_tuner("beam", task, width=1)
    assert step(tuner, task) == [(1, 1, 1)]
    (start,) = step(tuner, task)
    assert start != (1, 1, 1)


def test_it_finds_good_points_of_a_kernel() -> None:
    task = kernel()
    assert min(search(task, make_tuner("beam", task), 150)) <= 1.15 * min(task.legal.values())
