"""How worker threads wait: the option, what it conflicts with, and what the threads do."""

import os
from pathlib import Path
from typing import Any

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.pool import waiting as module
from tvm_ext.runtime.pool.lost_waiters import can_release
from tvm_ext.runtime.pool.waiting import LEAST, LONGEST, MOST, OWN, SPIN_COUNT, TVM_SPIN, Waiting, checked_wait, is_own

from ..processes import run_python
from ..programs import export

SLOT = object()
ENVIRONMENT = {"TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": None, SPIN_COUNT: None}


@pytest.mark.parametrize("value", [None, "spin", "sleep", 0, 0.001, LONGEST])
def test_values(value: Any) -> None:
    assert checked_wait(value) == value


@pytest.mark.parametrize("value", ["spins", "0.1", -1e-9, LONGEST + 1, float("nan"), float("inf"), True, [], b"spin"])
def test_no_values(value: Any) -> None:
    with pytest.raises(OptionError):
        checked_wait(value)


# ------------------------------------------------------------------------------------------------ the setting
@pytest.mark.skipif(not can_release(), reason="forks need TVM's own way here")
@pytest.mark.parametrize(("wake", "expected"), [(1e-9, LEAST), (3.1e-6, 64e-6), (3.3e-6, 128e-6), (1.0, MOST)])
def test_the_spin_is_worth_twenty_wake_ups(monkeypatch: pytest.MonkeyPatch, wake: float, expected: float) -> None:
    monkeypatch.setattr(module, "wake_seconds", lambda: wake)
    environ: dict[str, str] = {}
    setting = Waiting(environ, cores=2)
    assert setting.seconds == pytest.approx(expected, abs=setting._turn)
    assert is_own(environ[SPIN_COUNT]) and setting.turns == int(environ[SPIN_COUNT].removesuffix(OWN))


def test_on_one_core_nobody_spins() -> None:
    assert Waiting({}, cores=1).seconds == pytest.approx(0 if can_release() else TVM_SPIN, rel=0.01)


def test_where_a_fork_would_lose_sleeping_workers_it_is_tvms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "can_release", lambda: False)
    assert [Waiting({}, cores=n).seconds for n in (1, 2)] == pytest.approx([TVM_SPIN] * 2, rel=0.01)


def test_the_measures_are_seconds_and_leave_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert module.wake_seconds() > 0 and module.yield_seconds() > 0
    assert not before or len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("value", "seconds"), [("spin", TVM_SPIN), ("sleep", 0), (0.0, 0)])
def test_a_choice_is_written_where_tvm_reads_it(value: Any, seconds: float) -> None:
    environ: dict[str, str] = {}
    setting = Waiting(environ, cores=2)
    turns = round(seconds / setting._turn)
    setting.choose(None, _never)
    setting.choose(value, lambda: True)
    setting.choose(value, _never)  # once more the same
    assert (setting.turns, setting.wait, environ[SPIN_COUNT]) == (turns, value, f"{turns}{OWN}")
    with pytest.raises(OptionError, match=repr(setting.wait)):
        setting.choose(0.5, _never)
    assert setting.turns == turns


def test_seconds_become_turns() -> None:
    setting = Waiting({}, cores=2)
    setting.choose(0.25, lambda: True)
    assert setting.seconds == pytest.approx(0.25, abs=setting._turn)


def test_the_environment_of_the_user_is_kept() -> None:
    environ = {SPIN_COUNT: "17"}
    setting = Waiting(environ, cores=2)
    assert setting.of_user and setting.turns == 17
    with pytest.raises(OptionError, match=f"{SPIN_COUNT}=17"):
        setting.choose("sleep", _never)
    assert environ == {SPIN_COUNT: "17"}


def test_a_child_process_chooses_anew() -> None:
    environ = {SPIN_COUNT: f"17{OWN}"}
    setting = Waiting(environ, cores=2)
    setting.choose("spin", lambda: True)
    assert environ == {SPIN_COUNT: f"{setting.turns}{OWN}"} and setting.seconds == pytest.approx(TVM_SPIN, rel=0.01)


