"""A worker process: answers each pickled task of its pipe with a pickled outcome, by a function that is named.

    python -m tests.oracles.worker PARENT MODULE FUNCTION BYTES 0|1

A crash or an endless loop ends this process and costs one case; :mod:`.pool` starts another one.
"""

import gc
import importlib
import os
import pickle
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO

from tvm_ext.benchmarking.worker import die_with


def main(parent: str, module: str, function: str, limit: str, compiles: str) -> None:
    """Serve until the pipe is closed.

    Args:
        parent: process number, with which this process ends.
        module, function: what answers a task.
        limit: bytes of address space, beyond which a case fails instead of taking the machine down.
        compiles: "1" if tasks compile models.
    """
    die_with(int(parent))
    resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
    warnings.simplefilter("ignore")
    tasks, answers = _channel()
    gc.disable()  # while modules are made, which live to the end
    answer: Callable[[Any], Any] = getattr(importlib.import_module(module), function)
    if compiles == "1":
        _compile_on_one_core()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as tests/conftest.py
    gc.enable()
    _tell("ready", answers)
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        _tell(answer(task), answers)


def _compile_on_one_core() -> None:
    """Workers have the cores between them: a share of the kernels for each core is a module of LLVM more, no faster."""
    shares = importlib.import_module("tvm_ext.passes.tir.shares")
    shares.available_cores = lambda: 1  # type: ignore[attr-defined]


def _tell(message: Any, answers: BinaryIO) -> None:
    answers.write(pickle.dumps(message))  # whole, or not at all
    answers.flush()


def _channel() -> tuple[BinaryIO, BinaryIO]:
    """The pipes, out of reach of whatever prints: TVM's importer prints its errors to standard output."""
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    return tasks, answers


if __name__ == "__main__":
    main(*sys.argv[1:])
