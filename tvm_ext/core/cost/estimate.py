"""Estimated seconds of a kernel: what it does, by instruction and by byte, at the rates of a machine.

A recipe states the work of its busiest thread: cycles of instructions whose operands lie in L1, and streams of bytes
from where they lie. :func:`seconds` is the only place where rates of bytes and the clock are read:

    cycles = max(instructions + exposed streams, streams)        a stream that is prefetched is not exposed
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..machine import Machine
from .sharing import Sharing

#: Where bytes lie: a level of the memory hierarchy, or the L1 and L2 of another core, which wrote them last.
LEVELS = ("l1", "l2", "l3", "memory", "foreign")
#: The share of a cache that something read again and again may take: the rest is what passes through meanwhile.
_SHARE_OF_OWN, _SHARE_OF_L3 = 0.6, 0.5
#: A number of threads is no choice where twice as many save so many launches.
_CLEARLY = 8
#: What numbers of threads are multiples of: sides of images are 7 by a power of two, widths of layers 3 or 5.
_FACTORS = (1, 3, 5, 7)


@dataclass(frozen=True)
class Stream:
    """Bytes that a thread reads or writes, and where they lie.

    Attributes:
        nbytes: how many.
        level: of :data:`LEVELS`.
        exposed: the share of its time in which no instruction of the kernel can go on: 0 of what is prefetched or
            written, 1 of what is waited for.
    """

    nbytes: float
    level: str
    exposed: float = 0.0


def seconds(cycles: float, streams: Sequence[Stream], machine: Machine, threads: int) -> float:
    """Estimated seconds of a kernel.

    Args:
        cycles: of its busiest thread, with all operands in L1.
        streams: of that thread.
        threads: that stream at once.
    """
    times = [(s.nbytes / bandwidth(s.level, machine, threads), s.exposed) for s in streams]
    waited = cycles + sum(time * exposed for time, exposed in times)
    streamed = sum(time for time, _ in times)
    return max(waited, streamed) / machine.rates.hertz + launch_seconds(machine, threads)


def vector_seconds(operations: float, machine: Machine, shared: Sharing) -> float:
    """Estimated seconds of f32 operations in whole vectors."""
    return seconds(vector_cycles(operations, machine) * shared.part, [], machine, shared.threads)


def vector_threads(operations: float, machine: Machine, shared: Callable[[int], Sharing] | None = None) -> int:
    """The number of threads that finish f32 operations in whole vectors first.

    Args:
        shared: that of :func:`threads_of`.
    """
    return threads_of(vector_cycles(operations, machine), machine, shared)


def vector_cycles(operations: float, machine: Machine) -> float:
    """Cycles of f32 operations in whole vectors, one a cycle; operands, which another core wrote or which come out of
    L2, take as long again."""
    return 2 * operations / machine.lanes


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
    """Numbers of threads that may finish work of so many cycles of one thread first: small numbers by powers of two,
    which divide rows and channels as powers of two do not, and all.

    One is left out if twice as many save several launches.
    """
    most = machine.threads
    counts = {factor << i for factor in _FACTORS for i in range(most.bit_length()) if factor << i < most} | {most}
    seconds_alone, launch = cycles / machine.rates.hertz, launch_seconds(machine, most)
    return [t for t in sorted(counts) if 2 * t > most or seconds_alone / (2 * t) <= _CLEARLY * launch]


def threads_of(cycles: float, machine: Machine, shared: Callable[[int], Sharing] | None = None) -> int:
    """The number of threads that finish work of so many cycles of one thread first.

    Args:
        shared: how so many threads share it; None divides it evenly.
    """

    def finished(threads: int) -> float:
        part = shared(threads).part if shared else 1 / threads
        return cycles * part / machine.rates.hertz + launch_seconds(machine, threads)

    return min(thread_counts(cycles, machine), key=finished)