@pytest.mark.parametrize("installed", [True, False])
def test_turns_that_stay_as_they_are_take_longer(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    """Where the runtime library has no slot that can be written, the same seconds are fewer turns, once."""
    monkeypatch.setattr(module.yields, "turn", lambda: SLOT)
    monkeypatch.setattr(module.yields, "install", lambda: SLOT if installed else None)
    monkeypatch.setattr(module, "turn_seconds", lambda: 1e-8)
    monkeypatch.setattr(module, "yield_seconds", lambda: 1e-7)
    environ: dict[str, str] = {}
    setting = Waiting(environ, cores=2)
    seconds, turns = setting.seconds, setting.turns
    for _ in range(2):
        setting.begin()
    assert setting.seconds == pytest.approx(seconds, rel=0.01) or not can_release()
    assert setting.turns == (turns if installed else pytest.approx(turns / 10, abs=1))
    assert environ[SPIN_COUNT] == f"{setting.turns}{OWN}"


@pytest.mark.parametrize("by_us", [True, False])
def test_too_late(by_us: bool) -> None:
    environ: dict[str, str] = {}
    setting = Waiting(environ, cores=2)
    before, setting.started = dict(environ), by_us
    with pytest.raises(OptionError, match="too late"):
        setting.choose("sleep", lambda: False)
    assert environ == before and setting.wait is None


def _never() -> bool:
    raise AssertionError("nothing is to be started")


# ------------------------------------------------------------------------------------------------ the threads
THREADS = """
import os, sys, threading, time
import numpy as np
from tvm_ext.core.errors import OptionError
from tvm_ext.runtime.model import load

wait = {"None": None, "20": 20.0}.get(sys.argv[2], sys.argv[2])
before = set(os.listdir("/proc/self/task"))
compiled = load(sys.argv[1], threads_wait=wait)
x = np.ones((33, 257), np.float32)
compiled.run(x)
(worker,) = set(os.listdir("/proc/self/task")) - before

def figures():
    with open(f"/proc/self/task/{worker}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()

def asleep():  # and stays so: no time on a core between two looks
    first = figures()
    time.sleep(0.02)
    return first[0] == figures()[0] == "S" and first[11:13] == figures()[11:13]

slept = asleep()
while not slept and wait != 20.0:
    slept = asleep()
compiled.run(x)
try:
    load(sys.argv[1], threads_wait=0.5)
    print("taken")
except OptionError as error:
    print("slept" if slept else "spun", error.message.split(": ")[1].split(" ")[0])
"""


@pytest.mark.parametrize(
    ("wait", "printed"), [("None", "slept too"), ("sleep", "slept this"), ("spin", "slept this"), ("20", "spun this")]
)
def test_workers_sleep_or_spin_as_told(rows_model: CompiledModel, tmp_path: Path, wait: str, printed: str) -> None:
    """A hang, of a worker that never sleeps, is a failure of :func:`run_python`."""
    assert run_python(THREADS, export(rows_model, tmp_path / "rows.so"), wait, **ENVIRONMENT) == printed


FOREIGN = """
import sys
import tvm_ext.runtime.pool.threads
from tvm_ext.core.errors import OptionError
from tvm_ext.runtime.model import load
from tvm_ext.runtime.pool.worker_pool import _launch_empty

_launch_empty()  # as any kernel of TVM's, run by other code
try:
    load(sys.argv[1], threads_wait="sleep")
except OptionError as error:
    print("other code" in error.message)
"""


def test_a_kernel_of_other_code_came_first(rows_model: CompiledModel, tmp_path: Path) -> None:
    assert run_python(FOREIGN, export(rows_model, tmp_path / "rows.so"), **ENVIRONMENT) == "True"


SESSION = """
import sys
from tvm_ext.cli.shared.options import add_compile_arguments, compile_options
from tvm_ext.driver.session import InferenceSession
from tvm_ext.runtime.pool.threads import waiting
import argparse

parser = argparse.ArgumentParser()
add_compile_arguments(parser)
told = compile_options(parser.parse_args(["--threads-wait", "0.25"]))["threads_wait"]
InferenceSession(sys.argv[1], threads_wait=told)
print(waiting.wait)
"""


def test_the_command_line_and_a_session_of_an_artifact_take_it(rows_model: CompiledModel, tmp_path: Path) -> None:
    assert run_python(SESSION, export(rows_model, tmp_path / "rows.so"), **ENVIRONMENT) == "0.25"
