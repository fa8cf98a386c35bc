"""Cases in worker processes, so that a crash or an endless loop costs one case and is an outcome like any other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tests.onnx_backend.pool import Lost, Worker, outcomes

from .cases import Case
from .judge import Outcome
from .worker import MODULE

SECONDS = 60.0


class Judge:
    """One worker that lives as long as its cases let it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def __call__(self, case: Case) -> Outcome:
        """The outcome of a case."""
        self._worker = self._worker or Worker(MODULE)
        try:
            return read(self._worker.run(case, SECONDS))
        except Lost as lost:
            self._worker = None
            return read(str(lost))

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.close()


def judged(cases: Iterable[Case], workers: int = 2) -> Iterator[tuple[Case, Outcome]]:
    """Every case with its outcome, as they finish."""
    for case, line in outcomes(cases, workers, SECONDS, MODULE):
        yield case, read(line)


def read(line: str) -> Outcome:
    """The outcome that a worker's line says, or that the pool says of a lost one ("crash: SIGSEGV")."""
    if line.startswith("["):
        return Outcome(*json.loads(line))
    kind, _, reason = line.partition(": ")
    return Outcome(kind, reason)
