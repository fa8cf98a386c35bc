"""Where the buffers of a kernel lie, decided between the halves of its lowering (:mod:`.kernel_passes`).

    k(x, y): t = alloc [n]; parallel i: a = alloc [m]; b = alloc [7]; ...
      ->   k(x, t, a, y): parallel i: b = stack [7]; ... t[j] ... a[i*m + j] ...

TVM takes buffers that a kernel needs for itself from a pool, in every run and for each thread, beside all memory that
is planned, and it does so even for a tile that fits the registers. Here small buffers stay on the stack, where LLVM
finds registers for them. Larger ones are parameters: one for all threads, or a share of it for each iteration of a
parallel loop. What a thread needs for itself, up to 256 KiB, is left to the pool of that thread, where it is
still in its L2 cache: planned among activations, it cost ResNet-50 6 % of its time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

#: A buffer of up to this many bytes stays on the stack of its thread.
STACK_BYTES = 8192
#: One of a single thread, up to this many bytes, is left to TVM's pool of that thread. ResNet-50 takes as
#: long with 512 KiB, which is more memory in all.
POOLED_BYTES = 256 * 1024
#: TVM's annotation of an allocation that LowerTVMBuiltin leaves alone.
_ON_STACK = "disable_lower_builtin"
#: Shares of threads begin at multiples of this many bytes: no cache line is written by two.
SHARE_ALIGNMENT = 64


@dataclass
class _Buffer:
    """A buffer that a kernel allocates.

    Attributes:
        loops: variables and extents of the parallel loops around it.
        nbytes: of one iteration.
        movable: it is only loaded and stored, by index.
    """

    buffer: Any
    loops: tuple[tuple[Any, int], ...]
    nbytes: int
    movable: bool = True


def with_stack_buffers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Small buffers stay on the stack; larger ones are left to TVM's pool."""
    small = [each for each in _buffers(function) if each.nbytes <= STACK_BYTES]
    return function.with_body(_rewritten(function.body, small, {}))


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is compiled.

    Attributes:
        function: after the first half of the lowering.
        workspace: parameters for workspace, which stand before the outputs.
        place: of the first of them.
        pooled: bytes that its threads take from their pools, together.
    """

    function: tirx.PrimFunc
    workspace: tuple[Any, ...]
    place: int
    pooled: int


def with_workspace(function: tirx.PrimFunc, outputs: int) -> Kernel:
    """Small buffers stay on the stack, and larger ones become parameters before the outputs.

    Args:
        function: after :data:`.kernel_passes.LOOPS`.
        outputs: how many of the last parameters are outputs.
    """
    buffers = _buffers(function)
    small = [each for each in buffers if each.nbytes <= STACK_BYTES]
    moved = {each.buffer: _Share.of(each) for each in buffers if each.movable and each.nbytes > _kept_bytes(each)}
    body = _rewritten(function.body, small, moved)
    params = tuple(share.parameter for share in moved.values())
    at = len(function.params) - outputs
    everything = [*function.params[:at], *params, *function.params[at:]]
    rest = [each for each in buffers if each.nbytes > STACK_BYTES and each.buffer not in moved]
    pooled = sum(each.nbytes * math.prod(extent for _, extent in each.loops) for each in rest)
    return Kernel(tirx.PrimFunc(everything, body, function.ret_type, function.attrs), params, at, pooled)


def _kept_bytes(buffer: _Buffer) -> int:
    """Up to which size a buffer stays in the kernel: a thread finds its own in its caches again, in the next kernel."""
    return POOLED_BYTES if buffer.loops else STACK_BYTES


def _buffers(function: tirx.PrimFunc) -> list[_Buffer]:
    """All buffers of constant size that a function allocates."""
    buffers: list[_Buffer] = []
    _collect(function.body, (), buffers)
    uses: dict[Any, int] = {}

    def add(var: Any, count: int) -> None:
        uses[var] = uses.get(var, 0) + count

    tvm_ffi.structural_walk(
        function.body,
        [
            (Var, lambda var: add(var, 1)),
            (TensorLoad, lambda load: add(load.source, -1)),
            (tirx.BufferStore, lambda store: add(store.buffer, -1)),
            (tirx.AllocBuffer, lambda alloc: add(alloc.buffer, -1)),
        ],
    )
    for each in buffers:
        each.movable = uses.get(each.buffer, 0) == 0 and all(extent > 0 for _, extent in each.loops)
    return buffers


def _collect(stmt: Any, loops: tuple[tuple[Any, int], ...], buffers: list[_Buffer]) -> None:
    """Append the buffers that a statement allocates, with the parallel loops around each."""
    if isinstance(stmt, tirx.SeqStmt):
        for inner in stmt.seq:
            _collect(inner, loops, buffers)
    elif isinstance(stmt, tirx.For):
        if int(stmt.kind) == tirx.ForKind.PARALLEL:
            loops = (*loops, (stmt.loop_var, _constant(stmt.extent) if _constant(stmt.min) == 0 else 0))
        _collect(stmt.body, loops, buffers)
    elif isinstance(stmt, tirx.AllocBuffer):
        size = math.prod(_constant(d) for d in stmt.buffer.ty.shape)
        if size:
            buffers.append(_Buffer(stmt.buffer, loops, size * _element_bytes(stmt.buffer)))
    elif isinstance(stmt, tirx.IfThenElse):
        _collect(stmt.then_case, loops, buffers)
        if stmt.else_case is not None:
            _collect(stmt.else_case, loops, buffers)
    elif isinstance(stmt, tirx.AttrStmt | tirx.While):
        _collect(stmt.body, loops, buffers)


def _constant(value: Any) -> int:
    """The value of a constant; 0 if it is none."""
    return int(value) if isinstance(value, int | tirx.IntImm) else 0


def _element_bytes(buffer: Any) -> int:
    dtype = tvm.DataType(str(buffer.ty.dtype))
    return -(-dtype.bits * dtype.lanes // 8)


@dataclass(frozen=True)
class _Share:
    """The parameter that a buffer becomes: one share of it for each iteration of the parallel loops around.

    Attributes:
        start: index of the share, in elements of the buffer.
        lanes: scalars in an element of the buffer; the parameter has scalars only.
    """

    parameter: Any
    start: Any
    lanes: int

    @classmethod
    def of(cls, buffer: _Buffer) -> _Share:
        """The parameter of a buffer; shares begin at multiples of :data:`SHARE_ALIGNMENT` bytes."""
        element = _element_bytes(buffer.buffer)
        dtype = tvm.DataType(str(buffer.buffer.ty.dtype))
        unit = math.lcm(SHARE_ALIGNMENT, element)
        count = -(-buffer.nbytes // unit) * unit // element
        start: Any = 0
        shares = 1
        for var, extent in buffer.loops:
            start = start * extent + var * count
            shares *= extent
        scalar = str(dtype).split("x")[0]
        parameter = tirx.decl_buffer((shares * count * dtype.lanes,), scalar, buffer.buffer.name, data_alignment=64)
        return cls(parameter, start, dtype.lanes)

    def index(self, index: Any) -> Any:
        """Index of the parameter for an index of the buffer."""
        if self.lanes > 1:
            return tirx.Ramp((index + self.start) * self.lanes, 1, self.lanes)
        if isinstance(index, tirx.Ramp):
            return tirx.Ramp(index.base + self.start, index.stride, index.lanes)
        return index + self.start


def _rewritten(body: Any, small: Iterable[_Buffer], moved: Mapping[Any, _Share]) -> Any:
    """The body with allocations of `small` on the stack and accesses to `moved` in parameters."""
    stack = {each.buffer for each in small}

    def alloc(stmt: Any) -> Any:
        if stmt.buffer in stack:
            return tirx.AllocBuffer(stmt.buffer, {**dict(stmt.annotations), _ON_STACK: tirx.IntImm("bool", 1)})
        return tirx.Evaluate(0) if stmt.buffer in moved else stmt

    def load(expr: Any) -> Any:
        share = moved.get(expr.source)
        return expr if share is None else tirx.BufferLoad(share.parameter, [share.index(expr.indices[0])])

    def store(stmt: Any) -> Any:
        share = moved.get(stmt.buffer)
        return stmt if share is None else tirx.BufferStore(share.parameter, stmt.value, [share.index(stmt.indices[0])])

    callbacks = [(tirx.AllocBuffer, alloc), (TensorLoad, load), (tirx.BufferStore, store)]
    return tvm_ffi.structural_map(body, callbacks)
