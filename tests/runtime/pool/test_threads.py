"""Calls from many threads: right answers, a bounded number of OS threads, forks that end."""

import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.pool.threads import Executors, available_cores, set_thread_defaults
from tvm_ext.runtime.pool.waiting import SPIN_COUNT

from ..processes import run_python
from ..programs import BIAS, expected_rows, export

UNSET = {"TVM_NUM_THREADS": None, "TVM_BIND_THREADS": None, "OMP_NUM_THREADS": None}


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """Run `work(i)` in `count` threads at once; the errors."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def body(i: int) -> None:
        try:
            start.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_two_hundred_threads_at_once(kind: str, bias_model: CompiledModel, rows_model: CompiledModel) -> None:
    compiled = rows_model if kind == "parallel" else bias_model
    shape = compiled.inputs[0].shape

    def work(i: int) -> None:
        x = np.random.default_rng(i).standard_normal(shape).astype(np.float32)
        expected = expected_rows(x) if kind == "parallel" else x + BIAS
        for _ in range(5):
            np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, rtol=1e-6, atol=1e-6)

    assert in_threads(200, work) == []
    assert compiled._callers._made <= compiled._callers._limit
    assert len(compiled._callers._idle) == compiled._callers._made


SHORT_LIVED = """
import os, sys, threading, time
import numpy as np
from tvm_ext.runtime.model import load

compiled, calls, at_once = load(sys.argv[1]), int(sys.argv[2]), 4
wrong = []

def work(i):
    x = np.full((33, 257), i, np.float32)
    y = compiled.run({"x": x})["y"]
    if not np.allclose(y, 2 * x + np.linspace(1, 2, 257, dtype=np.float32)):
        wrong.append(i)

def wave(first):
    threads = [threading.Thread(target=work, args=(first + i,)) for i in range(at_once)]
    for t in threads: t.start()
    for t in threads: t.join()

before = len(os.listdir("/proc/self/task"))
work(0)
main = len(os.listdir("/proc/self/task")) - before
for first in range(0, calls, at_once):
    wave(first)
left = []
for _ in range(20):  # a thread that was joined may still be on its last instructions
    left.append(len(os.listdir("/proc/self/task")))
    time.sleep(0.01)
print(main, min(left) - before, len(wrong))
"""


def os_threads_after(path: Path, calls: int) -> None:
    environment: dict[str, str | None] = {**UNSET, "TVM_NUM_THREADS": "2"}
    main, total, wrong = map(int, run_python(SHORT_LIVED, path, str(calls), **environment).split())
    assert wrong == 0
    assert main == 1  # the main thread works itself, with one worker of TVM
    executors = max(2, min(4, available_cores() // 4))
    assert total <= 1 + 2 * executors  # each executor and its worker


def test_os_threads_stay_bounded(rows_model: CompiledModel, tmp_path: Path) -> None:
    os_threads_after(export(rows_model, tmp_path / "rows.so"), 200)


@pytest.mark.long
def test_os_threads_after_a_thousand_threads(rows_model: CompiledModel, tmp_path: Path) -> None:
    os_threads_after(export(rows_model, tmp_path / "rows.so"), 1000)


# ------------------------------------------------------------------------------------------------ fork
FORK = """
import os, sys, threading, time
import numpy as np
from tvm_ext.runtime.model import load

compiled = load(sys.argv[1])
x = np.ones((33, 257), np.float32)
right = 2 * x + np.linspace(1, 2, 257, dtype=np.float32)
check = lambda: np.testing.assert_allclose(compiled.run(x)["y"], right, rtol=1e-6)

def in_thread():
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()

def workers_sleep():
    for task in os.listdir("/proc/self/task"):
        try:
            state = open(f"/proc/self/task/{task}/stat").read().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if int(task) != os.getpid() and state != "S":
            return False
    return True

check(), in_thread()
for asleep in (True, False, True, False):
    while asleep and not workers_sleep():  # TVM's workers spin for a while, and then wait for ever
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        for _ in range(3):
            check(), in_thread()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    check(), in_thread()
print("done")
"""


@pytest.mark.parametrize("turns", [None, "0", "300000"])
def test_fork(rows_model: CompiledModel, tmp_path: Path, turns: str | None) -> None:
    """The child runs the model, from its main and other threads, and ends; so does the parent."""
    path = export(rows_model, tmp_path / "rows.so")
    assert run_python(FORK, path, **{**UNSET, "TVM_NUM_THREADS": "2", SPIN_COUNT: turns}) == "done"


LOST_CALLERS = """
import os, sys, threading
import numpy as np
from tvm_ext.runtime.model import load

