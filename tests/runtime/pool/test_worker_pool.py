"""TVM's workers: their OS threads, and that a call after a pause leaves their cores as they were."""

import math
from pathlib import Path

import pytest

from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.pool import worker_pool
from tvm_ext.runtime.pool.worker_pool import WorkerPool

from ..processes import run_python
from ..programs import export

STEERED = """
import os, sys
import numpy as np
from tvm_ext.runtime.pool import worker_pool
from tvm_ext.runtime.model import load
from tvm_ext.runtime.pool.threads import dispatcher

compiled, x = load(sys.argv[1]), np.ones((33, 257), np.float32)
right = compiled.run(x)["y"]
worker_pool.steers = lambda: True
pool, cores = dispatcher._pool, os.sched_getaffinity(0)
set_masks = []
setter = os.sched_setaffinity
os.sched_setaffinity = lambda thread, mask: (set_masks.append((thread, set(mask))), setter(thread, mask))
pool._rested = -worker_pool.math.inf  # a long time ago
np.testing.assert_array_equal(compiled.run(x)["y"], right)
(worker,) = pool._workers
assert worker != os.getpid() and str(worker) in os.listdir("/proc/self/task")
assert os.sched_getaffinity(worker) == os.sched_getaffinity(0) == cores
if len(cores) > 1:
    (first, away), (last, back) = set_masks
    assert first == last == worker and len(cores - away) == 1 and away < cores and back == cores
pool._workers, pool._rested = (2**22 + 1,), -worker_pool.math.inf  # no such thread: the calls go on
np.testing.assert_array_equal(compiled.run(x)["y"], right)
print("done")
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_setaffinity"), reason="Linux")
def test_workers_run_elsewhere_after_a_pause_and_may_go_everywhere_then(
    rows_model: CompiledModel, tmp_path: Path
) -> None:
    path = export(rows_model, tmp_path / "rows.so")
    assert run_python(STEERED, path, TVM_NUM_THREADS="2", TVM_BIND_THREADS=None) == "done"


def test_only_calls_after_a_pause_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, steered, now = WorkerPool(), [], [100.0]
    monkeypatch.setattr(pool, "keep_off", lambda: steered.append(now[0]) or {})
    monkeypatch.setattr(worker_pool, "steers", lambda: True)
    monkeypatch.setattr(worker_pool.time, "perf_counter", lambda: now[0])
    assert pool._rested == math.inf
    for pause in (0.0, worker_pool.ASLEEP / 2, 2 * worker_pool.ASLEEP, 0.0, 1.0):
        now[0] += pause
        assert pool.call(divmod, 7, 2) == (3, 1)
    assert len(steered) == 2
    with pytest.raises(ZeroDivisionError):
        pool.call(divmod, 7, 0)
    assert pool._rested == now[0]
