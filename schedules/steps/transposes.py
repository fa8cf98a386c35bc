"""Transposes of small tiles in vector registers.

    n vectors of n lanes   ->   n vectors of n lanes: lane j of vector i is lane i of vector j

Within 128-bit lanes rows are interleaved, and then blocks of 128 bits are picked apart; both are one instruction on
each instruction set: vunpcklps, vunpckhps, vshuff32x4 or vperm2f128; zip1 and zip2 on NEON. A tile of 16 by 16 float32
takes 16 loads, 64 shuffles and 16 stores.

A tile with few rows or columns that stand next to each other in memory needs no network: it is loaded whole, and every
result is one shuffle of all of it.

All functions emit into the IRBuilder's current block; vectors are variables, so that nothing is computed twice.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

#: Bytes within which every instruction set interleaves two vectors with one instruction.
_LANE_BYTES = 16


def transpose(rows: Sequence[Any], itemsize: int) -> list[Any]:
    """The columns of a square tile, as vectors.

    Args:
        rows: n vectors of n lanes; n is a power of two.
        itemsize: bytes of an element.
    """
    size = len(rows)
    unit = min(size, _LANE_BYTES // itemsize)
    columns = [_interleaved(rows[i : i + unit], size) for i in range(0, size, unit)]
    # columns[g][c] holds, in block b, rows g * unit and on of column b * unit + c.
    blocks = [_blocks_apart([group[c] for group in columns], unit) for c in range(unit)]
    return [blocks[c][b] for b in range(size // unit) for c in range(unit)]


def sums(rows: Sequence[Any], lanes: int, itemsize: int) -> Any:
    """A vector of the sums of vectors: the network of :func:`transpose`, halves added at each step.

    Args:
        rows: n vectors; n is a power of two, at least as many as an instruction interleaves.
        lanes, itemsize: of a vector, and bytes of an element.

    Returns:
        For n = lanes, lane i is the sum of vector i; of fewer, parts of these sums for :func:`joined`.
    """
    unit, groups = min(lanes, _LANE_BYTES // itemsize), []
    for start in range(0, len(rows), unit):
        group = list(rows[start : start + unit])
        while (half := len(group) // 2) >= 1:
            group = [_added(pair, _zips(lanes, unit)) for pair in zip(group[:half], group[half:], strict=True)]
        groups += group
    return joined(groups, lanes, itemsize)


def joined(groups: Sequence[Any], lanes: int, itemsize: int) -> Any:
    """The result of :func:`sums` for all vectors, of its results for equally many of them each, in order."""
    unit = min(lanes, _LANE_BYTES // itemsize)
    while len(groups) > 1:
        groups = [_added(groups[i : i + 2], _picks(lanes // unit, unit)) for i in range(0, len(groups), 2)]
    return groups[0]


def across(vector: Any, lanes: int, combine: Callable[[Any, Any], Any]) -> Any:
    """One number of all lanes of a vector, by halves."""
    while lanes > 1:
        vector, lanes = T.bind(vector), lanes // 2
        halves = [tirx.Shuffle([vector], [tirx.IntImm("int32", s + i) for i in range(lanes)]) for s in (0, lanes)]
        vector = combine(*halves)
    return vector


def across_all(vectors: Sequence[Any], lanes: int, combine: Callable[[Any, Any], Any]) -> Any:
    """One number of all lanes of vectors, by halves."""
    values = list(vectors)
    while len(values) > 1:
        pairs = [combine(*values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
        values = [*map(T.bind, pairs), *values[len(values) // 2 * 2 :]]
    return T.bind(across(values[0], lanes, combine))


def interleave(rows: Sequence[Any], lanes: int) -> list[Any]:
    """Columns one after the other: (rows, lanes) -> vectors of the flat (lanes, rows)."""
    count = len(rows)
    order = [i % count * lanes + i // count for i in range(count * lanes)]
    return [_shuffle(rows, order[i : i + lanes]) for i in range(0, len(order), lanes)]


def deinterleave(vectors: Sequence[Any], lanes: int) -> list[Any]:
    """The inverse of :func:`interleave`: vectors of a flat (lanes, rows) -> (rows, lanes)."""
    count = len(vectors)
    return [_shuffle(vectors, range(row, count * lanes, count)) for row in range(count)]


def _interleaved(rows: Sequence[Any], size: int) -> list[Any]:
    """Transpose the square tile in each 128-bit lane: log2(n) times, row k of the result pair is rows k and k + n / 2.

    The perfect shuffle of H. S. Stone, "Parallel Processing with the Perfect Shuffle" (1971).
    """
    unit, half = len(rows), len(rows) // 2
    low, high = _zips(size, unit)
    for _ in range(unit.bit_length() - 1):
        rows = [_shuffle(pair, order) for pair in zip(rows[:half], rows[half:], strict=True) for order in (low, high)]
    return list(rows)


def _blocks_apart(rows: Sequence[Any], unit: int) -> list[Any]:
    """Transpose a square of blocks of `unit` elements: log2(n) times, all even blocks of neighbours, then all odd."""
    count = len(rows)
    orders = _picks(count, unit)
    for _ in range(count.bit_length() - 1):
        rows = [_shuffle(rows[i : i + 2], order) for order in orders for i in range(0, count, 2)]
    return list(rows)


def _zips(size: int, unit: int) -> tuple[list[int], list[int]]:
    """Orders of two vectors that interleave the low halves of each unit, and the high ones."""
    half = unit // 2
    starts = [lane + k for lane in range(0, size, unit) for k in range(half)]
    low = [i for start in starts for i in (start, size + start)]
    return low, [i + half for i in low]


def _picks(count: int, unit: int) -> tuple[list[int], list[int]]:
    """Orders of two vectors of so many blocks that pick the even blocks, and the odd ones."""
    even = [block * unit + k for block in range(0, 2 * count, 2) for k in range(unit)]
    return even, [i + unit for i in even]


def _added(pair: Sequence[Any], orders: Sequence[Sequence[int]]) -> Any:
    low, high = (_shuffle(pair, order) for order in orders)
    return T.bind(low + high)


def _shuffle(vectors: Sequence[Any], order: Sequence[int]) -> Any:
    return T.bind(tirx.Shuffle(list(vectors), [tirx.IntImm("int32", i) for i in order]))
