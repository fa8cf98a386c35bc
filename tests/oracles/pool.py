"""The parent's end: a few persistent workers; a crash or a time-out costs one case, and a new worker.

A worker that is left over serves the next call of its service: to start one takes as long as many cases.
"""

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from tvm_ext.benchmarking.process import end, environment, signal_name

from .outcome import Outcome

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0
#: Seconds of the clock for each second of CPU time that a task may take: on a busy machine it waits.
_WAITS = 20
#: Workers side by side; one for each of the processes of a parallel run of the tests.
WORKERS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
#: The system ends a worker with the thread that started it: this one lives as long as the process.
_STARTER = ThreadPoolExecutor(1, "oracles")
Task = TypeVar("Task")


@dataclass(frozen=True)
class Service:
    """What workers do.

    Attributes:
        answer: a function of a module, which takes a task and gives its outcome.
        seconds: of CPU time that a task may take, and twenty times as many of the clock.
        memory: bytes of address space of a worker, of which TVM, LLVM and their threads take a gibibyte and a half.
        compiles: whether `answer` compiles models, so that workers import TVM before the first task.
    """

    answer: Callable[[Any], Outcome]
    seconds: float = 60.0
    memory: int = 24 << 30
    compiles: bool = True


class Lost(Exception):
    """A worker is gone; `outcome` is that of its case."""

    def __init__(self, kind: str, reason: str) -> None:
        self.outcome = Outcome(kind, reason)
        super().__init__(str(self.outcome))


class Worker:
    """One process of a service."""

    def __init__(self, service: Service) -> None:
        self._seconds, answer = service.seconds, service.answer
        command = (os.getpid(), answer.__module__, answer.__name__, service.memory, int(service.compiles))
        self._process = _STARTER.submit(
            subprocess.Popen, (sys.executable, "-m", "tests.oracles.worker", *map(str, command)), cwd=_ROOT,
            env=environment(1), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        ).result()  # fmt: skip
        self._answer(_START_SECONDS)

    def run(self, task: Any) -> Outcome:
        """The outcome of a task.

        Raises:
            Lost: the process died, or took too long and was killed.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what ended it is found when its answer is waited for
            pickle.dump(task, self._process.stdin)
            self._process.stdin.flush()
        return self._answer(self._seconds)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        end(self._process)

    def _answer(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        used, waits = _cpu_seconds(self._process.pid), 0
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while not ready.select(seconds / 4):  # time that both processes are stopped for is one wait
                waits += 1
                if _cpu_seconds(self._process.pid) - used > seconds or waits > 4 * _WAITS:
                    self.close()
                    raise Lost("hang", f"no answer in {seconds:g} s")
        try:
            return pickle.load(self._process.stdout)
        except EOFError:
            code = self._process.wait()
            self.close()
            raise Lost("crash", signal_name(-code) if code < 0 else f"exit code {code}") from None


def _cpu_seconds(process: int) -> float:
    """CPU time of a process and its threads, of user and kernel; other work on the machine does not count."""
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Judge:
    """One worker after the other, as long as its cases let it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._worker: Worker | None = None

    def __call__(self, task: Any) -> Outcome:
        """The outcome of a task, that of a lost worker too."""
        self._worker = self._worker or Worker(self.service)
        try:
            return self._worker.run(task)
        except Lost as lost:
            self._worker = None
            return lost.outcome

    @property
    def is_ready(self) -> bool:
        """Whether its worker waits for a task: nobody has killed it meanwhile."""
        return self._worker is not None and self._worker.runs

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.close()


#: Judges of the last service that was called, none of which has a task.
_IDLE: list[Judge] = []
_LOCK = threading.Lock()


def _judge_of(service: Service) -> Judge:
    """A judge that served the same before, else a new one; those of other services are ended."""
    with _LOCK:
        for judge in [*_IDLE]:
            _IDLE.remove(judge)
            if judge.service == service and judge.is_ready:
                return judge
            judge.close()
    return Judge(service)


def outcomes(service: Service, tasks: Iterable[Task], workers: int = WORKERS) -> Iterator[tuple[Task, Outcome]]:
    """Every task with its outcome, as they finish. Whoever stops listening ends the workers.

    Args:
        workers: processes side by side; none is started where there are no tasks.
    """
    todo = list(tasks)
    left: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    for task in (*todo, *[None] * workers):
        left.put(task)
    done: queue.SimpleQueue[tuple[Task, Outcome] | Exception] = queue.SimpleQueue()
    stop = threading.Event()
    threads = [threading.Thread(target=_serve, args=(service, left, done.put, stop)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for _ in todo:
            result = done.get()
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _serve(
    service: Service,
    left: queue.SimpleQueue[Task | None],
    tell: Callable[[tuple[Task, Outcome] | Exception], None],
    stop: threading.Event,
) -> None:
    """Run tasks in one worker after the other until there are none."""
    judge = None
    try:
        while (task := left.get()) is not None and not stop.is_set():
            judge = judge or _judge_of(service)
            tell((task, judge(task)))
    except Exception as error:
        tell(error)
        if judge is not None:
            judge.close()
    else:
        with _LOCK:
            _IDLE.extend([judge] if judge is not None else [])
