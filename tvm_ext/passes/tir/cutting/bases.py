"""Where the share of a thread begins, if what it does is no single nest of loops.

    parallel t in range(2): { for a in range(28): s[a] = f(t * 28 + a);  for b in range(28): y[t * 28 + b] = s[b] }
->  parallel t in range(2): { first = t * N // 2; end = (t + 1) * N // 2; ... y[first + b] = s[b] }     of y[:N]

Loops over what is in a share then end at its end. No share is larger than at the bound, so that buffers are not.
"""

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from ....core.graph.nodes import mentions, nodes_by_kind
from .affine import Affine, Arithmetic, Extents, ceildiv, variables_of
from .shares import THREADS, start_of
from .statements import PARALLEL, SERIAL, descend, is_kind, loop_like, named, sequence, with_indices
from .views import Views

#: A loop over up to so many elements inside another one over the same dimension is a tile, which stays whole.
TILE = 16


@dataclass(frozen=True)
class Base:
    """The share of a thread, in units.

    Attributes:
        first, end: variables; bound at the beginning of the body of the loop over threads.
        total: units of all threads, in terms of symbols.
    """

    first: Any
    end: Any
    total: Any


def based(body: Any, extents: Extents, views: Views, arithmetic: Arithmetic) -> tuple[Any, dict[Any, Base]]:
    """A body whose loops are normal, with loops over threads whose shares are no nest; their variable -> the share."""
    bases: dict[Any, Base] = {}

    def visit(stmt: Any) -> Any:
        if not is_kind(stmt, PARALLEL) or THREADS in stmt.annotations or not isinstance(stmt.extent, tirx.IntImm):
            return descend(stmt, visit)
        unit = _unit(stmt, extents, views, arithmetic)
        if unit is None:
            return stmt
        count, total = unit
        threads = int(stmt.extent)
        first, begins = named("first", start_of(total, stmt.loop_var, threads))
        end, ends = named("end", start_of(total, stmt.loop_var + 1, threads))
        arithmetic.bind(first, threads * count + 1)
        inner = _with_first(stmt.body, stmt.loop_var, first, count)
        if inner is None:
            return stmt
        bases[stmt.loop_var] = Base(first, end, total)
        return loop_like(stmt, sequence(*begins, *ends, inner))

    return visit(body), bases


def _unit(loop: tirx.For, extents: Extents, views: Views, arithmetic: Arithmetic) -> tuple[int, Any] | None:
    """Units of a share at the bound, and the run-time count of all; None if the loop is over no such shares."""
    allocations, stores, nested = nodes_by_kind(loop.body, tirx.AllocBuffer, tirx.BufferStore, tirx.For)
    own = {allocation.buffer for allocation in allocations}
    loops = {inner.loop_var: inner for inner in nested}
    units: list[tuple[int, Any]] = []
    for buffer, indices in (views.of(store) for store in stores if store.buffer not in own):
        if buffer not in extents:
            return None
        unit = next(
            (
                unit
                for index, extent in zip(indices, extents[buffer], strict=True)
                if extent is not None and (unit := _of_index(index, extent, loop.loop_var, loops, arithmetic))
            ),
            None,
        )
        if unit is None:
            return None
        units.append(unit)
    if not units or any(c != units[0][0] or not tvm_ffi.structural_equal(t, units[0][1]) for c, t in units):
        return None
    return units[0]


def _of_index(
    index: Any, extent: Any, var: Any, loops: dict[Any, tirx.For], arithmetic: Arithmetic
) -> tuple[int, Any] | None:
    form = Affine.of(index)
    share, inner = form.terms.get(var, 0), form.without(var)
    ends = arithmetic.range(inner)
    if share <= 1 or ends is None or ends[0] < 0 or ends[1] >= share:
        return None
    steps = sorted((k, name, loops[v]) for name, (v, k) in enumerate(inner.terms.items()) if v in loops)
    for place, (k, _, loop) in enumerate(steps):
        covered = k * arithmetic.extents.get(loop.loop_var, TILE)
        if is_kind(loop, SERIAL) and (covered > TILE or place == len(steps) - 1):
            return (share // k, arithmetic.simplify(ceildiv(extent, k))) if share % k == 0 and share > k else None
    return None


def _with_first(body: Any, var: Any, first: Any, count: int) -> Any:
    """A body with k first in the place of k count var; None if it has the variable in other ways."""

    def sums(expr: Any) -> Any:
        if var not in variables_of(expr):
            return expr
        form = Affine.of(expr)
        factor = form.terms.get(var, 0)
        if factor % count:
            return expr
        rest = [(_operands(other, sums), k) for other, k in form.rest]
        terms = {**form.without(var).terms, **({first: factor // count} if factor else {})}
        return Affine(terms, rest, form.constant).expr(expr.ty.dtype)

    new = with_indices(body, sums)
    return None if mentions(new, var) else new


def _operands(expr: Any, change: Any) -> Any:
    if isinstance(expr, tirx.Min | tirx.Max | tirx.FloorDiv | tirx.FloorMod):
        return type(expr)(change(expr.a), change(expr.b))
    return expr
