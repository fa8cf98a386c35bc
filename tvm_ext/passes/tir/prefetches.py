"""Lowers the annotations of :mod:`...schedules.blocked.prefetch`: a loop asks for lines that later ones read.

for r in ...:  # lines ("p1", ahead, 2, 0), inside a loop t that shares them
    y += p1[f(t, r)]
->
for r in ...:
    prefetch(&p1[f(t, r) + ahead + 2 t lines]); prefetch(&p1[f(t, r) + ahead + (2 t + 1) lines])
    y += p1[f(t, r)]
"""

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from ...core.graph.nodes import substituted
from ...schedules.blocked.prefetch import INPUTS, INTO_L1, INTO_L2, LINE_BYTES, LINES, SHARED_BY, prefetch

#: Non-temporal: it fills L1, then L2, and, once evicted, not L3, on AMD's Zen. On a Zen 5 that pays: a stream through
#: L3 that no call finds again takes half as long again for seconds at a time (14x14 layers of ResNet-18 250 us, or
#: 390), one that passes L3 by does not. On a Zen 4 it does not: ResNet-18 with AVX2 takes 10.7 to 13.0 ms with lines
#: into L2, 11.9 to 13.8 past L3. Elsewhere it fills L1 alone.
_NON_TEMPORAL = 0
_PASSED_BY = "znver5"


def insert_prefetches(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel whose buffers are flat, with prefetches; one without annotations is left as it is."""
    passing = _NON_TEMPORAL if _mcpu(function) == _PASSED_BY else INTO_L2
    numbers = numbers_of(function.body)

    def shared(tiles: tirx.For) -> tirx.For:
        if SHARED_BY not in tiles.annotations:
            return tiles
        number, count = numbers[tiles.loop_var]
        total = int(tiles.annotations[SHARED_BY])
        number = number if total else tirx.const(0, "int32")
        share = None if total in (0, 1) or isinstance(count, tirx.IntImm) else _share(total, count)
        lines = (tirx.For, lambda loop: _prefetching(loop, number, share, passing))
        return _with_body(tiles, tvm_ffi.structural_map(tiles.body, lines), SHARED_BY)

    body = tvm_ffi.structural_map(function.body, (tirx.For, shared))
    return function.with_body(tvm_ffi.structural_map(body, (tirx.For, _prefetching_inputs)))


def _share(total: int, count: Any) -> Any:
    """Lines that each of so many tiles asks for, of a total of :data:`SHARED_BY`."""
    share = tirx.floordiv(count + (abs(total) - 1), count)
    return share if total > 0 else tirx.Select(count > 1, share, tirx.const(0, share.ty.dtype))


def numbers_of(body: Any) -> dict[Any, tuple[Any, Any]]:
    """Variable of a loop that shares lines -> how many tiles came before, and how many there are, also in loops around
    it: the pass `cut-loops` makes rows, and tiles of a row, of a loop over tiles."""
    numbers: dict[Any, tuple[Any, Any]] = {}

    def outer(loop: tirx.For) -> None:
        if SHARED_BY in loop.annotations:
            number, count = numbers.setdefault(loop.loop_var, (loop.loop_var - loop.min, loop.extent))

            def inner(each: tirx.For) -> None:
                if SHARED_BY in each.annotations:
                    place = number * each.extent + (each.loop_var - each.min)
                    numbers[each.loop_var] = place, count * each.extent

            tvm_ffi.structural_walk(loop.body, (tirx.For, inner))

    tvm_ffi.structural_walk(body, (tirx.For, outer), order="pre")
    return numbers


def _mcpu(function: tirx.PrimFunc) -> str:
    """The processor of a function's target; "" if it has none."""
    target = function.attrs.get("target") if function.attrs else None
    return str(target.attrs.get("mcpu", "")) if target is not None else ""


def _prefetching(loop: tirx.For, number: Any, share: Any, passing: int) -> tirx.For:
    """The loop with prefetches before its body, if it is annotated so.

    Args:
        number: of the tile, of those that share the lines.
        share: lines of a tile, an expression; None for as many as the annotation says.
        passing: locality of lines that no cache keeps.
    """
    if LINES not in loop.annotations:
        return loop
    name, ahead, lines, passes = loop.annotations[LINES]
    lines = int(lines) if share is None else share
    return _asking(loop, LINES, name, ahead, lines, number * lines, passing if int(passes) else INTO_L2)


def _prefetching_inputs(loop: tirx.For) -> tirx.For:
    if INPUTS not in loop.annotations:
        return loop
    name, ahead, lines = loop.annotations[INPUTS]
    return _asking(loop, INPUTS, name, ahead, int(lines), 0, INTO_L1)


def _asking(
    loop: tirx.For, annotation: str, name: Any, ahead: Any, lines: Any, skipped: Any, locality: int
) -> tirx.For:
    """The loop with prefetches of so many lines before its body: `skipped` lines behind the element that lies `ahead`
    of the first that the body reads."""
    buffer, index = _first_load(loop, str(name))
    per_line = LINE_BYTES * 8 // tvm.DataType(str(buffer.ty.dtype)).bits
    first = index + int(ahead) + skipped * per_line
    if isinstance(lines, int):
        asks = [tirx.Evaluate(prefetch(buffer, [first + line * per_line], locality)) for line in range(lines)]
    else:
        line = tirx.Var("line", lines.ty.dtype)
        ask = tirx.Evaluate(prefetch(buffer, [first + line * per_line], locality))
        asks = [tirx.For(line, lines * 0, lines, tirx.ForKind.SERIAL, ask)]
    return _with_body(loop, tirx.SeqStmt([*asks, loop.body]), annotation)


def _first_load(loop: tirx.For, name: str) -> tuple[Any, Any]:
    """The buffer of a name, and the index at which an iteration of the loop begins to read it."""
    loads: list[Any] = []
    inner: dict[Any, Any] = {}

    def load(expr: TensorLoad) -> None:
        if expr.source.name == name:
            loads.append(expr)

    def begin(each: tirx.For) -> None:
        inner[each.loop_var] = each.min

    tvm_ffi.structural_walk(loop.body, [(TensorLoad, load), (tirx.For, begin)])
    assert loads, f"no load of {name} in the loop that is to prefetch it"
    index = loads[0].indices[0]
    index = index.base if isinstance(index, tirx.Ramp) else index
    return loads[0].source, substituted(index, inner)


def _with_body(loop: tirx.For, body: Any, annotation: str) -> tirx.For:
    rest = {key: value for key, value in loop.annotations.items() if key != annotation}
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, rest, loop.step)
