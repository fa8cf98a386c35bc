"""Where a call runs: TVM's thread settings, and long-lived threads for calls that use TVM's thread pool.

TVM keeps a pool of worker threads for each thread that ever ran a parallel kernel. A short-lived thread must
therefore never run one itself: it hands the call to one of a few threads that live as long as the process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, MutableMapping
from queue import SimpleQueue
from typing import Any

from ..cpu import available_cores as available_cores
from .waiting import ThreadsWait, Waiting
from .worker_pool import WorkerPool, running


def set_thread_defaults(environ: MutableMapping[str, str] = os.environ) -> None:
    """Give TVM every core this process may use, and let the scheduler place its threads.

    TVM reads both when a thread runs its first parallel kernel. By itself it takes half the cores and pins the
    calling thread, and every thread it starts later inherits that. A value the user set is kept.
    """
    environ.setdefault("TVM_NUM_THREADS", str(available_cores()))
    environ.setdefault("TVM_BIND_THREADS", "0")


set_thread_defaults()
waiting = Waiting(os.environ, available_cores())
"""How the workers of this process wait."""


class _Job:
    """One call on its way through an executor thread; `done` is held until it has run."""

    __slots__ = ("arguments", "done", "error", "function", "result")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def run(self, pool: WorkerPool) -> None:
        try:
            self.result = pool.call(self.function, *self.arguments)
        except BaseException as error:
            self.error = error
        finally:
            self.done.release()

    def wait(self) -> Any:
        self.done.acquire()
        if self.error is None:
            return self.result
        try:
            raise self.error
        finally:
            self.error = None  # the traceback holds this frame: break the cycle


class Executors:
    """A bounded set of long-lived daemon threads, started when calls wait for one.

    Args:
        limit: threads at most. More would only share the cores: each one's kernels already use them all.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._idents: set[int] = set()
        self._started = 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function(*arguments)` in one of the threads and return, or raise, what it does."""
        if threading.get_ident() in self._idents:  # a kernel that calls a model: waiting would be a deadlock
            return function(*arguments)
        job = _Job(function, arguments)
        with self._lock:
            self._unfinished += 1
            start = self._started < min(self._unfinished, self._limit)
            self._started += start
        if start:
            threading.Thread(target=self._work, name=f"tvm-ext-{self._started}", daemon=True).start()
        self._jobs.put(job)
        return job.wait()

    def renewed(self) -> Executors:
        """Executors of the same limit with no thread yet."""
        return Executors(self._limit)

    def _work(self) -> None:
        self._idents.add(threading.get_ident())
        pool = WorkerPool()
        while True:
            job = self._jobs.get()
            job.run(pool)
            del job  # its arrays must not live until the next one comes
            with self._lock:
                self._unfinished -= 1


class Dispatcher:
    """Decides where a parallel call runs: the main thread runs its own, all others use the executors."""

    def __init__(self) -> None:
        self._executors = Executors(max(2, min(4, available_cores() // 4)))
        self._inline = threading.main_thread().ident
        self._used_inline = False
        self._pool = WorkerPool()
        self._forking: WorkerPool | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork_in_child)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function that may run parallel kernels; raises what it raises."""
        if not waiting.started:
            waiting.begin()
            waiting.started = True
        if threading.get_ident() == self._inline:
            self._used_inline = True
            return self._pool.call(function, *arguments)
        return self._executors.call(function, *arguments)

    def choose_wait(self, value: ThreadsWait) -> None:
        """Set how the worker threads of this process wait, and start those of this call's thread with it.

        Raises:
            OptionError: see :meth:`tvm_ext.runtime.pool.waiting.Waiting.choose`.
        """
        waiting.choose(value, lambda: bool(self.call(WorkerPool().start)))

    def _before_fork(self) -> None:
        self._forking = self._pool if self._used_inline and threading.get_ident() == self._inline else None
        if self._forking is not None:
            self._forking.before_fork(waiting.seconds)

    def _after_fork_in_child(self) -> None:
        """Of all threads, the child has only the one that forked: it is the main thread now."""
        self._executors = self._executors.renewed()
        running.clear()
        if self._forking is not None:
            self._forking.after_fork_in_child()
        self._pool = self._forking or WorkerPool()
        self._inline, self._used_inline = threading.main_thread().ident, self._forking is not None


dispatcher = Dispatcher()
"""The one of this process."""