compiled = load(sys.argv[1])
x = np.ones((16, 32), np.float32)
right, pool = compiled.run(x)["y"], compiled._callers
locked = threading.Event()

def hold():
    with pool._returned:
        locked.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
locked.wait()
pool._idle.clear()  # as if other threads were in calls, with all the callers there may be
pool._made = pool._limit
child = os.fork()
if child == 0:  # those threads are gone, and with them their callers and locks
    np.testing.assert_array_equal(compiled.run(x)["y"], right)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("done")
"""


def test_fork_forgets_callers_of_other_threads(bias_model: CompiledModel, tmp_path: Path) -> None:
    assert run_python(LOST_CALLERS, export(bias_model, tmp_path / "bias.so"), **UNSET) == "done"


def test_settings_of_the_user_are_kept() -> None:
    environ: dict[str, str] = {}
    set_thread_defaults(environ)
    assert environ == {"TVM_NUM_THREADS": str(available_cores()), "TVM_BIND_THREADS": "0"}
    environ = {"TVM_NUM_THREADS": "7", "TVM_BIND_THREADS": "1"}
    set_thread_defaults(environ)
    assert environ == {"TVM_NUM_THREADS": "7", "TVM_BIND_THREADS": "1"}


SETTINGS = """
import os, sys, time
import tvm  # imported first, as a user may
import numpy as np
from tvm_ext.runtime.model import load

def threads():  # one that was joined is listed a moment longer
    count = 0
    while count != (count := len(os.listdir("/proc/self/task"))):
        time.sleep(0.05)
    return count

compiled = load(sys.argv[1])
before, cores = threads(), os.sched_getaffinity(0)
compiled.run(np.ones((33, 257), np.float32))
assert os.sched_getaffinity(0) == cores, "the main thread was pinned"
print(threads() - before)
"""


@pytest.mark.parametrize(("setting", "workers"), [(None, available_cores() - 1), ("1", 0), ("3", 2)])
def test_tvm_uses_all_cores_and_pins_nothing(
    rows_model: CompiledModel, tmp_path: Path, setting: str | None, workers: int
) -> None:
    path = export(rows_model, tmp_path / "rows.so")
    assert int(run_python(SETTINGS, path, **{**UNSET, "TVM_NUM_THREADS": setting})) == workers


# ------------------------------------------------------------------------------------------------ executors
def test_errors_reach_the_caller_with_their_traceback() -> None:
    executors = Executors(limit=1)

    def fails_deep_down() -> None:
        raise ZeroDivisionError("of the work")

    with pytest.raises(ZeroDivisionError, match="of the work") as caught:
        executors.call(fails_deep_down)
    assert "fails_deep_down" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert executors.call(lambda a, b: a + b, 1, 2) == 3  # the thread lives on


def test_executors_are_bounded_and_started_when_needed() -> None:
    executors = Executors(limit=3)
    assert len({executors.call(threading.get_ident) for _ in range(10)}) == 1
    used: set[int] = set()

    def work(_: int) -> None:
        used.add(executors.call(lambda: (threading.Event().wait(0.01), threading.get_ident())[1]))

    assert in_threads(30, work) == []
    assert 1 <= len(used) <= 3
    assert threading.get_ident() not in used


def test_a_call_within_a_call_does_not_wait_for_itself() -> None:
    executors = Executors(limit=1)
    outer, inner = executors.call(lambda: (threading.get_ident(), executors.call(threading.get_ident)))
    assert outer == inner


def test_main_thread_runs_its_own_calls() -> None:
    from tvm_ext.runtime.pool.threads import dispatcher

    here = threading.get_ident()
    assert dispatcher.call(threading.get_ident) == here
    idents: list[int] = []
    assert in_threads(1, lambda _: idents.append(dispatcher.call(threading.get_ident))) == []
    assert idents[0] not in (here, 0)


def test_an_input_error_in_a_thread_is_the_same_error(rows_model: CompiledModel) -> None:
    errors = in_threads(1, lambda _: rows_model.run(np.zeros(3, np.float32)))
    assert "the model takes [33, 257]" in str(errors[0])
