"""How a kernel's work is shared among threads: what rounding to whole tiles, units and rows adds to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sharing:
    """Work of a kernel, in units that all take as long: register tiles of vectors, rows, vectors.

    Part of a vector is a vector: what is counted is what the shape of tiles and the number of threads add, not what
    the machine's lanes do.

    Attributes:
        threads: that the kernel wakes.
        real: units that the operation needs.
        busiest: units of the thread with the most, padded ones included.
    """

    threads: int
    real: float
    busiest: float

    @staticmethod
    def of_rows(rows: int, threads: int) -> Sharing:
        """Rows that so many threads share as evenly as they divide; as few threads as finish as early."""
        each = -(-rows // threads)
        return Sharing(-(-rows // each), rows, each)

    @property
    def part(self) -> float:
        """The share of the real work that the busiest thread does."""
        return self.busiest / self.real

    @property
    def rounding(self) -> float:
        """Work beyond the real over the real, as if every thread had as much as the busiest."""
        return self.threads * self.busiest / self.real - 1
