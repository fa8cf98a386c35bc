"""A crash or an endless loop costs one case."""

import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from .misbehaving import SERVICE
from .outcome import Outcome
from .pool import Judge, Lost, Service, Worker, outcomes


def test_a_crash_and_a_hang_cost_one_case_each() -> None:
    results = dict(outcomes(SERVICE, ["crash", "hang", "wait", "memory", "nothing"], workers=1))
    assert results["crash"] == Outcome("crash", "SIGSEGV")
    assert results["hang"] == results["wait"] == Outcome("hang", "no answer in 0.2 s")
    assert results["memory"] == Outcome("crash", "exit code 1")
    assert results["nothing"].kind == "pass"


def test_a_worker_that_was_lost_is_gone() -> None:
    worker = Worker(SERVICE)
    with pytest.raises(Lost, match="SIGSEGV"):
        worker.run("crash")
    worker.close()


def test_a_judge_keeps_its_worker_until_it_is_lost() -> None:
    judge = Judge(SERVICE)
    first, second, lost, after = (judge(task) for task in ("nothing", "nothing", "crash", "nothing"))
    assert first == second and lost.kind == "crash"
    assert after.kind == "pass" and after != first
    judge.close()


def test_a_worker_that_is_left_over_serves_the_next_call() -> None:
    def process(service: Service = SERVICE) -> Any:
        ((_, outcome),) = outcomes(service, ["nothing"], workers=1)
        return outcome.facts["process"]

    first = process()
    assert process() == first
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    second = process()
    assert second != first and process(replace(SERVICE, seconds=4.0)) != second
    assert not os.path.exists(f"/proc/{second}"), "a worker of another service is ended"
