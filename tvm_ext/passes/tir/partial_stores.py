"""Kernels that write only what they change, where their result lies where an operand does.

    for i: out[i] = data[i]                                   (gone)
    for j: out[rows[j]] = new[j]                       ->     for j: out[rows[j]] = new[j]

    for h, i, j: out[h, i, j] = select(i == row, new[h, j], data[h, i, j])
      ->   for i: if i == row: for h, j: out[h, i, j] = new[h, j]

The first form is that of TVM's scatters, the second one of masks, and of this library's TensorScatter.
"""

import math
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, Var
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize

from ...core.graph.nodes import mentions, nodes_by_kind, nodes_of, substituted
from ...core.group import RECIPE
from ...core.sizes import EXTENTS, extents_of

#: Elements that are stored at a time.
_LANES = 16
#: Statements that do something, or decide whether it is done.
_EFFECTS = (tirx.BufferStore, tirx.Evaluate, tirx.IfThenElse, tirx.While)


def without_copy(kernel: tirx.PrimFunc, data: int) -> tirx.PrimFunc | None:
    """The kernel without one of its parameters, whose values its result, the last parameter, must hold before.

    Args:
        kernel: scheduled, before its lowering.
        data: number of the parameter, of the shape and dtype of the result.

    Returns:
        None if the kernel changes more than a part of it, or nobody can tell.
    """
    old, out = kernel.params[data], kernel.params[-1]
    if copy := next(_copies(kernel.body, old, out), None):
        without = (tirx.For, lambda loop: tirx.Evaluate(0) if loop.same_as(copy) else loop)
        body = tvm_ffi.structural_map(kernel.body, without, order="pre")
    else:
        body = _guarded(kernel, old, out)
    if body is None or mentions(body, old):
        return None
    params = [*kernel.params[:data], *kernel.params[data + 1 :]]
    partial = tirx.PrimFunc(params, body, kernel.ret_type, kernel.attrs).without_attr(RECIPE)
    if (extents := extents_of(kernel)) is not None:  # those of parameters are read by their numbers
        partial = partial.with_attr({EXTENTS: [extent for number, extent in enumerate(extents) if number != data]})
    return partial


def _copies(stmt: Any, old: Any, out: Any) -> Iterator[Any]:
    """The loops that copy one buffer to another before anything else is done to it, where they run once."""
    if isinstance(stmt, SBlockRealize):
        yield from _copies(stmt.block.body, old, out)
    elif isinstance(stmt, tirx.AttrStmt):
        yield from _copies(stmt.body, old, out)
    elif isinstance(stmt, tirx.SeqStmt):
        for inner in stmt.seq:
            if mentions(inner, out):
                yield from [inner] if _is_copy(inner, old, out) else _copies(inner, old, out)
                return


def _is_copy(stmt: Any, old: Any, out: Any) -> bool:
    """Whether a statement is a nest of loops over one store, of an element to its own place."""
    inner = stmt
    while isinstance(inner, tirx.For):
        inner = inner.body
    stores = isinstance(stmt, tirx.For) and isinstance(inner, tirx.BufferStore) and inner.buffer.same_as(out)
    return stores and _loads(inner.value, old, inner.indices)


def _loads(expr: Any, buffer: Any, indices: Any) -> bool:
    """Whether an expression is an element of a buffer, perhaps one of a narrow float that is widened and narrowed."""
    if isinstance(expr, tirx.Cast) and isinstance(expr.value, tirx.Cast) and str(expr.value.ty.dtype) == "float32":
        stored = expr.value.value
        if str(expr.ty.dtype) == str(stored.ty.dtype) in ("float16", "bfloat16"):
            expr = stored
    loads = isinstance(expr, TensorLoad) and expr.source.same_as(buffer)
    return loads and bool(tvm_ffi.structural_equal(list(expr.indices), list(indices)))


def _guarded(kernel: tirx.PrimFunc, old: Any, out: Any) -> Any:
    """Loops that store new values where a condition holds, of a kernel that is one block; None of any other kernel.

    The block stores, of each point of its space, one element, either a new value or the old one. The condition is asked
    outside of all loops that it does not depend on.
    """
    blocks, stores = nodes_by_kind(kernel.body, SBlock, _EFFECTS)
    blocks = [block for block in blocks if block.iter_vars]
    store: Any = blocks[0].body if len(blocks) == len(stores) == 1 else None
    choice = _choice(store.value) if isinstance(store, tirx.BufferStore) and store.buffer.same_as(out) else None
    if choice is None or not _is_elementwise(blocks[0], store) or not _is_closed(store, blocks[0], kernel):
        return None
    fixed = {axis.var: tirx.IntImm(axis.var.ty.dtype, 0) for axis in blocks[0].iter_vars if int(axis.dom.extent) <= 1}
    condition, new, kept = (substituted(expr, fixed) for expr in choice)
    indices = [substituted(index, fixed) for index in store.indices]
    if _loads(new, old, indices):
        condition, new, kept = tirx.Not(condition), kept, new
    axes = [axis for axis in blocks[0].iter_vars if int(axis.dom.extent) > 1]
    outer = [axis for axis in axes if mentions(condition, axis.var)]
    if not _loads(kept, old, indices) or (axes and mentions(condition, axes[-1].var)):
        return None
    inner = _nest([axis for axis in axes if axis not in outer], tirx.BufferStore(out, new, indices), vector=True)
    return _nest(outer, tirx.IfThenElse(condition, inner, None))


def _choice(value: Any) -> tuple[Any, Any, Any] | None:
    """Condition, and values if it holds and if not."""
    if isinstance(value, tirx.Select):
        return value.condition, value.true_value, value.false_value
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name.endswith(".if_then_else"):
        return value.args[0], value.args[1], value.args[2]
    return None


def _is_elementwise(block: Any, store: Any) -> bool:
    """Whether a block stores an element a point of its space: its variables are data-parallel, and the indices."""
    parallel = all(int(axis.iter_type) == tirx.IterVar.DataPar and int(axis.dom.min) == 0 for axis in block.iter_vars)
    indices = [index for index in store.indices if isinstance(index, Var)]
    every = all(int(axis.dom.extent) == 1 or any(i.same_as(axis.var) for i in indices) for axis in block.iter_vars)
    return parallel and every and block.init is None


def _is_closed(store: Any, block: Any, kernel: tirx.PrimFunc) -> bool:
    """Whether a store reads parameters of its kernel alone, and variables of its block."""
    known = {*kernel.params, *(axis.var for axis in block.iter_vars)}
    return known.issuperset(nodes_of(store, Var))


def _nest(axes: list[Any], body: Any, vector: bool = False) -> Any:
    """Loops around a statement; with `vector` the innermost one in steps of several elements, where they divide it."""
    for axis in reversed(axes):
        extent = int(axis.dom.extent)
        lanes = math.gcd(extent, _LANES) if vector else 1
        if lanes > 1:
            dtype = axis.var.ty.dtype
            first, lane = (tirx.Var(f"{axis.var.name}_{end}", dtype) for end in ("first", "lane"))
            value = first * tirx.IntImm(dtype, lanes) + lane
            vectors = tirx.For(lane, 0, lanes, tirx.ForKind.VECTORIZED, substituted(body, {axis.var: value}))
            body = tirx.For(first, 0, extent // lanes, tirx.ForKind.SERIAL, vectors)
        else:
            body = tirx.For(axis.var, 0, extent, tirx.ForKind.SERIAL, body)
        vector = False
    return body
