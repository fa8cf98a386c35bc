"""How TVM's worker threads wait for the next kernel: they spin for a bounded time, then sleep.

TVM has one setting a process, the number of turns of the spin loop (each a sched_yield, or what :mod:`.yields` has in
its place), and reads it when the first worker of the process starts. Here it is chosen: a sleeping worker costs the
next kernel the time of waking it, so a spin of :data:`WORTH` wake-ups loses at most 1 / WORTH of any gap between
kernels that it is too short for.
"""

import math
import os
import threading
import time
from collections.abc import Callable, MutableMapping
from itertools import repeat
from typing import Any

from ...core.errors import OptionError, is_number
from . import yields
from .lost_waiters import can_release

SPIN_COUNT = "TVM_THREAD_POOL_SPIN_COUNT"
#: Behind the number (TVM's atoi stops there): the value is no user's, and a child process may choose anew.
OWN = " tvm-ext"
#: Wake-ups that the spin is worth.
WORTH = 20
#: Bounds of the measured spin, in seconds: a process that starts on a busy machine measures too much.
LEAST, MOST = 50e-6, 1e-3
#: Longest spin that may be asked for: a process ends only after its workers have spun.
LONGEST = 60.0
#: Seconds of "spin", as TVM's own turns take.
TVM_SPIN = 0.1

ThreadsWait = str | float | None
"""What `threads_wait` may be: "spin", "sleep", seconds, or None for the measured time."""


def checked_wait(value: Any) -> ThreadsWait:
    """A value of `threads_wait`.

    Raises:
        OptionError: it is none.
    """
    if value is None or (isinstance(value, str) and value in ("spin", "sleep")):
        return value
    if is_number(value) and 0 <= value <= LONGEST:
        return float(value)
    fix = "for example threads_wait=0.001; None takes what was measured"
    raise OptionError(f"threads_wait={value!r}: choose 'spin', 'sleep', or seconds from 0 to {LONGEST:.0f}", fix=fix)


def yield_seconds() -> float:
    """Seconds of one turn of the spin loop: the least of a few loops, as on a core that nobody else wants."""

    def turn(call: Callable[[], Any], turns: int = 50) -> float:
        start = time.perf_counter()
        for _ in repeat(None, turns):
            call()
        return (time.perf_counter() - start) / turns

    nothing = min(turn(threading.get_ident) for _ in range(5))
    return float(max(min(turn(os.sched_yield) for _ in range(5)) - nothing, 1e-8))


def turn_seconds() -> float:
    """Seconds of one turn of the spin loop of TVM's threads, with :mod:`.yields` where that can be."""
    if (turn := yields.turn()) is not None:
        return turn.seconds()
    return yield_seconds() if hasattr(os, "sched_yield") else 4e-7


def wake_seconds() -> float:
    """Seconds from waking a thread that slept 0.2 ms until it runs: the least of eight, half a round trip."""
    (here, to_thread), (from_thread, there) = os.pipe(), os.pipe()
    # the thread reads `here`, its answers are read from `from_thread`
    thread = threading.Thread(target=_echo, args=(here, there), daemon=True)
    thread.start()
    seconds = []
    try:
        for _ in range(8):
            time.sleep(2e-4)
            start = time.perf_counter()
            os.write(to_thread, b"x")
            os.read(from_thread, 1)
            seconds.append((time.perf_counter() - start) / 2)
    finally:
        os.close(to_thread)
        thread.join()
        for end in (here, from_thread, there):
            os.close(end)
    return min(seconds)


def _echo(source: int, sink: int) -> None:
    while os.read(source, 1):
        os.write(sink, b"x")


def spin_seconds() -> float:
    """The spin that waking is worth on this machine, in seconds: a power of two of microseconds, within bounds."""
    microseconds = 1e6 * WORTH * wake_seconds()
    return float(min(max(2.0 ** math.ceil(math.log2(microseconds)) * 1e-6, LEAST), MOST))


class Waiting:
    """The setting of one process.

    Args:
        environ: where TVM reads the number of turns; a value that the user set there is kept.
        cores: cores this process may use. Of one core a spinning worker only takes what others need.
    """

    def __init__(self, environ: MutableMapping[str, str], cores: int) -> None:
        self._environ, self._lock = environ, threading.Lock()
        self.wait: ThreadsWait = None
        self.started = False
        self.of_user = not is_own(environ.get(SPIN_COUNT, OWN))
        self._turn, self._begun = turn_seconds(), False
        if not self.of_user:
            self._write(self._measured(cores))

    @property
    def turns(self) -> int:
        """Turns of the spin loop, as TVM reads them."""
        text = self._environ[SPIN_COUNT].removesuffix(OWN)
        return int(text) if text.isdecimal() else 0

    @property
    def seconds(self) -> float:
        """How long a worker spins, on a core of its own."""
        return self.turns * self._turn

    def begin(self) -> None:
        """Before TVM's first kernel: where the runtime's turns have to stay as they are, they take longer."""
        if not self._begun:
            self._begun = True
            if yields.install() is None and yields.turn() is not None:
                seconds, self._turn = self.seconds, yield_seconds()
                if not self.of_user:
                    self._write(self._turns(seconds))

    def choose(self, value: ThreadsWait, start: Callable[[], bool]) -> None:
        """Set how the workers of this process wait, before the first one starts.

        Args:
            value: as in the option `threads_wait`; None leaves the setting as it is.
            start: starts the workers; whether they are TVM's first, as far as can be seen.

        Raises:
            OptionError: it is no such value, another one is set already, or it is too late.
        """
        if (value := checked_wait(value)) is None:
            return
        with self._lock:
            if self.wait == value:
                return
            self._refuse_another(value)
            self.begin()
            before = self._environ[SPIN_COUNT]
            self._write(self._turns({"spin": TVM_SPIN, "sleep": 0.0}[value] if isinstance(value, str) else value))
            if not start():
                self._environ[SPIN_COUNT] = before
                raise _too_late(value, "TVM's threads were started by a kernel of other code")
            self.wait, self.started = value, True

    def _refuse_another(self, value: ThreadsWait) -> None:
        if self.of_user:
            have = f"{SPIN_COUNT}={self._environ[SPIN_COUNT]} is set in the environment"
            raise OptionError(f"threads_wait={value!r}: {have}", fix="unset it, or leave threads_wait out")
        if self.wait is not None:
            fix = "the setting is one for the whole process: give every model the same"
            raise OptionError(f"threads_wait={value!r}: this process has threads_wait={self.wait!r}", fix=fix)
        if self.started:
            raise _too_late(value, "a model has run already in this process")

    def _write(self, turns: int) -> None:
        self._environ[SPIN_COUNT] = f"{turns}{OWN}"

    def _measured(self, cores: int) -> int:
        """Turns that waking is worth; TVM's own where a fork could not be carried over with sleeping workers."""
        if not can_release():
            return self._turns(TVM_SPIN)
        return self._turns(spin_seconds()) if cores > 1 else 0

    def _turns(self, seconds: float) -> int:
        return round(seconds / self._turn)


def is_own(spin_count: str) -> bool:
    """Whether a value of the variable was written by this library, in this process or in a parent of it."""
    return spin_count.endswith(OWN)


def _too_late(value: ThreadsWait, why: str) -> OptionError:
    fix = f"give it to the first model of the process, or set {SPIN_COUNT} before it starts"
    return OptionError(f"threads_wait={value!r}: too late: {why}, and TVM reads the setting once", fix=fix)
