"""Measuring on this machine.

    builds    as many at a time as there are workers
    runs      one at a time, with as many cores free as the kernel has threads

Where cores exceed the kernel's threads, builds go on beside a run; else they alternate: some candidates are built, then
run one after the other while the other workers wait on their pipes (threads of their pools have stopped spinning: they
do so some milliseconds after a kernel).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import OptionError
from ...core.machine import Machine, available_cores
from .batch import Limits
from .pool import WorkerPool, check_numbers
from .timing import DEFAULT_REPEATS, Repeats


class LocalMeasurer(WorkerPool):
    """Builds, checks and times candidates on this machine, in worker processes that import once.

    Args:
        machine: kernels are compiled for it and use its threads.
        workers: processes; None: one a core this process may use.
        build_timeout, run_timeout: seconds for one candidate's build, and for its check and all its repeats.
        plugins: modules that workers import; recipes in their `RECIPES` can be measured, as registered ones can.
        cold: memory, in units of L3, that constant arguments are rotated through, so that a kernel finds its weights as
            cold as in a model (everything else is warm); each worker has so much. 0: weights stay in the caches.
        repeats: how often a kernel is timed.
        rounds: how often those close to the fastest are timed again, in turn.

    Raises:
        OptionError: a value does not fit.
    """

    def __init__(
        self, machine: Machine, workers: int | None = None, build_timeout: float = 10.0, run_timeout: float = 10.0, *,
        plugins: Sequence[str] = (), cold: float = 2.0, repeats: Repeats = DEFAULT_REPEATS, rounds: int = 1,
    ) -> None:  # fmt: skip
        workers = available_cores() if workers is None else workers
        check_numbers(workers=workers, build_timeout=build_timeout, run_timeout=run_timeout, rounds=rounds)
        if cold < 0:
            raise OptionError(f"cold={cold!r}: 0 or more is needed")
        spare = max(0, available_cores() - machine.threads)
        limits = Limits(workers, spare, build_timeout, run_timeout, rounds=rounds)
        hello = {"plugins": list(plugins), "cold": cold, "repeats": [repeats.count, repeats.seconds]}
        super().__init__(machine, workers, machine.threads, limits, hello)
