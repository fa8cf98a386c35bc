"""What this machine can do at most, measured: multiply-adds, products of the instructions that multiply narrow numbers,
and bytes read from memory and from the L2 caches.

The loops are those of :mod:`tvm_ext.rates`, in TIR, on the threads that the model runs on.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.machine import Machine
from ...rates.instructions import INSTRUCTIONS
from ...rates.loops import call_of_fma, call_of_read, round_minimum
from ...rates.product_loops import call_of_instruction
from ...runtime.pool.threads import dispatcher
from ...runtime.table import Plain

#: Seconds that each loop is timed for, multiply-adds a chain in one call, and how often a call reads what lies in L2.
SECONDS, _STEPS, _PASSES = 0.25, 400_000, 50
#: Bytes that no cache holds: of this size at least, and four times the last one, twice where that is a gibibyte or more
_LEAST_STREAM, _MOST_STREAM = 64 << 20, 1 << 30


@dataclass(frozen=True)
class Roofs(Plain):
    """Rates that no kernel can exceed.

    Attributes:
        flops: f32 operations a second of fused multiply-adds in registers.
        bandwidth: bytes a second, of a read of a buffer that no cache holds.
        cache_bandwidth: bytes a second, of a read of buffers that lie in L2.
        threads: all of it on so many.
        stream_bytes, cache_bytes: sizes of these buffers.
        instructions: mnemonic -> operations a second, of those that kernels of the model have for their products.
    """

    flops: float
    bandwidth: float
    cache_bandwidth: float
    threads: int
    stream_bytes: int
    cache_bytes: int
    instructions: Mapping[str, float] = field(default_factory=dict)

    def peak(self, instruction: str) -> float:
        """Operations a second of an instruction; of multiply-adds for "", and for one that was not measured."""
        return self.instructions.get(instruction, self.flops)

    @property
    def peaks(self) -> dict[str, float]:
        """Operations a second of multiply-adds, as "", and of each instruction that was measured."""
        return {"": self.flops, **self.instructions}

    def seconds(self, flops: float, size: float, cached: bool = False, instruction: str = "") -> float:
        """The least time for work, by the roof that allows less (Williams et al., CACM 2009).

        Args:
            flops, size: operations and bytes.
            cached: whether the bytes lie in L2.
            instruction: that does the operations.
        """
        return max(flops / self.peak(instruction), size / (self.cache_bandwidth if cached else self.bandwidth))

    def bound(self, flops: float, size: float, peak: float | None = None) -> str:
        """ "compute" or "memory": the roof that allows less.

        Args:
            peak: operations a second of the instructions; None for multiply-adds.
        """
        return "compute" if flops / (peak or self.flops) >= size / self.bandwidth else "memory"

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        products = "".join(f"{rate / 1e9:.0f} GFLOP/s ({name}), " for name, rate in self.instructions.items())
        return (
            f"{self.flops / 1e9:.0f} GFLOP/s (multiply-adds in registers), {products}{self.bandwidth / 1e9:.1f} GB/s "
            f"(a read of {self.stream_bytes >> 20} MiB), {self.cache_bandwidth / 1e9:.0f} GB/s (a read of "
            f"{self.cache_bytes >> 10} KiB in L2), {threads}, measured by loops in TIR in this session"
        )


def _stream_bytes(l3: int) -> int:
    """Of a buffer that no cache holds: a host may take seconds to give more than a gibibyte."""
    return max(_LEAST_STREAM, min(4 * l3, max(2 * l3, _MOST_STREAM)))


class RoofMeter:
    """The loops, built once, and run before and after a profile: another program may disturb either.

    Args:
        threads: that the model's kernels use.
        machine: that they are compiled for; None for this one.
        instructions: that add their products.
        seconds: that each loop is timed for.
    """

    def __init__(
        self, threads: int, machine: Machine | None = None, instructions: Iterable[str] = (), seconds: float = SECONDS
    ) -> None:
        here = Machine.detect(None, threads)
        self._threads, self._seconds = threads, seconds
        self._names = [name for name in dict.fromkeys(instructions) if name in INSTRUCTIONS]
        self._far = call_of_read(here, _stream_bytes(here.l3) // 4)
        self._near = call_of_read(here, here.l2 * threads // 2 // 4, _PASSES)
        for_model = (machine or here).with_threads(threads)
        products = [call_of_instruction(for_model, name, _STEPS) for name in self._names]
        self._loops: list[tuple[Callable[[], Any], float]] = [
            call_of_fma(here, _STEPS), self._far, self._near, *products
        ]  # fmt: skip
        self._best = [0.0 for _ in self._loops]

    def measure(self) -> Roofs:
        """The best rates so far; takes a second, on the threads that the model runs on."""
        for at, (call, amount) in enumerate(self._loops):
            self._best[at] = max(self._best[at], amount / dispatcher.call(round_minimum, call, self._seconds))
        flops, far, near, *products = self._best
        rates = dict(zip(self._names, products, strict=True))
        return Roofs(flops, far, near, self._threads, int(self._far[1]), int(self._near[1]) // _PASSES, rates)
