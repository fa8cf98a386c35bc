"""Python processes whose end no wait overlooks; of them, a tracker and servers of TVM's RPC on loopback."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

#: Seconds that something may take on a machine that does much else.
PATIENCE = 300


class Process:
    """A Python process, the leader of its group. What it prints goes to files: nothing waits for a pipe."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  # `end` closes them
        self._popen = subprocess.Popen(
            [sys.executable, *arguments], stdout=self._out, stderr=self._err, start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        self.pid, self._ours = self._popen.pid, False

    @property
    def code(self) -> int | None:
        """The exit code; None of a process that runs, and of one that :meth:`end` has ended."""
        return None if self._ours else self._popen.poll()

    def __str__(self) -> str:
        return f"process {self.pid}, exit code {self.code}: {_text(self._err)}"

    def line(self) -> str:
        """The first line that it prints.

        Raises:
            AssertionError: it ended without one, or is silent for too long.
        """
        until(lambda: "\n" in _text(self._out), self)
        return _text(self._out).partition("\n")[0]

    def send(self, number: int) -> None:
        """A signal to the process alone."""
        self._popen.send_signal(number)

    def wait(self) -> None:
        """Until it has ended."""
        self._popen.wait(PATIENCE)

    def end(self) -> None:
        """Kill all processes of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._ours = self._ours or self.code is None
        self._popen.wait()
        self._out.close()
        self._err.close()


def _text(file: IO[bytes]) -> str:
    """What is written so far; the position, which the writer shares, stays."""
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")


def until(condition: Callable[[], bool], *processes: Process) -> None:
    """Wait for something that these processes bring about.

    Raises:
        AssertionError: one of them ended by itself, or it takes too long; with what all of them wrote to stderr.
    """
    late = time.monotonic() + PATIENCE
    while True:
        ended = _ended(processes)
        if condition():
            return
        assert not ended, ended
        assert time.monotonic() < late, "\n".join(("it takes too long", *map(str, processes)))
        time.sleep(0.05)


def _ended(processes: Iterable[Process]) -> str:
    return "\n".join(str(process) for process in processes if process.code is not None)


#: Of no other fleet: a server that lost its tracker would register with the next one at the same port.
KEY = f"loopback-{secrets.token_hex(4)}"
#: TVM's tracker in this process: it takes the first port that it can bind, of those that Linux lends to no client. With
#: `reuse_addr` two sockets could be bound to a port, until one listens.
_TRACKER = """
from tvm.rpc.tracker import PopenTrackerServerState
state = PopenTrackerServerState("127.0.0.1", 10000, 32000, silent=True, reuse_addr=False)
print(state.port, flush=True)
state.thread.join()
"""
#: TVM's server in this process, for the port of a tracker and a key.
SERVER = """
import sys
from tvm.rpc.server import PopenRPCServerState
at = {"tracker_addr": ("127.0.0.1", int(sys.argv[1])), "key": sys.argv[2]}
PopenRPCServerState("127.0.0.1", 10000, 32000, **at, silent=True, reuse_addr=False).thread.join()
"""


@contextmanager
def tracked(servers: int, code: str = SERVER) -> Iterator[tuple[int, Sequence[Process]]]:
    """The port of a tracker, and servers under `KEY`, of two threads each. `Process.end` ends one earlier.

    Raises:
        AssertionError: one of them ended by itself, before or within the body; with what it wrote to stderr.
    """
    from tvm_ext.tuning.measure import MeasureError
    from tvm_ext.tuning.measure.rpc import servers_of

    def count() -> int:
        try:
            return servers_of("127.0.0.1", port, KEY)
        except MeasureError:  # there is none yet
            return 0

    processes = [Process("-c", _TRACKER)]
    try:
        port = int(processes[0].line())
        threads = {"TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": "0"}
        processes += [Process("-c", code, str(port), KEY, **threads) for _ in range(servers)]
        until(lambda: count() == servers, *processes)
        yield port, processes[1:]
        assert not _ended(processes), _ended(processes)
    finally:
        for process in processes:
            process.end()
