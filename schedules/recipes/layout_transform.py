"""A copy from one layout to another, where two neighbours disagree, and any transpose that is a copy.

    transform(x: NCHW) -> NCHW{l}c, and back; NHWC <-> NCHW; transpose(x, [0, 2, 1, 3]); ...

Memory is read and written in vectors. If one axis is contiguous in both tensors, its runs are copied. Otherwise one
axis is contiguous in the source (columns), another in the target (rows), and tiles of both turn in registers:

    for other axes, tiles of one of both in parallel:
        for tiles of the other one:
            t[0:n] = source[row : row + n, column : column + n]                 # n vectors of columns
            target[column : column + n, row : row + n] = transpose(t)[0:n]      # n vectors of rows

A last tile that is not full starts earlier and writes some elements twice, with the same values. In a block of lanes it
cannot: there rows beyond the axis are its last one again, and columns beyond it are not written. At one core this moves
80 to 110 GB/s within the caches of a Zen 4, as a copy does.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.cost.estimate import bandwidth, level_of, seconds, threads_of
from tvm_ext.core.recipe import Layout, Machine

from ..steps.copies import Axis, axes_of
from ..steps.copy_tiles import Span, Tile, choose, spans

NAME = "layout_transform"

#: Bytes of an element, of types that are copied in vectors.
_ITEMSIZE = {
    "float16": 2, "float32": 4, "float64": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip


#: What is copied as the bits of another type: TVM lowers no variables of floats that it stores as integers.
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_BITS = {"bfloat16": "uint16", "bool": "uint8", **dict.fromkeys(_FLOAT8, "uint8")}


def cost(shape: Sequence[int], dtype: str, machine: Machine) -> float:
    """Estimated seconds of a transform."""
    cycles, threads = _cycles(shape, _BITS.get(dtype, dtype), machine), threads_for(shape, dtype, machine)
    return seconds(cycles / threads, [], machine, threads)


def threads_for(shape: Sequence[int], dtype: str, machine: Machine) -> int:
    """Threads that share a transform."""
    return threads_of(_cycles(shape, _BITS.get(dtype, dtype), machine), machine)


def compute(shape: Sequence[int], dtype: str, source: Layout, target: Layout, machine: Machine) -> tirx.PrimFunc:
    """A kernel that copies a tensor of logical `shape` from layout `source` to `target`; its loops stand already.

    Lanes of the target beyond the blocked axis hold any value; nothing reads them.
    """
    physical = [layout.physical_shape(shape) for layout in (source, target)]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True})
        own = [T.arg(name, T.buffer(s, dtype)) for name, s in zip(("p0", "out"), physical, strict=True)]
        bits = _BITS.get(dtype, dtype)
        flat = [T.decl_buffer((math.prod(s),), bits, data=b.data) for s, b in zip(physical, own, strict=True)]
        with T.sblock("root"):
            _copy(shape, source, target, bits, flat, machine)
    return builder.get()


def schedule(sch: Schedule) -> None:
    """The loops stand already: no schedule primitive keeps a tile in registers while it is transposed."""


def _copy(
    shape: Sequence[int], source: Layout, target: Layout, dtype: str, buffers: Sequence[Any], machine: Machine
) -> None:
    """The loops, between two flat buffers."""
    if math.prod(shape) == 0:
        T.evaluate(0)
        return
    axes, itemsize = axes_of(shape, source, target), _ITEMSIZE.get(dtype, 0)
    tile = choose(axes, 4 * machine.lanes // itemsize if itemsize else 1, itemsize)
    _Loops(axes, tile, *buffers).emit(threads_for(shape, dtype, machine))


def _cycles(shape: Sequence[int], dtype: str, machine: Machine) -> float:
    """Of one thread, which reads and writes all of it in turn."""
    moved = 2 * math.prod(shape) * _ITEMSIZE.get(dtype, 4)
    return moved / bandwidth(level_of(moved, machine), machine)


class _Loops:
    """Emits the loops of a copy between two flat buffers."""

    def __init__(self, axes: Sequence[Axis], tile: Tile, source: Any, target: Any) -> None:
        self._axes, self._tile, self._source, self._target = axes, tile, source, target
        self._spans = [spans(axis, tile.widths.get(axis, 1)) for axis in axes]

    def emit(self, threads: int) -> None:
        """All tiles; whole ones, and those of which a block holds only a part, in loops of their own."""
        with T.parallel(threads) if threads > 1 else nullcontext(0) as thread:
            for nest in itertools.product(*self._spans):
                self._nest(dict(zip(self._axes, nest, strict=True)), thread, threads)

    def _nest(self, nest: Mapping[Axis, Span], thread: Any, threads: int) -> None:
        """Units of the outer axes, each a loop over the fast axis; threads share the loop that divides more evenly."""
        fast = nest[self._tile.fast].count
        units = math.prod(span.count for span in nest.values()) // fast
        whole = -(-units // threads) * fast <= units * -(-fast // threads)
        with _share(units, thread, threads if whole else 1) as unit:
            starts = self._starts(nest, unit)
            with _share(fast, thread, 1 if whole else threads) as number:
                starts[self._tile.fast] = _named(nest[self._tile.fast].start(number))
                self._move(nest, starts)

    def _starts(self, nest: Mapping[Axis, Span], unit: Any) -> dict[Axis, Any]:
        """Where the tiles of a unit start on each axis but the fast one; the last axis changes first."""
        starts = {}
        for axis in reversed([a for a in self._axes if a is not self._tile.fast]):
            span = nest[axis]
            starts[axis] = _named(span.start(unit % span.count))
            unit = unit // span.count
        return starts

    def _move(self, nest: Mapping[Axis, Span], starts: Mapping[Axis, Any]) -> None:
        """One tile; where a block is not full, its last row stands for those beyond, and columns beyond are left."""
        tile = self._tile
        source = _named(sum(axis.source.offset(start) for axis, start in starts.items()))
        target = _named(sum(axis.target.offset(start) for axis, start in starts.items()))
        lanes = nest[tile.columns].valid if tile.rows is tile.columns else tile.lanes
        (loads, ahead), (stores, apart) = tile.loads, tile.stores
        read, written = (nest[tile.rows].valid, nest[tile.columns].valid) if tile.square else (loads, stores)
        vectors = [self._loaded(_lanes(source + i * ahead, lanes)) for i in range(read)]
        vectors += vectors[-1:] * (loads - read)
        for i, vector in enumerate(tile.turn(vectors)[:written]):
            T.buffer_store(self._target, vector, [_lanes(target + i * apart, lanes)])

    def _loaded(self, index: Any) -> Any:
        """A vector in a register."""
        return T.bind(self._source[index])


def _lanes(start: Any, lanes: int) -> Any:
    return tirx.Ramp(start, 1, lanes) if lanes > 1 else start


def _named(value: Any) -> Any:
    """A variable that stands for an expression."""
    return value if isinstance(value, int) else T.bind(value)


def _share(count: int, thread: Any, threads: int) -> Any:
    """A loop over a thread's part of `count` iterations."""
    if threads == 1:
        return T.serial(count) if count > 1 else nullcontext(0)
    return T.serial(thread * count // threads, (thread + 1) * count // threads)
