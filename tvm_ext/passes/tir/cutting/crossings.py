"""Tiles that cross the rows they are counted in: those that touch what is inside the extents, row by row.

    for m in range(51): for i in unroll(5): y[(m * 5 + i) // 37, (m * 5 + i) % 37] = ...           y: (7, 37)
->  for row in range(7): for j in range(9): m = first(row) + j; if m <= last(row): for i ...

Of y[:N, :S], rows are cut to N and tiles of a row to ceildiv(S - 1, 5) + 1. A tile in two rows is the first one's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from ....core.graph.nodes import nodes_by_kind
from ....schedules.blocked.prefetch import SHARED_BY
from .affine import Affine, Arithmetic, Extents
from .normal import shareable
from .shares import SHARED, THREADS
from .statements import PARALLEL, SERIAL, chain_of, descend, in_chain, is_kind, loop_like, named, sequence
from .views import Views


@dataclass(frozen=True)
class Level:
    """Rows, or rows of rows.

    Attributes:
        size: how many there are at the bound.
        extent: at run time; None if all.
    """

    size: int
    extent: Any


@dataclass(frozen=True)
class Crossing:
    """Tiles in rows.

    Attributes:
        tile, row: elements of a tile and of a row.
        extent: elements of a row that are needed.
        levels: of the rows, outermost first.
    """

    tile: int
    row: int
    extent: Any
    levels: tuple[Level, ...]


@dataclass
class Crossed:
    """Loops over tiles in rows.

    Attributes:
        counts: variable of a loop -> iterations that are needed.
        tops: variable of a tile -> its largest value, by the variables of its row.
    """

    counts: dict[Any, Any]
    tops: dict[Any, Any]


def cross(body: Any, extents: Extents, views: Views, arithmetic: Arithmetic) -> tuple[Any, Crossed]:
    """A body whose loops are normal, with its crossing tiles row by row."""
    crossed = Crossed({}, {})

    def visit(stmt: Any) -> Any:
        if not is_kind(stmt, SERIAL, PARALLEL):
            return descend(stmt, visit)
        loops, inner = chain_of(stmt)
        for place, loop in enumerate(loops):
            crossing = _crossing(loop, extents, views, arithmetic)
            if crossing is not None:
                free = is_kind(stmt, PARALLEL) and place < len(shareable(loops, inner, views, arithmetic))
                digits, binds, inside = _rows(loop, crossing, free, arithmetic, crossed)
                inner = sequence(*binds, tirx.IfThenElse(inside, visit(inner), None))
                return in_chain([*loops[:place], *digits, *loops[place + 1 :]], inner)
        return in_chain(loops, descend(inner, visit))

    return visit(body), crossed


def _crossing(loop: tirx.For, extents: Extents, views: Views, arithmetic: Arithmetic) -> Crossing | None:
    """The rows that all stores of a loop's iterations are in; None if they are in none, or in several kinds."""
    allocations, stores = nodes_by_kind(loop.body, tirx.AllocBuffer, tirx.BufferStore)
    own = {allocation.buffer for allocation in allocations}
    places = [views.of(store) for store in stores if store.buffer not in own]
    if loop.loop_var not in arithmetic.extents or not all(buffer in extents for buffer, _ in places):
        return None
    found = [_of_store(b, indices, loop.loop_var, extents[b], arithmetic) for b, indices in places]
    first = found[0] if found else None
    return first if first is not None and all(_same(first, other) for other in found) else None


def _same(one: Crossing, other: Crossing | None) -> bool:
    if other is None or (one.tile, one.row) != (other.tile, other.row) or len(one.levels) != len(other.levels):
        return False
    pairs = [(one.extent, other.extent), *((a.extent, b.extent) for a, b in zip(one.levels, other.levels, strict=True))]
    return all(a is b if a is None or b is None else tvm_ffi.structural_equal(a, b) for a, b in pairs)


