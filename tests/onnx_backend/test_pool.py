"""A crash or an endless loop costs one case."""

from __future__ import annotations

import dataclasses

import pytest

from . import contenders, worker
from .cases import Case
from .pool import Lost, Worker, outcomes

CASE = Case("none", "None", b"", (), (), (), 0.0, 0.0)


def test_a_crash_and_a_hang_cost_one_case_each():
    asked = [(name, CASE) for name in ("crash for a test", "hang for a test", "nothing for a test")]
    found = {task[0]: outcome for task, outcome in outcomes(asked, workers=1, seconds=3.0)}
    assert found["crash for a test"] == "crash: SIGSEGV"
    assert found["hang for a test"] == "hang: no answer in 3 s"
    assert found["nothing for a test"] == "pass"


def test_a_worker_that_was_lost_is_gone():
    one = Worker()
    with pytest.raises(Lost, match="SIGSEGV"):
        one.run(("crash for a test", CASE), 30.0)
    one.close()


def test_an_error_is_one_short_line(monkeypatch):
    def broken(case):
        raise ValueError("\n  test_none: it is\n  broken" + "x" * 500)

    monkeypatch.setitem(contenders.CONTENDERS, "broken", broken)
    outcome = worker._outcome("broken", dataclasses.replace(CASE))
    assert outcome == "failed: ValueError: it is"
