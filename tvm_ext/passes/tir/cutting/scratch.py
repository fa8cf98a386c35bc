"""Buffers that an iteration writes whole before it reads them are allocated in it, and not around the loops.

    a = alloc [8]; for i: for j: { a[:] = ...; y[i, j] = ... a ... }    ->    for i: for j: { a = alloc [8]; ... }

No iteration then depends on another one: what of them is needed, and which thread does it, is free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

from ....core.graph.nodes import nodes_of
from .affine import Affine
from .statements import PARALLEL, SERIAL, chain_of, children, descend, in_chain, is_kind, sequence


def sunk(stmt: Any) -> Any:
    """A statement with its scratch buffers allocated where they are used."""
    if isinstance(stmt, tirx.SeqStmt):
        allocs = [part for part in stmt.seq if isinstance(part, tirx.AllocBuffer)]
        rest = [part for part in stmt.seq if not isinstance(part, tirx.AllocBuffer)]
        if allocs and len(rest) == 1 and is_kind(rest[0], SERIAL, PARALLEL):
            loops, inner = chain_of(rest[0])
            private = [alloc for alloc in allocs if _is_private(alloc.buffer, inner)]
            others = [alloc for alloc in allocs if alloc not in private]
            parts = list(inner.seq) if isinstance(inner, tirx.SeqStmt) else [inner]
            return sequence(*others, in_chain(loops, sunk(sequence(*private, *parts))))
    return descend(stmt, sunk)


@dataclass(frozen=True)
class _Access:
    """A load or store of a buffer, in the order of the program.

    Attributes:
        indices: where.
        loops: around it, inside the iteration.
        stores: whether it is a store.
        sure: whether every iteration reaches it.
    """

    indices: Sequence[Any]
    loops: tuple[tirx.For, ...]
    stores: bool
    sure: bool


def _is_private(buffer: Any, body: Any) -> bool:
    """Whether a body writes all of a buffer before it reads any of it."""
    accesses: list[_Access] = []
    uses = [var for var in nodes_of(body, Var) if var.same_as(buffer)]
    _collect(body, buffer, (), True, accesses)
    if not accesses or len(uses) != len(accesses):  # its address is taken
        return False
    first = accesses[0]
    if not (first.stores and first.sure and _covers(first, [int(size) for size in buffer.ty.shape])):
        return False
    nest = first.loops[:1]
    during = [a for a in accesses if not a.stores and nest and a.loops and a.loops[0].same_as(nest[0])]
    same = [all(map(tvm_ffi.structural_equal, a.indices, first.indices)) for a in during]
    return all(same)


def _collect(stmt: Any, buffer: Any, loops: tuple[tirx.For, ...], sure: bool, out: list[_Access]) -> None:
    for name in ("value", "condition", "extent", "indices"):
        if (expr := getattr(stmt, name, None)) is not None:
            loads = (load for load in nodes_of(expr, TensorLoad) if load.source.same_as(buffer))
            out.extend(_Access(load.indices, loops, False, sure) for load in loads)
    if isinstance(stmt, tirx.BufferStore) and stmt.buffer.same_as(buffer):
        out.append(_Access(stmt.indices, loops, True, sure))
    inside = (*loops, stmt) if isinstance(stmt, tirx.For) else loops
    always = sure and not isinstance(stmt, tirx.IfThenElse | tirx.While)
    for child in children(stmt):
        _collect(child, buffer, inside, always, out)


def _covers(store: _Access, shape: Sequence[int]) -> bool:
    """Whether a store, in all iterations of the loops around it, writes a whole buffer."""
    extents = {
        loop.loop_var: int(loop.extent) for loop in store.loops
        if isinstance(loop.extent, tirx.IntImm) and isinstance(loop.min, tirx.IntImm) and int(loop.min) == 0
    }  # fmt: skip
    if len(extents) < len(store.loops):
        return False
    used: list[Any] = []
    for index, size in zip(store.indices, shape, strict=True):
        if isinstance(index, tirx.Ramp):
            return False
        form, step = Affine.of(index), 1
        if form.rest or form.constant or any(var not in extents for var in form.terms):
            return False
        for var, k in sorted(form.terms.items(), key=lambda term: term[1]):
            if k != step:
                return False
            step *= extents[var]
        used += form.terms
        if step != size:
            return False
    return len(used) == len(set(used))
