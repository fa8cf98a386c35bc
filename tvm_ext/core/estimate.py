"""Estimated seconds of a kernel: what it does, by instruction and by byte, at the rates of a machine.

A recipe states the work of its busiest thread: cycles of instructions whose operands lie in L1, and streams of bytes
from where they lie. :func:`seconds` is the only place where rates of bytes and the clock are read:

    cycles = max(instructions + exposed streams, streams)        a stream that is prefetched is not exposed
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .machine import Machine

#: Where bytes lie: a level of the memory hierarchy, or the L1 and L2 of another core, which wrote them last.
LEVELS = ("l1", "l2", "l3", "memory", "foreign")
#: The share of a cache that something read again and again may take: the rest is what passes through meanwhile.
_SHARE_OF_OWN, _SHARE_OF_L3 = 0.6, 0.5
#: A number of threads is no choice where twice as many save so many launches.
_CLEARLY = 8


@dataclass(frozen=True)
class Stream:
    """Bytes that a thread reads or writes, and where they lie.

    Attributes:
        nbytes: a number, or an array of one a configuration.
        level: of :data:`LEVELS`.
        exposed: the share of its time in which no instruction of the kernel can go on: 0 of what is prefetched or
            written, 1 of what is waited for.
    """

    nbytes: Any
    level: str
    exposed: Any = 0.0


def seconds(cycles: Any, streams: Sequence[Stream], machine: Machine, threads: int) -> Any:
    """Estimated seconds of a kernel.

    Args:
        cycles: of its busiest thread, with all operands in L1; a number, or an array of one a configuration.
        streams: of that thread.
        threads: that stream at once.
    """
    times = [(s.nbytes / bandwidth(s.level, machine, threads), s.exposed) for s in streams]
    waited = cycles + sum(time * exposed for time, exposed in times)
    streamed = sum(time for time, _ in times)
    return _larger(waited, streamed) / machine.rates.hertz + launch_seconds(machine, threads)


def vector_seconds(operations: float, machine: Machine, threads: int) -> float:
    """Estimated seconds of f32 operations in whole vectors, one a cycle and thread, on operands in its caches."""
    return float(seconds(operations / machine.lanes / threads, [], machine, threads))


def bandwidth(level: str, machine: Machine, threads: int = 1) -> float:
    """Bytes a cycle of one of so many threads that read at once."""
    return machine.rates.foreign if level == "foreign" else machine.rates.shared(level, threads)


def launch_seconds(machine: Machine, threads: int) -> float:
    """Seconds to begin and join a parallel loop; half of it for each thread of those that the rate is of."""
    if threads <= 1:
        return 0.0
    return machine.rates.launch * 1e-6 * (1 + threads / machine.rates.cores) / 2


def level_of(nbytes: float, machine: Machine, sharing: int = 1) -> str:
    """The level from which something is read again and again.

    Args:
        nbytes: of all that is read in turn.
        sharing: threads that each have so much of L3.
    """
    if nbytes <= machine.l1d * _SHARE_OF_OWN:
        return "l1"
    if nbytes <= machine.l2 * _SHARE_OF_OWN:
        return "l2"
    return "l3" if nbytes * sharing <= machine.l3 * _SHARE_OF_L3 else "memory"


def thread_counts(cycles: float, machine: Machine) -> list[int]:
    """Numbers of threads that may finish work of so many cycles of one thread first: of powers of two, and all.

    One is left out if twice as many save several launches.
    """
    counts = [1]
    while counts[-1] * 2 < machine.threads:
        counts.append(counts[-1] * 2)
    counts += [machine.threads] * (machine.threads > 1)
    saved = {t: cycles / machine.rates.hertz * (1 / t - 1 / more) for t, more in itertools.pairwise(counts)}
    return [t for t in counts if saved.get(t, 0.0) <= _CLEARLY * launch_seconds(machine, machine.threads)]


def threads_of(cycles: float, machine: Machine) -> int:
    """The number of threads that finish work of so many cycles of one thread, which divides evenly, first."""
    return min(
        thread_counts(cycles, machine), key=lambda t: cycles / t / machine.rates.hertz + launch_seconds(machine, t)
    )


def _larger(a: Any, b: Any) -> Any:
    import numpy as np

    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)
