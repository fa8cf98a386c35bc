"""The order of outcomes, and what errors become."""

import pickle

from .outcome import Outcome, Refused, attempt, is_worse, short


def test_only_a_step_down_is_worse() -> None:
    order = ["pass", "refused: why", "failed: Error: why", "wrong: output 0", "hang: 60 s", "crash: SIGSEGV"]
    for i, worse in enumerate(order):
        for j, better in enumerate(order):
            assert is_worse(worse, better) == (i > j)


def raising(error: Exception) -> Outcome:
    raise error


def test_an_error_is_one_short_line() -> None:
    error = ValueError("\n  test_none: it   is\n  broken")
    assert str(attempt(lambda: raising(error), without="test_none: ")) == "failed: ValueError: it is"
    assert attempt(lambda: raising(Refused("because\x00"))) == Outcome("refused", "because?")
    assert len(short("x" * 500)) == 200 and short("") == ""


def test_an_outcome_survives_a_pipe() -> None:
    outcome = Outcome("pass", "", {"share": 0.5})
    assert pickle.loads(pickle.dumps(outcome)) == outcome and str(outcome) == "pass"
