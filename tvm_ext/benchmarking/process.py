"""The parent's end of a worker: start, ask with a time-out, stop while others run, and always clean up."""

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
from ..runtime.pool.waiting import SPIN_COUNT, is_own


class WorkerError(TvmExtError, RuntimeError):
    """A worker failed, died or took too long; the message is the reason that the table prints."""


class Died(Exception):
    """A worker process ended; the message says how, and its last words."""


#: Bytes of a worker's last words that are read.
_LAST_WORDS = 2000
#: What runs in another Python environment, and the package it makes there.
FOREIGN_FILES = ("worker.py", "contenders.py")
FOREIGN_PACKAGE = "tvm_ext_worker"


class WorkerProcess:
    """A process that answers lines of JSON, in a session of its own, so that Ctrl-C reaches only the parent.

    Args:
        command: what to run.
        environ: its environment.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._buffer = b""
        self._paused = False
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environ,
            start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """For selectors: readable when there is an answer, or the process has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to a process that waits for one, paused or not.

        Raises:
            Died: nobody reads it.
        """
        assert self._process.stdin is not None
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused = False
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Died(self._last_words()) from None

    def pause(self) -> None:
        """Stop it until the next message. The threads of its pool look for work for some tenths of a second after a
        kernel, on a core that another worker's kernel may need: then that kernel's threads share one core, and it
        takes twice as long."""
        if not self._paused:
            self._signal(signal.SIGSTOP)
            self._paused = True

    def answer(self, timeout: float = 0.0) -> dict[str, Any] | None:
        """The answer, if it is there within so many seconds.

        Raises:
            Died: the process has ended, or wrote something else.
        """
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as ready:
            ready.register(self, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not ready.select(max(deadline - time.monotonic(), 0)):
                    return None
                chunk = os.read(self.fileno(), 1 << 16)
                if not chunk:
                    raise Died(self._last_words())
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return dict(json.loads(line))
        except ValueError:
            raise Died(f"answered no JSON: {line[:80]!r}") from None

    def close(self) -> None:
        """End the process, whatever it does, and leave nothing of it."""
        end(self._process)
        self._errors.close()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.kill(self.pid, number)

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            return "closed its pipe"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LAST_WORDS))
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
        how = f"killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return how + (": " + " | ".join(map(str.strip, last)) if last else "")


class Worker(WorkerProcess):
    """A contender's process, which is stopped (SIGSTOP) except while it answers.

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
        self._folder = tempfile.TemporaryDirectory(prefix="tvm-ext-worker-")
        module = "tvm_ext.benchmarking.worker" if python is None else f"{FOREIGN_PACKAGE}.worker"
        environ = environment(threads) if python is None else foreign_environment(threads, self._folder.name)
        started = command or (sys.executable if python is None else runnable(python), "-m", module)
        super().__init__(started, environ)

    def ask(self, message: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Send a message, wait for the answer, and stop the process again.

        Args:
            message: one of those that :mod:`tvm_ext.benchmarking.worker` understands.
            timeout: seconds to wait.

        Raises:
            WorkerError: it failed, died or did not answer in time. It is dead afterwards.
        """
        try:
            self.send(message)
            answer = self.answer(timeout)
            if answer is None:
                raise WorkerError(f"no answer within {timeout:.0f} s")
            if "error" in answer:
                raise WorkerError(f"{answer['error']['type']}: {answer['error']['message']}")
        except Died as died:
            self.close()
            raise WorkerError(str(died)) from None
        except BaseException:
            self.close()
            raise
        self.pause()
        return answer

    def close(self) -> None:
        """End the process, stopped or not."""
        super().close()
        self._folder.cleanup()


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker: the same threads for every runtime, and this very copy of the library."""
    root = str(pathlib.Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**_threads(threads), "PYTHONPATH": root + (os.pathsep + path if path else "")}


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
    executable = shutil.which(os.path.expanduser(python))
    if executable is None:
        raise OptionError(
            f"python={python!r}: no program that can be run", fix="give the path of a Python's executable"
        )
    return executable


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
