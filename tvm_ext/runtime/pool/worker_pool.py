"""TVM's pool of worker threads of one thread: started, kept off the caller's core, carried over a fork."""

import contextlib
import ctypes
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..cpu import available_cores, cpu_flags
from ..tvm_runtime import runtime_symbols
from . import yields
from .lost_waiters import released

#: Seconds without a call after which workers are kept off the caller's core: the host may have taken their cores.
ASLEEP = 2e-3
#: Seconds of spinning that outlast a fork.
LASTS = 0.05
_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

#: Pools that run a call now, by identity.
running: set[int] = set()

Cores = Mapping[int, set[int]]
"""OS thread -> cores it may use."""


class WorkerPool:
    """The pool of the thread that calls its methods, and of no other."""

    def __init__(self) -> None:
        self._workers: tuple[int, ...] | None = None
        self._rested, self._room = math.inf, -1

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function that may run parallel kernels; raises what it raises."""
        asleep = time.perf_counter() - self._rested > ASLEEP
        usual = self.keep_off() if asleep and steers() else {}
        if self._room < 0:
            self._room = _room()
        running.add(id(self))
        if crowded := len(running) > self._room:
            yields.yield_always(True)
        try:
            return function(*arguments)
        finally:
            running.discard(id(self))
            if crowded:
                yields.yield_always(len(running) > self._room)
            if usual:
                _allow(usual)
            self._rested = time.perf_counter()

    def start(self) -> bool:
        """Start the workers; whether there were none before. True as well where TVM uses no worker at all."""
        before = _os_threads()
        workers = self._started()
        return not workers or not before.issuperset(workers)

    def keep_off(self) -> Cores:
        """Keep sleeping workers off this thread's core for a call; the cores they may use otherwise.

        In a virtual machine Linux takes a core that idles for one that the host has given to others, and wakes a worker
        on the core of its caller instead; they share it until the next balancing, some milliseconds later.
        """
        try:
            here = runtime_symbols().sched_getcpu()
            usual = {worker: os.sched_getaffinity(worker) for worker in self._started()}
        except OSError:  # a worker that is gone: other code has reset the pool
            return {}
        usual = {worker: cores for worker, cores in usual.items() if here in cores and len(cores) > 1}
        _allow({worker: cores - {here} for worker, cores in usual.items()})
        return usual

    def before_fork(self, spin: float) -> None:
        """Bring the workers into a state that lasts, while this thread forks.

        Args:
            spin: seconds that they spin. If it is long they are made to spin once more, else they get to sleep.
        """
        _launch_empty()
        if spin < LASTS:
            deadline = time.perf_counter() + 1.0
            while time.perf_counter() < deadline and not all(map(_sleeps, self._started())):
                time.sleep(spin / 4)

    def after_fork_in_child(self) -> None:
        """Give the child's pool new workers, before any thread can take the place of a lost one.

        Without it the child hangs in its next parallel kernel, and when it exits in joining threads that are not there.
        """
        self._workers = None
        with released():
            runtime_symbols()._ZN3tvm7runtime9threading15ResetThreadPoolEv()  # tvm::runtime::threading::ResetThreadPool

    def _started(self) -> tuple[int, ...]:
        """OS threads of the workers, which are started if they were not."""
        if self._workers is None:
            seen: set[int] = set()

            def note(*_: Any) -> int:
                seen.add(threading.get_native_id())
                return 0

            runtime_symbols().TVMBackendParallelLaunch(_TASK(note), None, 0)
            self._workers = tuple(seen - {threading.get_native_id()})
        return self._workers


@functools.cache
def _room() -> int:
    """Pools whose threads have a core each."""
    threads = os.environ.get("TVM_NUM_THREADS", "")
    return available_cores() // max(int(threads), 1) if threads.isdecimal() else 1


@functools.cache
def steers() -> bool:
    """Whether :meth:`WorkerPool.keep_off` is of use: Linux, in a virtual machine."""
    return hasattr(os, "sched_setaffinity") and "hypervisor" in cpu_flags()


def _launch_empty() -> None:
    """Run an empty task on all threads of the pool: a barrier, which every worker must reach."""
    symbols = runtime_symbols()
    symbols.TVMBackendParallelLaunch(symbols.TVMBackendParallelBarrier, None, 0)


def _allow(cores: Cores) -> None:
    for thread, mask in cores.items():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, mask)


def _sleeps(thread: int) -> bool:
    try:
        with open(f"/proc/self/task/{thread}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return True


def _os_threads() -> set[int]:
    """OS threads of this process, where that can be seen."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return set()
