"""Where loads and stores lie: buffers and indices of one number each.

    y[Ramp(i, 1, 8)]                            y at i + lane, a variable from 0 to 7
    flat[i] of flat = y's memory, y: (4, 24)    y at (i // 24, i % 24)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from .affine import Arithmetic


class Views:
    """Accesses of a body, whose loops' ranges are known.

    Attributes:
        unknown: buffers that share memory with others in ways that are not known.
        lanes: variable that stands for the lanes of a vector -> the last of them.
    """

    def __init__(self, body: Any, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self._flat: dict[Any, Any] = {}
        self.unknown: set[Any] = set()
        self.lanes: dict[Any, Any] = {}
        tvm_ffi.structural_walk(body, (tirx.DeclBuffer, self._declare))

    def _declare(self, stmt: tirx.DeclBuffer) -> None:
        data = stmt.data
        whole = data.args[0] if isinstance(data, Call) and getattr(data.op, "name", "") == "tirx.buffer_data" else None
        if whole is not None and _is_flat(stmt.buffer, whole):
            self._flat[stmt.buffer] = whole
            return
        self.unknown.add(stmt.buffer)
        if whole is not None:
            self.unknown.add(whole)

    def buffer(self, buffer: Any) -> Any:
        """Whose memory a buffer is."""
        return self._flat.get(buffer, buffer)

    def of(self, node: Any) -> tuple[Any, Sequence[Any]]:
        """The buffer of a load or store, and its indices."""
        buffer = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        indices = [self._scalar(index) for index in node.indices]
        if buffer not in self._flat:
            return buffer, indices
        whole, (index,) = self._flat[buffer], indices
        sizes, out = [int(size) for size in whole.ty.shape], []
        for place, size in enumerate(sizes):
            step = math.prod(sizes[place + 1 :])
            part = tirx.floordiv(index, step) if step > 1 else index
            out.append(self._arithmetic.simplify(tirx.floormod(part, size) if place else part))
        return whole, out

    def _scalar(self, index: Any) -> Any:
        if isinstance(index, tirx.Ramp) and isinstance(index.lanes, int | tirx.IntImm):
            lane = tirx.Var("lane", index.base.ty.dtype)
            self._arithmetic.bind(lane, int(index.lanes))
            self.lanes[lane] = tirx.const(int(index.lanes) - 1, lane.ty.dtype)
            return index.base + lane * index.stride
        return index


def _is_flat(buffer: Any, whole: Any) -> bool:
    """Whether a buffer is another one's memory, element by element."""
    shape = [*buffer.ty.shape, *whole.ty.shape]
    bits = [tvm.DataType(str(b.ty.dtype)).bits for b in (buffer, whole)]
    constant = all(isinstance(size, tirx.IntImm) for size in shape)
    return (
        constant and len(buffer.ty.shape) == 1 and bits[0] == bits[1] and not len(whole.ty.strides)
        and int(buffer.ty.shape[0]) == math.prod(int(size) for size in whole.ty.shape) and int(buffer.ty.elem_offset) == 0
    )  # fmt: skip
