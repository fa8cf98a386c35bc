"""What stands in the place of sched_yield in TVM's runtime: how often it yields; calls, forks and exits go on."""

import ctypes
from pathlib import Path

import pytest

from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.pool import worker_pool, yields
from tvm_ext.runtime.pool.worker_pool import WorkerPool

from ..processes import run_python
from ..programs import export

pytestmark = pytest.mark.skipif(yields.turn() is None, reason="x86-64 Linux, where memory may become code")


def test_by_the_clock_or_in_every_turn() -> None:
    calls = []
    count = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: calls.append(1) or 17)
    turn = yields.Turn(ctypes.cast(count, ctypes.c_void_p).value)
    once = ctypes.CFUNCTYPE(ctypes.c_int)(turn.address)
    turn._loop()
    assert len(calls) < yields._TURNS / 10
    turn.yield_always(True)
    calls.clear()
    turn._loop()
    assert len(calls) == yields._TURNS and once() == 17
    turn.yield_always(False)
    assert min(once() for _ in range(100)) == 0


INSTALLED = """
import ctypes, os, sys
import numpy as np
from tvm_ext.runtime.model import load
from tvm_ext.runtime.pool import yields

compiled, x = load(sys.argv[1]), np.ones((33, 257), np.float32)
right = compiled.run(x)["y"]
assert yields.install() is yields.turn() is not None
assert ctypes.c_uint64.from_address(yields._slot()).value == yields.turn().address
child = os.fork()
if not child:
    same = np.array_equal(compiled.run(x)["y"], right)
    os._exit(0 if same and not yields.turn()._always.value else 1)
assert os.waitpid(child, 0)[1] == 0
yields.yield_always(True)
assert np.array_equal(compiled.run(x)["y"], right)
print("done")
"""


def test_a_process_calls_forks_and_ends(rows_model: CompiledModel, tmp_path: Path) -> None:
    environment = {"TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": None, "TVM_THREAD_POOL_SPIN_COUNT": None}
    if worker_pool._room() < 1:
        environment["TVM_NUM_THREADS"] = "1"
    assert run_python(INSTALLED, export(rows_model, tmp_path / "rows.so"), **environment) == "done"


@pytest.mark.parametrize(("room", "expected"), [(0, [True, True, True, False]), (1, [True, False]), (2, [])])
def test_every_turn_yields_where_threads_are_more_than_cores(
    monkeypatch: pytest.MonkeyPatch, room: int, expected: list[bool]
) -> None:
    """In a call, in one of another pool inside it, and behind either."""
    told: list[bool] = []
    monkeypatch.setattr(worker_pool, "_room", lambda: room)
    monkeypatch.setattr(worker_pool, "running", set())
    monkeypatch.setattr(yields, "yield_always", told.append)
    outer, inner = WorkerPool(), WorkerPool()
    outer.call(inner.call, int)
    assert told == expected and not worker_pool.running


def test_no_slot_that_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yields, "_jump_slots", lambda base: iter([0]))
    assert yields._slot() is None
    monkeypatch.setattr(yields, "_LIBRARY", "/no-such-library.so")
    assert yields._slot() is None


@pytest.mark.parametrize("error", [FileNotFoundError, KeyError])
def test_without_proc_or_jump_slots_turns_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, error: type) -> None:
    def missing() -> None:
        raise error

    monkeypatch.setattr(yields, "_slot", missing)
    assert yields.install.__wrapped__() is None