def _of_store(buffer: Any, indices: Any, var: Any, extents: Any, arithmetic: Arithmetic) -> Crossing | None:
    dims = list(zip(indices, extents, map(int, buffer.ty.shape), strict=True))
    for index, extent, _ in dims:
        if isinstance(index, tirx.FloorMod) and isinstance(index.b, tirx.IntImm) and extent is not None:
            form, row = Affine.of(index.a), int(index.b)
            tile = form.terms.get(var, 0)
            ends = arithmetic.range(form.without(var))
            if tile > 1 and row % tile and ends is not None and ends[0] >= 0 and ends[1] < tile:
                levels = _levels(dims, index.a, row, arithmetic)
                return None if levels is None else Crossing(tile, row, extent, levels)
    return None


def _levels(dims: Any, element: Any, row: int, arithmetic: Arithmetic) -> tuple[Level, ...] | None:
    """The dimensions that count rows of an element, outermost first, of (index, extent, size) of all; None if they are
    not all there."""
    if arithmetic.analyzer.const_int_bound(element).max_value < row:
        return ()
    quotient = tirx.FloorDiv(element, tirx.const(row, element.ty.dtype))
    for index, extent, size in dims:
        if tvm_ffi.structural_equal(index, quotient):
            return (Level(size, extent),)
    for index, extent, size in dims:
        if isinstance(index, tirx.FloorMod) and tvm_ffi.structural_equal(index.a, quotient) and int(index.b) == size:
            outer = _levels(dims, element, row * size, arithmetic)
            return None if outer is None else (*outer, Level(size, extent))
    return None


def _rows(
    loop: tirx.For, crossing: Crossing, free: bool, arithmetic: Arithmetic, crossed: Crossed
) -> tuple[list[tirx.For], list[Any], Any]:
    """Loops over rows and the tiles of each, the statements that bind the tile, and the condition that it is needed."""
    var, tile, row, extent = loop.loop_var, crossing.tile, crossing.row, crossing.extent
    dtype = var.ty.dtype
    digits: list[tirx.For] = []
    shared = {SHARED: int(loop.annotations.get(SHARED, is_kind(loop, PARALLEL)))} if free else {}
    rest = {k: v for k, v in loop.annotations.items() if k != THREADS}
    shared |= {k: v for k, v in rest.items() if k == SHARED_BY}

    def add(name: str, size: int, count: Any, annotations: Any) -> Any:
        digit = tirx.Var(f"{var.name}_{name}", dtype)
        arithmetic.bind(digit, size)
        crossed.counts[digit] = None if count is None else arithmetic.simplify(tirx.min(count, size))
        digits.append(tirx.For(digit, loop.min, tirx.const(size, dtype), SERIAL, loop.body, None, annotations))
        return digit

    place, before = tirx.const(0, dtype), tirx.const(False, "bool")
    for level in crossing.levels:
        digit = add("row", level.size, level.extent, shared)
        whole = tirx.const(True, "bool") if level.extent is None else level.extent == level.size
        before = tirx.any(digit > 0, tirx.all(whole, before))
        place = place * level.size + digit
    count = tirx.floordiv(extent + (tile - 2), tile) + 1
    step = add("tile", (row + tile - 2) // tile + 1, count, {**rest, **shared})
    last = tirx.floordiv(place * row + (extent - 1), tile)
    if int(loop.extent) * tile < row * math.prod(level.size for level in crossing.levels):  # others do what is left
        last = tirx.min(last, loop.extent - 1)
    done = tirx.floordiv(place * row - row + (extent - 1), tile) + 1
    first = tirx.max(tirx.floordiv(place * row, tile), tirx.Select(before, done, tirx.const(0, dtype)))
    crossed.tops[var] = last
    head = {
        **digits[0].annotations,
        **({THREADS: loop.annotations.get(THREADS, loop.extent)} if is_kind(loop, PARALLEL) else {}),
    }
    digits[0] = loop_like(digits[0], loop.body, kind=loop.kind, annotations=head)
    tile_var, binds = named(var.name, arithmetic.simplify(first) + step)
    return digits, [*binds, tirx.Bind(var, tile_var)], var <= arithmetic.simplify(last)
