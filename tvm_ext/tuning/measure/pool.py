"""A pool of worker processes and its life; what measurers of this machine and of many have in common."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ...benchmarking.process import WorkerProcess, environment
from ...core.errors import OptionError, check_whole, is_number
from ...core.machine import Machine
from ...core.recipe import Config
from ..task import Task
from .batch import Batch, Limits
from .measurement import MeasureError, Measurement
from .scratch import Scratch
from .slot import Slot

#: A worker imports TVM: hundreds of thousands of objects that live to its end, among which no cycle is worth a search.
_START = "import gc; gc.disable(); from tvm_ext.tuning.measure.worker import main; gc.freeze(); gc.enable(); main()"


class WorkerPool:
    """Worker processes that measure candidates. All end with this process, however it ends.

    A worker that crashes or takes too long is replaced: it costs its candidate, and nothing else.

    Args:
        machine: kernels are compiled for it.
        workers: processes.
        threads: of TVM's thread pool in each.
        limits: what may be done at a time.
        hello: first message to each worker, beside the machine.
    """

    def __init__(self, machine: Machine, workers: int, threads: int, limits: Limits, hello: Mapping[str, Any]) -> None:
        self._limits = limits
        self._folder = Scratch()
        # The system ends a child when the thread that started it ends; this one lives until close().
        self._starter = concurrent.futures.ThreadPoolExecutor(1, "tvm-ext-workers")
        self._slots: list[Slot] = []
        self._batches = 0
        self._busy = self._closed = False
        hello = {"machine": machine.as_dict(), "folder": self._folder.name, **hello}
        try:
            for _ in range(workers):
                self._slots.append(Slot(lambda: self._starter.submit(start_worker, threads).result(), hello))
        except BaseException:
            self.close()
            raise

    def measure(self, task: Task, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        """Measure configurations; exactly one :class:`Measurement` of each, as they finish.

        Args:
            best: seconds of the best candidate so far; one that takes far longer is timed once.

        Raises:
            TaskError: the unscheduled function cannot be run.
            MeasureError: workers do not start, or there is no server any more.
        """
        if self._busy or self._closed:
            raise MeasureError(f"the measurer is {'closed' if self._closed else 'measuring something else'}")
        self._busy = True
        self._batches += 1
        what = task.describe()
        reference = Path(self._folder.name, f"{_reference_key(what)}.npz")
        batch = Batch(self._slots, task, configs, best, self._limits, reference, _key(what), what, self._batches)
        try:
            yield from batch.results()
        finally:
            if not self._closed:
                batch.abandon()
            self._busy = False

    def close(self) -> None:
        """End all workers and remove what was stored."""
        self._closed = True
        for slot in self._slots:
            slot.process.close()
        self._slots = []
        self._starter.shutdown()
        self._folder.cleanup()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def start_worker(threads: int) -> WorkerProcess:
    """Start a process that measures candidates; it ends with this one.

    Args:
        threads: of TVM's pool in it. Packing weights multiplies matrices: a second pool would spin beside it.
    """
    command = (sys.executable, "-c", _START, str(os.getpid()))
    return WorkerProcess(command, {**environment(threads), "OPENBLAS_NUM_THREADS": "1"})


def check_numbers(**numbers: float) -> None:
    """Options that are numbers above 0, `workers` and `rounds` whole ones.

    Raises:
        OptionError: one is not; names it.
    """
    for name, value in numbers.items():
        if name in ("workers", "rounds"):
            check_whole(name, value, 1)
        elif not is_number(value) or value <= 0:
            raise OptionError(f"{name}={value!r}: a number above 0 is needed")


def _key(what: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=16).hexdigest()


def _reference_key(what: Mapping[str, Any]) -> str:
    """Of the unscheduled function alone: recipes for one group share its reference."""
    return _key({name: what.get(name) for name in ("kind", "module", "group", "reference")})
