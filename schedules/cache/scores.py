"""Products of rows of queries and a tile of keys, in registers.

    for a few keys of the tile:
        acc[key, row] = sum over vectors v: key[v] * q[row, v]      a key is loaded, and decoded, once for all rows
        part[row] = sums of acc[keys, row]                          a network of adds
    s[row, keys] = part, joined

A conversion from float16 costs as much as two multiply-adds, and a sum across the lanes of a vector as three.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ..steps.attention_kernel import float_buffer
from ..steps.nests import own_buffer
from ..steps.transposes import joined, sums

Rows = Callable[[Any], Callable[[Any], Any]]
"""Number of a row -> element -> its value."""

#: Vectors of sums of a register tile, if its rows allow so few: constants of the exponentials take registers too.
_SUMS = 12


@dataclass(frozen=True)
class Tile:
    """Sizes of the loops.

    Attributes:
        lanes: of all vectors, and keys of a tile of scores.
        queries: tokens of a unit.
        shared: heads of queries of a head of keys.
        block: keys that are read for all rows before others are.
        scored: rows of a register tile of scores.
        rows, columns: of a register tile of the result: rows, and vectors of a value.
        threads: that share units.
    """

    lanes: int
    queries: int
    shared: int
    block: int
    scored: int
    rows: int
    columns: int
    threads: int

    def keys(self, height: int) -> int:
        """Keys of a register tile of scores of so many rows: those that an instruction interleaves, or more."""
        fitting = [k for k in (4, 8, 16) if k <= self.lanes and k * height <= _SUMS]
        return max(fitting, default=min(self.lanes, 4))

    def has_all(self, rows: Any) -> bool:
        """Whether a register tile of scores is known to have all rows."""
        return isinstance(rows, int) and rows <= self.scored


def products(
    t: Tile, some: tuple[Any, int], size: int, key: Rows, query: Rows, ask: Callable[..., None]
) -> Sequence[Any]:
    """Of each row a vector of its products with a tile of keys.

    Args:
        some: the first row, and how many.
        size: elements of a key.
        key, query: number of a key of the tile, or of a row -> element -> its value.
        ask: (number, of how many) parts of the tile -> None: prefetches what a part has to.
    """
    first, height = some
    each = t.keys(height)
    count, whole = t.lanes // each, tirx.Ramp(0, 1, t.lanes) if t.lanes > 1 else 0
    partial = own_buffer("partial", (count, height, t.lanes), "float32")
    with T.serial(count) as part:
        ask(part, count)
        acc = float_buffer("acc", (each, height, t.lanes))
        elements = [key(part * each + i) for i in range(each)]
        for v in range(size // t.lanes):
            for i, element in enumerate(elements):
                with T.unroll(height) as r, T.vectorized(t.lanes) as j:
                    product = element(v * t.lanes + j) * query(first + r)(v * t.lanes + j)
                    T.buffer_store(acc, product if v == 0 else acc[i, r, j] + product, [i, r, j])
        for r in range(height):
            vectors = [T.bind(acc[i, r, whole]) for i in range(each)]
            T.buffer_store(partial, sums(vectors, t.lanes, 4), [part, r, whole])
    parts = ([T.bind(partial[part, r, whole]) for part in range(count)] for r in range(height))
    return [joined(own, t.lanes, 4) for own in parts]
