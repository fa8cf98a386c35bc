"""Elements of a kernel's own buffers, numbered through the rows and columns of a call instead of those of the bound.

    for n, y, x: v[(n * 12 + y) * 12 + x] = ...                for n, y, x: v[(n * H + y) * W + x] = ...
    for q in range(576): p[q] = f(v[q])                 ->     for q in range(N * H * W): p[q] = f(v[q])
    for n, y, x: out[n, y, x] = p[(n * 12 + y) * 12 + x]       for n, y, x: out[n, y, x] = p[(n * H + y) * W + x]

Tiles of q then are as full as those of a kernel of that size. Buffers stay as large as at the bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from .affine import Affine, Arithmetic, variables_of
from .needs import Access, Needs
from .shares import SHARED
from .statements import SERIAL, is_kind, loop_like, named
from .views import Numbering

#: The dimension of the elements in both buffers.
_ELEMENT = 2

Digits = tuple[Any, Any, Any]
"""The variables of an image, a row and a column; None for each that there is one of only."""


@dataclass(frozen=True)
class Renumbered:
    """A body whose elements are numbered through what a call has.

    Attributes:
        body: with the indices of that numbering.
        binds: statements that give variables their values, before it.
        names: these variables: counts of rows and columns.
        counts: variable of a loop over images, rows or columns -> its iterations.
    """

    body: Any
    binds: Sequence[Any]
    names: Sequence[Any]
    counts: Mapping[Any, Any]


def renumbered(
    body: Any, numbering: Numbering, needs: Needs, nests: Mapping[Any, Any], symbols: set[Any], arithmetic: Arithmetic
) -> Renumbered | None:
    """A body in the numbering of a call; None if that is the one of the bound, or if an index is no sum of an image, a
    row and a column.

    Args:
        needs: of the body.
        nests: variables of loops that threads share; they still do.
        symbols: variables that are known everywhere.
    """
    strides = (numbering.rows * numbering.columns, numbering.columns, 1)
    written = _all_digits([s for s in needs.stores if s.buffer.name == numbering.source], strides)
    read = _all_digits([load for load in needs.loads if load.buffer.name == numbering.result], strides)
    if not written or not read or not all(_same(other, read[0]) for other in read):
        return None
    counts = [None if var is None else needs.count(var) for var in read[0]]
    radices = _radices(counts, numbering)
    if not radices or any(variables_of(count) - symbols for count in radices):
        return None
    pairs = [(var, n) for digits in written for var, n in zip(digits, counts, strict=True) if var is not None]
    own = {var: n for var, n in pairs if n is not None and variables_of(n) <= {*needs.loops[var][1], *symbols}}
    if any(not is_kind(needs.loops[var][0], SERIAL) and var not in nests for var, _ in pairs):
        return None
    return _in_radices(body, numbering, counts, own, nests, arithmetic)


def _same(digits: Digits, others: Digits) -> bool:
    return all(a is b if a is None or b is None else a.same_as(b) for a, b in zip(digits, others, strict=True))


def _radices(counts: Sequence[Any], numbering: Numbering) -> list[Any]:
    """The counts of rows, where there are several images, and of columns; none where it is that of the bound."""
    return [count for count in (counts[1] if numbering.rows else None, counts[2]) if count is not None]


def _all_digits(accesses: Sequence[Access], strides: tuple[int, int, int]) -> list[Digits]:
    """The digits of elements; none if one of them is no sum of such."""
    out: list[Digits] = []
    for access in accesses if len(set(strides)) == len(strides) else ():
        form = Affine.of(access.indices[_ELEMENT])
        by_stride = {k: var for var, k in form.terms.items()}
        if len(by_stride) < len(form.terms) or by_stride.keys() - set(strides) or form.rest or form.constant:
            return []
        image, row, column = (by_stride.get(stride) for stride in strides)
        out.append((image, row, column))
    return out


def _in_radices(
    body: Any, numbering: Numbering, counts: Sequence[Any], own: Mapping[Any, Any], nests: Mapping[Any, Any],
    arithmetic: Arithmetic,
) -> Renumbered:  # fmt: skip
    binds: list[Any] = []
    names: list[Any] = []

    def radix(name: str, count: Any, bound: int) -> Any:
        if count is None:
            return bound
        var, stmts = named(name, count)
        arithmetic.bind(var, bound, 1)
        binds.extend(stmts)
        names.append(var)
        return var

    columns = radix("columns", counts[2], numbering.columns)
    rows = radix("rows", counts[1], numbering.rows) if numbering.rows else 0
    strides = {numbering.rows * numbering.columns: rows * columns, numbering.columns: columns, 1: 1}

    def loop(stmt: Any) -> Any:
        """What threads shared they still do: that iterations are apart is no longer seen."""
        if stmt.loop_var not in nests:
            return stmt
        return loop_like(stmt, stmt.body, annotations={SHARED: 0, **stmt.annotations})

    body = tvm_ffi.structural_map(_with_strides(body, numbering, strides), (tirx.For, loop))
    return Renumbered(body, binds, names, own)


def _with_strides(body: Any, numbering: Numbering, strides: Mapping[int, Any]) -> Any:
    """A body whose elements have other strides where they are numbered by rows."""

    def indices(access: Any) -> list[Any]:
        index = access.indices[_ELEMENT]
        terms = (var * strides[k] for var, k in Affine.of(index).terms.items())
        element = sum(terms, tirx.const(0, index.ty.dtype))
        return [element if place == _ELEMENT else other for place, other in enumerate(access.indices)]

    def load(expr: Any) -> Any:
        return tirx.BufferLoad(expr.source, indices(expr)) if expr.source.name == numbering.result else expr

    def store(stmt: Any) -> Any:
        if stmt.buffer.name != numbering.source:
            return stmt
        return tirx.BufferStore(stmt.buffer, stmt.value, indices(stmt))

    return tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store)])
