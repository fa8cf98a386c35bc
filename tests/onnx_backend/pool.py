"""The parent's end: a few persistent workers; a crash or a time-out costs one case, and a new worker.

A worker's module says "ready", then answers each pickled task of its standard input with a line.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import queue
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tvm_ext.benchmarking.process import end, environment, signal_name

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS, CASE_SECONDS = 120.0, 60.0
#: The module that runs ONNX's cases: a task is a contender and a case.
MODULE = "tests.onnx_backend.worker"
Task = TypeVar("Task")


class Lost(Exception):
    """A worker is gone; the message is the outcome of its case."""


class Worker:
    """One process of a worker's module."""

    def __init__(self, module: str = MODULE) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", module, str(os.getpid())), cwd=ROOT, env=environment(1),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._answer(START_SECONDS)

    def run(self, task: Any, seconds: float) -> str:
        """The outcome of a task.

        Raises:
            Lost: the process died, or took too long and was killed.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what ended it is found when its answer is waited for
            pickle.dump(task, self._process.stdin)
            self._process.stdin.flush()
        return self._answer(seconds)

    def close(self) -> None:
        """End the process."""
        end(self._process)

    def _answer(self, seconds: float) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            if not ready.select(seconds):
                self.close()
                raise Lost(f"hang: no answer in {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self.close()
            raise Lost(f"crash: {signal_name(-code)}" if code < 0 else f"crash: exit code {code}")
        return line.decode().strip()


def outcomes(
    tasks: Iterable[Task], workers: int = 2, seconds: float = CASE_SECONDS, module: str = MODULE
) -> Iterator[tuple[Task, str]]:
    """Every task with its outcome, as they finish. Whoever stops listening ends the workers.

    Args:
        tasks: what a worker takes.
        workers: processes side by side.
        seconds: that a task may take.
        module: the workers'.
    """
    left: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    given = list(tasks)
    for task in (*given, *[None] * workers):
        left.put(task)
    done: queue.SimpleQueue[tuple[Task, str] | Exception] = queue.SimpleQueue()
    stop = threading.Event()
    threads = [threading.Thread(target=_serve, args=(left, done.put, stop, seconds, module)) for _ in range(workers)]
    for thread in threads:  # the system ends a worker with the thread that started it
        thread.start()
    try:
        for _ in given:
            found = done.get()
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _serve(
    left: queue.SimpleQueue[Task | None],
    tell: Callable[[tuple[Task, str] | Exception], None],
    stop: threading.Event,
    seconds: float,
    module: str,
) -> None:
    """Run tasks in one worker after the other until there are none."""
    worker = None
    try:
        while (task := left.get()) is not None and not stop.is_set():
            worker = worker or Worker(module)
            try:
                tell((task, worker.run(task, seconds)))
            except Lost as lost:
                worker = None
                tell((task, str(lost)))
    except Exception as error:
        tell(error)
    finally:
        if worker is not None:
            worker.close()
