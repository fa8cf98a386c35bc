"""Reductions over no elements: TVM's loops run zero times, and with them the start of the result.

for i, k in grid(4, 0):              ->   for i, k in grid(4, 1):
    init: y[i] = 0                            y[i] = 0
    y[i] = y[i] + x[i, k]
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlock, SBlockRealize

_REDUCTION = 2


def started(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel, where a reduction over no elements leaves what it starts from, not what was in memory."""
    empty: list[SBlockRealize] = []

    def look(realize: SBlockRealize) -> None:
        if realize.block.init is not None and any(map(_is_empty, realize.block.iter_vars)):
            empty.append(realize)

    tvm_ffi.structural_walk(function.body, (SBlockRealize, look))
    if not empty:
        return function
    blocks = {realize.block.name_hint for realize in empty}
    loops = [v for r in empty for v, i in zip(r.iter_values, r.block.iter_vars, strict=True) if _is_empty(i)]

    def loop(node: tirx.For) -> tirx.For:
        if not any(node.loop_var.same_as(var) for var in loops):
            return node
        return tirx.For(node.loop_var, node.min, tirx.const(1, node.loop_var.ty.dtype), node.kind, node.body)

    def block(node: SBlock) -> SBlock:
        return _start(node) if node.name_hint in blocks else node

    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, loop), (SBlock, block)]))


def _is_empty(variable: tirx.IterVar) -> bool:
    extent = variable.dom.extent
    return int(variable.iter_type) == _REDUCTION and isinstance(extent, tirx.IntImm) and int(extent) == 0


def _start(block: SBlock) -> SBlock:
    """A block that only writes what its reduction starts from."""
    iters = [_once(v) if _is_empty(v) else v for v in block.iter_vars]
    return SBlock(
        iters, [], block.writes, block.name_hint, block.init, None, block.alloc_buffers, block.match_buffers,
        block.annotations,
    )  # fmt: skip


def _once(variable: tirx.IterVar) -> Any:
    return tirx.IterVar(Range(0, tirx.const(1, variable.var.ty.dtype)), variable.var, variable.iter_type)
