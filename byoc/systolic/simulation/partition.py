"""A GEMM over several arrays that share the memories: each has a block of C.

SCALE-Sim 3 has P_r x P_c cores and three ways to cut the dimensions in space (S_r, S_c) and time (T) of
:mod:`.cycles` (Raj et al., "SCALE-Sim v3", ISPASS 2025, `multi-core/analytical.py`)::

    spatial              S_r / P_r    S_c / P_c
    spatio-temporal 1    T / P_r      S_c / P_c
    spatio-temporal 2    S_r / P_c    T / P_r

Here no two arrays add to one sum, so k stays whole, and C is cut: "os" is spatial, "ws" and "is" are spatio-temporal 1.
Each array has ports of its own to both memories; an operand that several arrays need is read by each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from .cycles import gemm_cycles


class Block(NamedTuple):
    """What of C an array has: m rows and n columns, less at the edges of C; and the cycles that it works."""

    cycles: int
    m: int
    n: int


@functools.lru_cache(maxsize=1 << 16)
def partition(dataflow: str, m: int, k: int, n: int, rows: int, cols: int, arrays: int, model: str) -> Block:
    """The blocks of C[m, n] = A[m, k] B[k, n] with which arrays of rows x cols PEs take the fewest cycles; of those the
    ones that read the fewest operands.

    Raises:
        OptionError: as :func:`.cycles.gemm_cycles`.
    """
    sizes = ((-(-m // ways), -(-n // (arrays // ways))) for ways in divisors(arrays))
    cycles = (Block(gemm_cycles(dataflow, m, k, n, rows, cols, model), m, n) for m, n in sizes)
    return min(cycles, key=lambda block: (block.cycles, block.m + block.n))


def divisors(arrays: int) -> list[int]:
    """How many arrays a rectangle of them may have along the rows of C."""
    return [ways for ways in range(1, arrays + 1) if arrays % ways == 0]


def blocks(m: int, n: int, block: Block) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of C of each array that has work."""
    for row in range(0, m, block.m):
        for col in range(0, n, block.n):
            yield slice(row, min(row + block.m, m)), slice(col, min(col + block.n, n))


def pieces(size: int, piece: int) -> list[tuple[int, int]]:
    """(size, how many) of the whole pieces of a dimension and of what is left over."""
    whole, rest = divmod(size, piece)
    return [(length, count) for length, count in ((piece, whole), (rest, int(rest > 0))) if count]
