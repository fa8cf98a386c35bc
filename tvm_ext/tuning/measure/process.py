"""The parent's end of a worker process: start it, send, look for an answer without waiting, end it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from ...benchmarking.process import end, environment, signal_name

#: Bytes of a worker's last words that are read.
_LAST_WORDS = 2000


class Died(Exception):
    """A worker process ended; the message says how, and its last words."""


class WorkerProcess:
    """One worker, in a session of its own, so that Ctrl-C reaches only the parent.

    Args:
        threads: of TVM's pool in it.
    """

    def __init__(self, threads: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._buffer = b""
        self._paused = False
        # Packing weights multiplies matrices: a second pool of threads would spin beside TVM's.
        env = {**environment(threads), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tvm_ext.tuning.measure.worker", str(os.getpid())),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """For selectors: readable when there is an answer, or the process has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to a worker that waits for one, paused or not.

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

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def answer(self) -> dict[str, Any] | None:
        """The answer, if it is there.

        Raises:
            Died: the process has ended, or wrote something else.
        """
        with selectors.DefaultSelector() as ready:
            ready.register(self, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not ready.select(0):
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

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            return "closed its pipe"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LAST_WORDS))
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
        return (f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}") + "".join(
            f" | {line.strip()}" for line in last
        )
