"""Worker processes: asked, stopped in between, and every way to fail turned into a reason."""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.onnx_graphs import saved
from tests.verification.fakes import dense_model
from tvm_ext.benchmarking.process import Worker, WorkerError, environment
from tvm_ext.core.errors import OptionError
from tvm_ext.verification.arrays import save_npz

FAKE = str(pathlib.Path(__file__).with_name("fake_worker.py"))


@pytest.fixture
def start():
    workers = []

    def make(mode, threads=3):
        workers.append(Worker(threads, [sys.executable, FAKE, mode]))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def state(worker):
    """Linux's letter of the process state: T is stopped."""
    return pathlib.Path(f"/proc/{worker._process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for_stop(worker):
    end = time.monotonic() + 120
    while state(worker) not in "TZ" and time.monotonic() < end:  # stopped, or ended
        time.sleep(0.01)
    return state(worker)


def test_a_worker_answers_and_is_stopped_between_questions(start):
    worker = start("echo")
    for number in range(3):
        assert worker.ask({"round": number}, 30) == {"echo": {"round": number}, "threads": "3"}
        assert wait_for_stop(worker) == "T"


def test_close_ends_a_stopped_worker(start):
    worker = start("echo")
    worker.ask({}, 30)
    worker.close()
    assert worker._process.returncode == -9
    worker.close()  # twice is no harm


@pytest.mark.parametrize(
    ("mode", "timeout", "reason"),
    [("crash", 30, "killed by SIGSEGV: about to crash"), ("exit", 30, "ended with exit code 3: giving up"),
     ("garbage", 30, "answered no JSON"), ("error", 30, "ValueError: wrong"), ("hang", 0.3, "no answer within")],
)  # fmt: skip
def test_failures_are_reasons_and_a_hang_ends_at_the_time_out(start, mode, timeout, reason):
    worker = start(mode)
    with pytest.raises(WorkerError, match=reason):
        worker.ask({}, timeout)
    assert worker._process.poll() is not None


def test_asking_a_dead_worker_is_a_reason_too(start):
    worker = start("echo")
    worker._process.kill()
    worker._process.wait()
    with pytest.raises(WorkerError, match="killed by SIGKILL"):
        worker.ask({"x": "y" * 100_000}, 5)


def test_environment_gives_threads_and_keeps_the_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    env = environment(5)
    assert env["TVM_NUM_THREADS"] == env["OMP_NUM_THREADS"] == "5"
    first, last = env["PYTHONPATH"].split(os.pathsep)
    assert (pathlib.Path(first) / "tvm_ext" / "__init__.py").is_file() and last == "/elsewhere"


def test_another_python_must_exist():
    with pytest.raises(OptionError, match="/no/such/python"):
        Worker(1, python="/no/such/python")


ORPHAN = """
import os, signal, sys
from tvm_ext.benchmarking.process import Worker
worker = Worker(1)
worker.ask({"contender": "onnxruntime", "model": sys.argv[1], "threads": 1, "options": {},
            "inputs": sys.argv[2], "outputs": sys.argv[3]}, 60)
print(worker._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_stopped_worker_dies_with_its_parent(tmp_path):
    save_npz(tmp_path / "in.npz", {"x": np.zeros((3, 7), np.float32)})
    files = [saved(dense_model()[0], tmp_path / "m.onnx"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    done = subprocess.run([sys.executable, "-c", ORPHAN, *files], env=environment(1), capture_output=True, timeout=120)
    assert done.returncode == -9, done.stderr
    stat = pathlib.Path(f"/proc/{int(done.stdout)}/stat")
    end = time.monotonic() + 120
    while alive(stat) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(stat)


def alive(stat):
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"  # dead, and not yet collected by init
    except (FileNotFoundError, ProcessLookupError):
        return False
