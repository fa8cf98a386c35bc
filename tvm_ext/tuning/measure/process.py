"""The process of a worker that measures candidates."""

from __future__ import annotations

import os
import sys

from ...benchmarking.process import WorkerProcess, environment


def start_worker(threads: int) -> WorkerProcess:
    """Start one; it ends with this process.

    Args:
        threads: of TVM's pool in it. Packing weights multiplies matrices: a second pool would spin beside it.
    """
    command = (sys.executable, "-m", "tvm_ext.tuning.measure.worker", str(os.getpid()))
    return WorkerProcess(command, {**environment(threads), "OPENBLAS_NUM_THREADS": "1"})
