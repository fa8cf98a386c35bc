"""Functions in fresh processes: what they return, and the seconds from start to answer."""

import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_ext.benchmarking.process import Died, WorkerProcess

CHILD = pathlib.Path(__file__).with_name("child.py")
PROBES = "benchmarks.measuring.probes"
#: Seconds that a process may take.
TIMEOUT = 3600.0


@dataclass(frozen=True)
class Probe:
    """Runs of one probe: seconds from starting the process to its answer, and the answers."""

    seconds: tuple[float, ...]
    answers: tuple[dict[str, Any], ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def answer(self, key: str) -> float:
        """Median of a figure over the answers."""
        return float(statistics.median(answer[key] for answer in self.answers))


def fresh(
    module: str, function: str, *arguments: Any, env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> tuple[float, dict[str, Any]]:  # fmt: skip
    """Seconds from the start of a process to the answer of a function there, and the answer; what
    the process does after is free.

    Args:
        module: of the function; the process imports nothing else.
        function: returns plain values by name.
        arguments: plain values, or paths.
        env: variables to add.
        timeout: seconds.

    Raises:
        RuntimeError: it failed, or did not answer in time; says its last words.
    """
    command = [sys.executable, str(CHILD), module, function, json.dumps(arguments, default=str)]
    start = time.perf_counter()
    process = WorkerProcess(command, {**os.environ, **(env or {})})
    try:
        answer = process.answer(timeout)
        seconds = time.perf_counter() - start
    except Died as died:
        raise RuntimeError(f"{function}: {died}") from None
    finally:
        process.close()
    if answer is None:
        raise RuntimeError(f"{function}: no answer within {timeout:.0f} s")
    return seconds, answer


def probe(name: str, *arguments: Any, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The answer of one of the probes in a fresh process; see :func:`fresh`."""
    return fresh(PROBES, name, *arguments, env=env)[1]


def probes(
    commands: Mapping[str, Sequence[Any]], times: int, env: Mapping[str, str]
) -> dict[str, Probe]:
    """Run probes in fresh processes, interleaved.

    Args:
        commands: name -> probe and its arguments.
        times: measured runs of each; one more goes before, so that files are in the page cache.
        env: variables to add.
    """
    runs = [
        {key: fresh(PROBES, *command, env=env) for key, command in commands.items()}
        for _ in range(times + 1)
    ]
    columns = {key: zip(*(run[key] for run in runs[1:]), strict=True) for key in commands}
    return {key: Probe(*map(tuple, column)) for key, column in columns.items()}


def on_threads(threads: int) -> dict[str, str]:
    """Variables of a process whose kernels run on so many of TVM's threads."""
    return {"TVM_NUM_THREADS": str(threads)}
