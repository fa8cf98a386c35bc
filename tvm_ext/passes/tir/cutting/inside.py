"""Iterations that read only what is beyond an image, as :data:`....core.sizes.INSIDE` says: they store zeros.

for x in range(4):  # "p0"                  for x in range(4):
    tile = ... p0[y, 8 * x + i] ...    ->       if y < H and 8 * x < W: tile = ... ; mid[8 * x + i] = f(tile)
    mid[8 * x + i] = f(tile)                    else: mid[8 * x + i] = 0
"""

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from ....core.graph.nodes import nodes_by_kind, substituted
from ....core.sizes import INSIDE
from .affine import Extents
from .statements import loop_like

#: The first dimension of an image that has rows: those before count images and channels.
_ROW = 2


def inside(body: Any, extents: Extents) -> Any:
    """A body without blocks whose annotated loops compute what is inside the extents of an image, and store zeros where
    that is nothing."""
    images = {param.name: shape for param, shape in extents.items()}

    def visit(loop: tirx.For) -> Any:
        if INSIDE not in loop.annotations:
            return loop
        rest = {key: value for key, value in loop.annotations.items() if key != INSIDE}
        name = str(loop.annotations[INSIDE])
        whole = _condition(loop.body, name, images[name])
        new = loop.body if whole is None else tirx.IfThenElse(whole, loop.body, _zeros(loop.body.seq[-1]))
        return loop_like(loop, new, annotations=rest)

    return tvm_ffi.structural_map(body, (tirx.For, visit))


def _condition(body: Any, name: str, extents: Any) -> Any:
    """Whether the first pixel that is read of an image is inside; None if all are. Pixels grow with inner variables."""
    loads, loops = nodes_by_kind(body, TensorLoad, tirx.For)
    first = {loop.loop_var: loop.min for loop in loops}
    load = next(load for load in loads if load.source.name == name)
    pairs = list(zip(load.indices, extents, strict=True))[_ROW:]
    parts = [substituted(index, first) < extent for index, extent in pairs if extent is not None]
    return tirx.all(*parts) if parts else None


def _zeros(stmt: Any) -> Any:
    """A statement with loops of its own that stores zeros where another one stores."""
    (loops,) = nodes_by_kind(stmt, tirx.For)
    own = {loop.loop_var: tirx.Var(loop.loop_var.name, loop.loop_var.ty.dtype) for loop in loops}

    def store(old: tirx.BufferStore) -> Any:
        lanes = getattr(old.value.ty.dtype, "lanes", 1)
        zero = tirx.const(0, old.buffer.ty.dtype)
        return tirx.BufferStore(old.buffer, zero if lanes == 1 else tirx.Broadcast(zero, lanes), old.indices)

    return substituted(tvm_ffi.structural_map(stmt, (tirx.BufferStore, store)), own)
