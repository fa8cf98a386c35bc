"""A worker process: takes tasks, here (contender, case), as pickles from its pipe, answers each with an outcome.

A crash or an endless loop ends this process and costs one case; :mod:`.pool` starts another one.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO

from tvm_ext.benchmarking.worker import die_with

from .cases import Case
from .contenders import CONTENDERS, Refused
from .judge import difference

#: Address space, beyond which a case fails instead of taking the machine down.
_BYTES = 24 << 30


def main() -> None:
    serve(lambda task: _outcome(*task))


def serve(answer: Callable[[Any], str], limit: int = _BYTES) -> None:
    """Answer each task with a line until the pipe is closed; the argument is the parent's process number.

    Args:
        answer: takes a task, gives one line.
        limit: bytes of address space.
    """
    die_with(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    warnings.simplefilter("ignore")
    tasks, answers = _channel()
    answers.write(b"ready\n")
    answers.flush()
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        answers.write(answer(task).encode() + b"\n")
        answers.flush()


def _outcome(contender: str, case: Case) -> str:
    """One line: "pass", or "refused", "failed" or "wrong" and why."""
    try:
        found = CONTENDERS[contender](case)
        reason = difference(found, case.outputs, case.rtol, case.atol)
        return f"wrong: {reason}" if reason else "pass"
    except Refused as refused:
        return f"refused: {_short(refused, case)}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {_short(error, case)}"


def _short(error: Exception, case: Case) -> str:
    """The error's first line that says something, no longer than one of a table."""
    lines = [line.strip() for line in str(error).splitlines()]
    text = " ".join(next((line for line in lines if line), "").split())
    return text.removeprefix(f"test_{case.name}: ")[:160]


def _channel() -> tuple[BinaryIO, BinaryIO]:
    """The pipes, out of reach of whatever prints: TVM's importer prints its errors to standard output."""
    cases, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    return cases, answers


if __name__ == "__main__":
    main()
