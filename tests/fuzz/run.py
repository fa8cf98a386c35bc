"""Mutants through workers: compiled in one process, judged by onnxruntime in another; either may crash."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterable, Iterator

from tests.onnx_backend.pool import Lost, Worker, outcomes

from .mutants import Mutant
from .worker import MODULE, Task

#: That a file may take to be refused, or compiled and run.
SECONDS = 30.0


def judged(mutants: Iterable[Mutant], workers: int = 1) -> Iterator[tuple[Mutant, str]]:
    """Every mutant with its outcome: one of :mod:`.compiling`, or for what was compiled one of :mod:`.reference`.

    What disagrees is compiled again without Winograd convolution, which is documented to spread a NaN; what crashed or
    hung is tried once more by itself, since what ran before it may be to blame.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-ext-fuzz-") as folder:
        compiled: list[Mutant] = []
        for (_, mutant, path), outcome in _in_pool("compile", mutants, folder, workers):
            if outcome == "compiled":
                compiled.append(mutant)
            else:
                yield mutant, _again(mutant, path, outcome) if outcome.startswith(("crash", "hang")) else outcome
        wrong = {}
        for (_, mutant, _), outcome in _in_pool("judge", compiled, folder, workers):
            if outcome.startswith("wrong"):
                wrong[mutant.number] = (mutant, outcome)
            else:
                yield mutant, _of_judge(outcome)
        yield from _without_winograd(wrong, folder, workers)


def _in_pool(what: str, mutants: Iterable[Mutant], folder: str, workers: int) -> Iterator[tuple[Task, str]]:
    tasks: list[Task] = [(what, mutant, str(pathlib.Path(folder, str(mutant.number)))) for mutant in mutants]
    return outcomes(tasks, workers, SECONDS, MODULE) if tasks else iter(())


def _of_judge(outcome: str) -> str:
    """What ends onnxruntime's process is none of ours."""
    return f"alone: onnxruntime: {outcome}" if outcome.startswith(("crash", "hang", "failed")) else outcome


def _without_winograd(wrong: dict[int, tuple[Mutant, str]], folder: str, workers: int) -> Iterator[tuple[Mutant, str]]:
    again = []
    for (_, mutant, _), outcome in _in_pool("compile exact", [m for m, _ in wrong.values()], folder, workers):
        if outcome == "compiled":
            again.append(mutant)
        else:
            yield mutant, f"{wrong[mutant.number][1]}; exact: {outcome}"
    for (_, mutant, _), outcome in _in_pool("judge", again, folder, workers):
        yield mutant, wrong[mutant.number][1] if outcome.startswith("wrong") else _of_judge(outcome)


def _again(mutant: Mutant, path: str, outcome: str) -> str:
    """The outcome, and that of another try in a process of its own."""
    worker = Worker(MODULE)
    try:
        return f"{outcome}; by itself: {worker.run(('compile', mutant, path), SECONDS)}"
    except Lost as lost:
        return f"{outcome}; by itself: {lost}"
    finally:
        worker.close()
