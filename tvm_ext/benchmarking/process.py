"""The parent's end of a worker: start, ask with a time-out, stop while others run, and always clean up."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import OptionError, TvmExtError
from ..runtime.waiting import SPIN_COUNT, is_own


class WorkerError(TvmExtError, RuntimeError):
    """A worker failed, died or took too long; the message is the reason that the table prints."""


#: What runs in another Python environment, and the package it makes there.
FOREIGN_FILES = ("worker.py", "contenders.py")
FOREIGN_PACKAGE = "tvm_ext_worker"


class Worker:
    """A worker process that is stopped (SIGSTOP) except while it answers.

    onnxruntime's threads spin for a while after each run, and would slow down whoever is measured next: a stopped
    process cannot.

    Args:
        threads: threads its runtime may use; set in the environment before it starts.
        command: what to run, for tests; default: the worker module.
        python: the Python that runs the worker module, if not this one. It needs numpy and a contender's packages.
            Nothing of this one's packages is seen there: only the worker's files, linked into a folder of their own.

    Raises:
        OptionError: `python` cannot be run.
    """

    def __init__(self, threads: int, command: Sequence[str] | None = None, python: str | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._folder = tempfile.TemporaryDirectory(prefix="tvm-ext-worker-")
        self._buffer = b""
        module = "tvm_ext.benchmarking.worker" if python is None else f"{FOREIGN_PACKAGE}.worker"
        env = environment(threads) if python is None else foreign_environment(threads, self._folder.name)
        self._process = subprocess.Popen(
            command or (sys.executable if python is None else runnable(python), "-m", module),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env, start_new_session=True,
        )  # fmt: skip

    def ask(self, message: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Send a message, wait for the answer, and stop the process again.

        Args:
            message: one of those that :mod:`tvm_ext.benchmarking.worker` understands.
            timeout: seconds to wait.

        Raises:
            WorkerError: it failed, died or did not answer in time. It is dead afterwards.
        """
        try:
            self._signal(signal.SIGCONT)
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._line(timeout))
        except BrokenPipeError:
            raise self._died() from None
        except ValueError as error:
            self.close()
            raise WorkerError(f"answered no JSON: {error}") from error
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            self.close()
            raise WorkerError(f"{answer['error']['type']}: {answer['error']['message']}")
        self._signal(signal.SIGSTOP)
        return dict(answer)

    def close(self) -> None:
        """End the process, stopped or not."""
        end(self._process)
        self._folder.cleanup()
        if not self._errors.closed:
            self._errors.close()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not ready.select(left):
                    raise WorkerError(f"no answer within {timeout:.0f} s")
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise self._died()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _died(self) -> WorkerError:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            self._process.kill()
            code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
        self.close()
        how = f"killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return WorkerError(how + (": " + " | ".join(last) if last else ""))


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker: the same threads for every runtime, and this very copy of the library."""
    root = str(pathlib.Path(__file__).resolve().parents[2])
    found = os.environ.get("PYTHONPATH")
    return {**_threads(threads), "PYTHONPATH": root + (os.pathsep + found if found else "")}


def foreign_environment(threads: int, folder: str) -> dict[str, str]:
    """The environment of a worker in another Python: it imports the worker's files from a package in `folder`."""
    package = pathlib.Path(folder, FOREIGN_PACKAGE)
    package.mkdir()
    for name in FOREIGN_FILES:
        (package / name).symlink_to(pathlib.Path(__file__).resolve().with_name(name))
    return {**_threads(threads), "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}


def runnable(python: str) -> str:
    """The path of a Python that `python` names.

    Raises:
        OptionError: there is no such program.
    """
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise OptionError(
            f"python={python!r}: no program that can be run", fix="give the path of a Python's executable"
        )
    return found


def _threads(threads: int) -> dict[str, str]:
    wanted = {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    kept = {name: value for name, value in os.environ.items() if name != SPIN_COUNT or not is_own(value)}
    return {"TVM_BIND_THREADS": "0", **kept, **wanted}


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, whatever it does, and wait until nothing is left of it."""
    if process.poll() is None:
        process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # unsent bytes to a dead process
                stream.close()
    process.wait()


def signal_name(number: int) -> str:
    """The name of a signal, such as "SIGSEGV"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
