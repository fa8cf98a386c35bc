"""A worker process of the fuzzer: compiles mutants, or judges what was compiled; see `tests.onnx_backend.pool`.

Its address space is limited (RLIMIT_AS) to `MEMORY`, of which TVM, LLVM and their threads take about a quarter: a small
file that needs more is a finding, as a MemoryError or a crash.
"""

from __future__ import annotations

import os

from tests.onnx_backend.worker import serve

from .mutants import Mutant

MODULE = "tests.fuzz.worker"
MEMORY = 6 << 30
Task = tuple[str, Mutant, str]
"""What to do ("compile", "compile exact", "judge"), the mutant, and the path of the answer's file."""


def answer(task: Task) -> str:
    """The outcome of a task in one line."""
    from .compiling import compiled_outcome, short
    from .reference import judged_outcome

    what, mutant, path = task
    try:
        if what == "judge":
            return judged_outcome(mutant, path)
        return compiled_outcome(mutant, path, "exact" if what == "compile exact" else "default")
    except Exception as error:  # of this file's own, or of what was not foreseen
        return f"failed: {what}: {type(error).__name__}: {short(error)}"


if __name__ == "__main__":
    os.environ["TVM_EXT_CACHE"] = os.devnull
    serve(answer, MEMORY)
