"""Pixels of an image are numbered through the rows and columns of a call, and not through those of the bound.

    block (q), "tvm_ext.pixels": [0, 400, 20]       y[q // 20, q % 20] = x[q // 20, q % 20]
->  p = min(q, H * W - 1)                           y[p // W, p % W] = x[p // W, p % W]          of up to 20 x 20

Register tiles then cross rows, as in a program of one size. Pixels behind the last are the last one once more.
"""

from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.s_tir import SBlock, SBlockRealize

from ...core.graph.nodes import nodes_of, substituted
from ...core.sizes import SIZES, SYMBOLS, extents_of
from ...schedules.blocked.problem import PIXELS
from .cutting.affine import variables_of
from .cutting.pixels import COLUMNS, ROWS

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


def number_pixels(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel of blocks whose annotated ones number pixels so, which its attribute :data:`...PIXELS` says then; one
    without run-time extents is left as it is."""
    extents = extents_of(function)
    if extents is None or not any(PIXELS in block.annotations for block in nodes_of(function.body, SBlock)):
        return function
    (sizes,) = (param for param in function.params if param.name == SIZES)
    reads = {var: tirx.BufferLoad(sizes, [i]) for i, (var, _) in enumerate(function.attrs[SYMBOLS])}
    rows, columns = (tirx.Cast("int32", substituted(extents[-1][d], reads)) for d in (ROWS, COLUMNS))

    def realize(node: SBlockRealize) -> Any:
        return _numbered(node, rows, columns) if PIXELS in node.block.annotations else node

    body = tvm_ffi.structural_map(function.body, (SBlockRealize, realize))
    return function.with_body(body).with_attr(PIXELS, True)


def _numbered(realize: SBlockRealize, rows: Any, columns: Any) -> SBlockRealize:
    """A block in the numbering of a call; all pixels of a tile are computed, and stored."""
    block = realize.block
    place, pixels, bound = map(int, block.annotations[PIXELS])
    q = block.iter_vars[place].var
    pixel = tirx.min(q, tirx.max(rows * columns - 1, 0))

    def division(node: Any) -> Any:
        if not isinstance(node.b, tirx.IntImm) or int(node.b) != bound or not _is_pixel(node.a, q, pixels):
            return node
        return type(node)(pixel, columns)

    new = tvm_ffi.structural_map(block, (_DIVISIONS, division))
    left = [node for node in nodes_of(new.body, _DIVISIONS) if isinstance(node.b, tirx.IntImm)]
    assert all(q not in variables_of(node.a) for node in left), f"{block.name_hint} divides pixels in another way"
    annotations = {key: value for key, value in block.annotations.items() if key != PIXELS}
    fields = (new.iter_vars, new.reads, new.writes, new.name_hint, new.body, new.init, new.alloc_buffers)
    numbered = SBlock(*fields, new.match_buffers, annotations)
    return SBlockRealize(realize.iter_values, _within(realize, place, pixels), numbered)


def _is_pixel(expr: Any, q: Any, pixels: int) -> bool:
    """Whether an expression is a pixel, or the last one for those behind it."""
    last = isinstance(expr, tirx.Min) and isinstance(expr.b, tirx.IntImm) and int(expr.b) == pixels - 1
    return bool((expr.a if last else expr).same_as(q))


def _within(realize: SBlockRealize, place: int, pixels: int) -> Any:
    """The condition of a block, without the one that a pixel is below so many."""
    analyzer, value = sym.Analyzer(), realize.iter_values[place]

    def factors(condition: Any) -> list[Any]:
        return [*factors(condition.a), *factors(condition.b)] if isinstance(condition, tirx.And) else [condition]

    def is_end(condition: Any) -> bool:
        end = isinstance(condition, tirx.LT) and isinstance(condition.b, tirx.IntImm) and int(condition.b) == pixels
        return end and analyzer.can_prove_equal(condition.a, value)

    return tirx.all(tirx.const(True, "bool"), *(part for part in factors(realize.predicate) if not is_end(part)))
