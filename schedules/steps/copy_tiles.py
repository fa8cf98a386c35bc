"""The tile of a copy: how many elements of which axes move through registers at a time, and how they turn there.

The axis that is contiguous in the source is that of the columns, the one that is contiguous in the target that of the
rows:

    run            both are one axis            one vector of it
    square         rows, columns >= n           n vectors of n columns  -> transposed -> n vectors of n rows
    deinterleave   few columns, rows beside     all columns of n rows, as they lie    -> one vector of rows a column
    interleave     few rows, columns beside     one vector of columns a row           -> all rows of n columns
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from .copies import Axis
from .transposes import deinterleave, interleave, transpose

#: Rows or columns of a tile that is one shuffle a vector: with more of them the network takes fewer.
_FEW = 7
#: Rows and columns of a square at most, and elements of a vector that is turned: so many vectors stay in registers.
_MOST = 16
#: Vectors of a run that are copied at a time.
_RUN = 4


@dataclass(frozen=True)
class Tile:
    """Vectors that are loaded, turned and stored.

    Attributes:
        columns, rows: the axis that is contiguous in the source, and the one that is in the target.
        widths: axis -> elements of it in a tile.
        fast: the axis whose tiles the inner loop visits.
        lanes: elements of a vector.
        loads: vectors to load, and elements of the source from one to the next.
        stores: vectors to store, and elements of the target from one to the next.
        turn: what makes the vectors to store of those that were loaded.
        square: whether a vector is loaded for each row and stored for each column.
    """

    columns: Axis
    rows: Axis
    widths: Mapping[Axis, int]
    fast: Axis
    lanes: int
    loads: tuple[int, int] = (1, 0)
    stores: tuple[int, int] = (1, 0)
    turn: Callable[[Sequence[Any]], list[Any]] = list
    square: bool = False


@dataclass(frozen=True)
class Span:
    """Tiles along an axis: they start at `first`, `first + step` and so on, none later than `last`.

    Attributes:
        valid: elements of a tile that the axis has; less than the width where a block is not full.
    """

    first: int
    count: int
    step: int
    last: int
    valid: int

    def start(self, number: Any) -> Any:
        """First element of a tile."""
        if self.count == 1:
            return self.first
        start = number * self.step + self.first
        return start if self.first + (self.count - 1) * self.step == self.last else tirx.min(start, self.last)


def spans(axis: Axis, width: int) -> list[Span]:
    """Tiles that cover an axis; the last one overlaps the one before it or, where blocks forbid that, is not full."""
    whole, left = divmod(axis.extent, width)
    if not left:
        return [Span(0, whole, width, axis.extent - width, width)]
    if not axis.blocked:
        return [Span(0, whole + 1, width, axis.extent - width, width)]
    rest = Span(whole * width, 1, width, whole * width, left)
    return [Span(0, whole, width, (whole - 1) * width, width), rest] if whole else [rest]


def choose(axes: Sequence[Axis], lanes: int, itemsize: int) -> Tile:
    """The tile of a copy, for vectors of at most `lanes` elements of `itemsize` bytes."""
    columns = next(a for a in axes if a.source.contiguous)
    rows = next(a for a in axes if a.target.contiguous)
    if rows is columns or lanes == 1:
        return _run(axes, columns, lanes)
    lanes = min(lanes, _MOST)
    few = 0 if rows.blocked or columns.blocked else min(_FEW, lanes - 1)
    if columns.extent <= few and rows.source.stride == columns.extent:
        return _deinterleaved(axes, columns, rows, lanes)
    if rows.extent <= few and columns.target.stride == rows.extent:
        return _interleaved(axes, columns, rows, lanes)
    return _square(axes, columns, rows, lanes, itemsize)


def _run(axes: Sequence[Axis], axis: Axis, lanes: int) -> Tile:
    """What is contiguous in both tensors, or one element."""
    width = 1
    if lanes > 1:
        width = min([axis.extent, lanes, *_blocks(axis)])
        while width % lanes == 0 and width * 2 <= min([axis.extent, lanes * _RUN, *_blocks(axis)]):
            width *= 2
    # Runs of a block: along the other axes the target is a stream.
    order = [a for a in reversed(axes) if a is not axis] if axis.blocked else [axis]
    return Tile(axis, axis, {axis: width}, _fast(axes, {axis: width}, order), width)


def _deinterleaved(axes: Sequence[Axis], columns: Axis, rows: Axis, lanes: int) -> Tile:
    count, n = columns.extent, _power_of_two(rows.extent, lanes)
    widths, turn = {columns: count, rows: n}, functools.partial(deinterleave, lanes=n)
    stores = (count, columns.target.stride)
    return Tile(columns, rows, widths, _fast(axes, widths, [rows]), n, (count, n), stores, turn)


def _interleaved(axes: Sequence[Axis], columns: Axis, rows: Axis, lanes: int) -> Tile:
    count, n = rows.extent, _power_of_two(columns.extent, lanes)
    widths, turn = {columns: n, rows: count}, functools.partial(interleave, lanes=n)
    loads = (count, rows.source.stride)
    return Tile(columns, rows, widths, _fast(axes, widths, [columns]), n, loads, (count, n), turn)


def _square(axes: Sequence[Axis], columns: Axis, rows: Axis, lanes: int, itemsize: int) -> Tile:
    n = _power_of_two(lanes, *(a.extent for a in (rows, columns) if not a.blocked), *_blocks(rows, columns))
    # Blocks are walked along what lies between them: then one side of the copy is a stream.
    order = (columns, rows) if rows.blocked else (rows, columns)
    widths, turn = {rows: n, columns: n}, functools.partial(transpose, itemsize=itemsize)
    loads, stores = (n, rows.source.stride), (n, columns.target.stride)
    return Tile(columns, rows, widths, _fast(axes, widths, order), n, loads, stores, turn, square=True)


def _fast(axes: Sequence[Axis], widths: Mapping[Axis, int], order: Sequence[Axis]) -> Axis:
    """The first axis of `order`, or else the innermost one, that has more than one tile."""
    return next((a for a in (*order, *reversed(axes)) if a.extent > widths.get(a, 1)), axes[-1])


def _blocks(*axes: Axis) -> list[int]:
    """What a tile may hold of blocks: a power of two that divides their lanes."""
    return [p.lanes & -p.lanes for a in axes for p in (a.source, a.target) if p.lanes]


def _power_of_two(*limits: int) -> int:
    """The largest one that no limit is below."""
    return 1 << (min(limits).bit_length() - 1)
