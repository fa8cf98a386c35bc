"""Mutants through workers: compiled in one process, judged by onnxruntime in another; either may crash."""

import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator

from tests.oracles.outcome import Outcome
from tests.oracles.pool import Judge, Service, outcomes

from .compiling import compiled_outcome, failed
from .mutants import Mutant
from .reference import judged_outcome

Task = tuple[str, Mutant, str]
"""What to do ("compile", "compile exact", "judge"), the mutant, and the path of the answer's file."""


def answer(task: Task) -> Outcome:
    """The outcome of a task, in a worker."""
    os.environ["TVM_EXT_CACHE"] = os.devnull
    what, mutant, path = task
    try:
        if what == "judge":
            return judged_outcome(mutant, path)
        return compiled_outcome(mutant, path, "exact" if what == "compile exact" else "default")
    except Exception as error:  # of this file's own, or of what was not foreseen
        return failed(what, error)


#: A file may take half a minute to be refused, or compiled and run. A small file that needs more memory than this is a
#: finding, as a MemoryError or a crash.
SERVICE = Service(answer, seconds=30.0, memory=6 << 30)


def judged(mutants: Iterable[Mutant], workers: int = 1) -> Iterator[tuple[Mutant, Outcome]]:
    """Every mutant with its outcome: one of :mod:`.compiling`, or for what was compiled one of :mod:`.reference`.

    What disagrees is compiled again without Winograd convolution, which is documented to spread a NaN; what crashed or
    hung is tried once more by itself, since what ran before it may be to blame.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-ext-fuzz-") as folder:
        compiled: list[Mutant] = []
        for task, outcome in _in_pool("compile", mutants, folder, workers):
            if outcome.kind == "compiled":
                compiled.append(task[1])
            else:
                yield task[1], _again(task, outcome) if outcome.kind in ("crash", "hang") else outcome
        wrong: dict[int, tuple[Mutant, Outcome]] = {}
        for (_, mutant, _), outcome in _in_pool("judge", compiled, folder, workers):
            if outcome.kind == "wrong":
                wrong[mutant.number] = (mutant, outcome)
            else:
                yield mutant, _of_judge(outcome)
        yield from _without_winograd(wrong, folder, workers)


def _in_pool(what: str, mutants: Iterable[Mutant], folder: str, workers: int) -> Iterator[tuple[Task, Outcome]]:
    tasks: list[Task] = [(what, mutant, str(pathlib.Path(folder, str(mutant.number)))) for mutant in mutants]
    return outcomes(SERVICE, tasks, workers)


def _of_judge(outcome: Outcome) -> Outcome:
    """What ends onnxruntime's process is none of ours."""
    return Outcome("alone", f"onnxruntime: {outcome}") if outcome.kind in ("crash", "hang", "failed") else outcome


def _without_winograd(
    wrong: dict[int, tuple[Mutant, Outcome]], folder: str, workers: int
) -> Iterator[tuple[Mutant, Outcome]]:
    again = []
    for (_, mutant, _), outcome in _in_pool("compile exact", [m for m, _ in wrong.values()], folder, workers):
        if outcome.kind == "compiled":
            again.append(mutant)
        else:
            yield mutant, Outcome("wrong", f"{wrong[mutant.number][1].reason}; exact: {outcome}")
    for (_, mutant, _), outcome in _in_pool("judge", again, folder, workers):
        yield mutant, wrong[mutant.number][1] if outcome.kind == "wrong" else _of_judge(outcome)


def _again(task: Task, outcome: Outcome) -> Outcome:
    """The outcome, and that of another try in a process of its own."""
    judge = Judge(SERVICE)
    try:
        return outcome._replace(reason=f"{outcome.reason}; by itself: {judge(task)}")
    finally:
        judge.close()
