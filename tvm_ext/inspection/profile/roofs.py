"""What this machine can do at most, measured: multiply-adds, and bytes read from memory and from the L2 caches.

The loops are those of :mod:`tvm_ext.rates.loops`, in TIR, on the threads that the model runs on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

#: Seconds that each loop is timed for, multiply-adds a chain in one call, and how often a call reads what lies in L2.
_SECONDS, _STEPS, _PASSES = 0.25, 400_000, 50
#: Bytes that no cache holds: of this size at least, and several times the last one.
_LEAST_STREAM, _TIMES_L3 = 64 << 20, 4


@dataclass(frozen=True)
class Roofs:
    """Rates that no kernel can exceed.

    Attributes:
        flops: f32 operations a second of fused multiply-adds in registers.
        bandwidth: bytes a second, of a read of a buffer that no cache holds.
        cache_bandwidth: bytes a second, of a read of buffers that lie in L2.
        threads: all of it on so many.
        stream_bytes, cache_bytes: sizes of these buffers.
    """

    flops: float
    bandwidth: float
    cache_bandwidth: float
    threads: int
    stream_bytes: int
    cache_bytes: int

    @property
    def ridge(self) -> float:
        """Operations a byte at which both roofs meet."""
        return self.flops / self.bandwidth

    def seconds(self, flops: float, size: float, cached: bool = False) -> float:
        """The least time for work, by the roof that allows less (Williams et al., CACM 2009).

        Args:
            flops, size: operations and bytes.
            cached: whether the bytes lie in L2.
        """
        return max(flops / self.flops, size / (self.cache_bandwidth if cached else self.bandwidth))

    def bound(self, flops: float, size: float) -> str:
        """ "compute" or "memory": the roof that allows less."""
        return "compute" if flops / self.flops >= size / self.bandwidth else "memory"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return (
            f"{self.flops / 1e9:.0f} GFLOP/s (multiply-adds in registers), {self.bandwidth / 1e9:.1f} GB/s (a read of "
            f"{self.stream_bytes >> 20} MiB), {self.cache_bandwidth / 1e9:.0f} GB/s (a read of "
            f"{self.cache_bytes >> 10} KiB in L2), {threads}, measured by loops in TIR in this session"
        )


class RoofMeter:
    """The loops, built once, and run before and after a profile: another program may disturb either.

    Args:
        threads: that the model's kernels use.
    """

    def __init__(self, threads: int) -> None:
        from ...core.machine import Machine
        from ...rates.loops import call_of_fma, call_of_read

        machine = Machine.detect(None, threads)
        self._threads = threads
        self._fma = call_of_fma(machine, _STEPS)
        self._far = call_of_read(machine, max(_TIMES_L3 * machine.l3, _LEAST_STREAM) // 4)
        self._near = call_of_read(machine, machine.l2 * threads // 2 // 4, _PASSES)
        self._best = [0.0, 0.0, 0.0]

    def measure(self) -> Roofs:
        """The best rates so far; takes a second, on the threads that the model runs on."""
        from ...rates.loops import round_minimum
        from ...runtime.threads import dispatcher

        loops: tuple[tuple[Callable[[], Any], float], ...] = (self._fma, self._far, self._near)
        for at, (call, amount) in enumerate(loops):
            self._best[at] = max(self._best[at], amount / dispatcher.call(round_minimum, call, _SECONDS))
        flops, far, near = self._best
        return Roofs(flops, far, near, self._threads, self._far[1], self._near[1] // _PASSES)
