"""A place for a worker: its process, what it does now, and what it has built; a dead process is replaced."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...benchmarking.process import Died, WorkerProcess

#: Seconds in which a worker must have imported what it needs.
START_TIMEOUT = 120.0


@dataclass(frozen=True)
class Job:
    """What a worker was asked for.

    Attributes:
        kind: "start", "reference", "build" or "run".
        trial: number of the candidate; -1 if it is about none.
        started, timeout: seconds of the monotonic clock.
    """

    kind: str
    trial: int
    timeout: float
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        return self.timeout - self.seconds


class Slot:
    """One worker at a time.

    Args:
        start: makes a process.
        hello: its first message.

    Attributes:
        job: what the worker does; None if it waits.
        built: numbers of the candidates that it has built and not run.
        known: tasks it knows.
    """

    def __init__(self, start: Callable[[], WorkerProcess], hello: Mapping[str, Any]) -> None:
        self._start, self._hello = start, hello
        self._new()

    def _new(self) -> None:
        self.process = self._start()
        self.built: list[int] = []
        self.known: set[str] = set()
        self.job: Job | None
        with contextlib.suppress(Died):  # whoever waits for its answer will know
            self.process.send({"do": "start", **self._hello})
        self.job = Job("start", -1, START_TIMEOUT)

    def ask(self, kind: str, trial: int, timeout: float, message: Mapping[str, Any]) -> None:
        """Send a job to the worker, which must be waiting.

        Raises:
            Died: it has ended.
        """
        self.process.send({"do": kind, "trial": trial, **message})
        self.job = Job(kind, trial, timeout)

    def replace(self) -> list[int]:
        """A new worker in the place of this one; returns what the old one had built."""
        lost = self.built
        self.process.close()
        self._new()
        return lost
