"""The loops of attention with online softmax.

A unit of work is a block of queries of one head. It keeps, for each query, the largest score m so far, the sum l of
exponentials relative to it, and the unnormalized result o; each block of keys corrects them:

    for (batch, head, block of queries) in parallel:
        qt = (q * scale)^T                              # lanes run over queries
        for block of keys:
            s = k qt + bias                             # (keys, queries), register tiles over D
            m' = max(m, columns of s); s = exp(s - m')
            l = l * exp(m - m') + sum of columns of s
            o = o * exp(m - m') + s^T v                 # (queries, E), register tiles over the keys
        out = o / l

With the scores transposed, maximum, sum and correction are vertical operations on vectors of queries, and k and v are
read where they lie; rows of v that are no whole vectors are copied into such, a block of keys at a time. The recurrence
is from M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867, 2018), its use by
blocks from T. Dao et al., "FlashAttention" (arXiv:2205.14135, 2022).

A row whose scores are all -inf has no softmax: 0 / 0 is NaN, as the operators one by one give.

Where batch, queries or keys have run-time extents, tiles and threads are those of the bounds; the loops over units and
over blocks of keys end at the extents, and threads share the units that there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.recipe import Config, Layouts, Match, Param, Sharing
from tvm_ext.ops.scalars.vector_math import exp_flushed

from .arguments import building
from .nests import own_buffer, unrolled, vectors_of, where


@dataclass(frozen=True)
class AttentionMatch(Match):
    """Attention over heads.

    Attributes:
        query, key, value: (batch, sequence, heads, size).
        bias: that is added to the scores; None if there is none.
        scale: that multiplies them before.
    """

    query: Param
    key: Param
    value: Param
    bias: Param | None
    scale: float


@dataclass(frozen=True)
class Tile:
    """Sizes of the loops.

    Attributes:
        batch, rows, keys: how many, and queries and keys of a head; in a kernel, what is in use (:meth:`in_use`).
        depth, width: of a query and of a value.
        lanes, vectors: queries in a vector, vectors in a unit.
        block, tile_k: keys in a block, and in a register tile of scores.
        tile_q, tile_v, value_lanes: queries and vectors of a register tile of the result, and lanes of these vectors.
    """

    batch: Any
    heads: int
    rows: Any
    keys: Any
    depth: int
    width: int
    lanes: int
    vectors: int
    block: int
    tile_k: int
    tile_q: int
    tile_v: int
    value_lanes: int

    @staticmethod
    def of(match: AttentionMatch, config: Config) -> Tile:
        batch, rows, heads, depth = match.query.shape
        knobs = (config[k] for k in ("lanes", "vectors", "keys", "tile_k", "tile_q", "tile_v", "value_lanes"))
        return Tile(batch, heads, rows, match.key.shape[1], depth, match.value.shape[3], *knobs)

    def in_use(self, match: AttentionMatch) -> Tile:
        """The same tile over the run-time extents of batch, queries and keys: numbers, or expressions."""
        extent = match.group.extent
        batch, rows, keys = extent(match.query, 0), extent(match.query, 1), extent(match.key, 1)
        return replace(self, batch=batch, rows=rows, keys=keys)

    @property
    def columns(self) -> int:
        """Values of a row, rounded up to whole vectors."""
        return -(-self.width // self.value_lanes) * self.value_lanes

    @property
    def queries(self) -> int:
        """Queries of a unit."""
        return self.lanes * self.vectors

    @property
    def units(self) -> Any:
        """Blocks of queries of all heads."""
        return self.batch * self.heads * ceil_div(self.rows, self.queries)


class AttentionKernel:
    """Builds the kernel of one match."""

    def __init__(self, match: AttentionMatch, config: Config, layouts: Layouts) -> None:
        self._match, self._layouts, tile = match, layouts, Tile.of(match, config)
        self._tile, self._threads = tile.in_use(match), Sharing.of_rows(tile.units, config["threads"]).threads

    def function(self) -> tirx.PrimFunc:
        """Parameters of the group in order, then the result; loops in place."""
        with building(self._match.group, self._layouts) as (builder, self._args, self._out), T.sblock("root"):
            self._units()
        return builder.get()

    def _read(self, param: Param, *index: Any) -> Any:
        """An operand at a logical index; of dimensions of 1, the first."""
        own = [0 if d == 1 else k for d, k in zip(param.shape, index, strict=True)]
        return self._args.reader(param)(*self._args.layout(param).index(own))

    def _units(self) -> None:
        """Shares units among threads."""
        units, threads = self._tile.units, self._threads
        with T.parallel(threads) if threads > 1 else T.serial(1) as thread:
            self._state()
            if not isinstance(units, int):
                with T.serial(thread * units // threads, (thread + 1) * units // threads) as unit:
                    self._unit(unit)
                return
            each = ceil_div(units, threads)
            with T.serial(each) as u, where([thread * each + u < units] if units % threads else []):
                self._unit(thread * each + u)

    def _state(self) -> None:
        """What a thread keeps; each unit starts it anew."""
        t, vectors = self._tile, (self._tile.vectors, self._tile.lanes)
        self._qt = float_buffer("qt", (t.depth, *vectors))
        self._scores = float_buffer("scores", (t.block, *vectors))
        self._result = float_buffer("result", (t.queries, t.columns))
        copied = t.columns > t.width or self._match.value.decode
        self._values = float_buffer("values", (t.block, t.columns)) if copied else None
        self._keys = float_buffer("keys", (t.block, t.depth)) if self._match.key.decode else None
        self._top, self._sum, self._factor = (float_buffer(n, vectors) for n in ("top", "sum", "factor"))

    def _unit(self, unit: Any) -> None:
        t = self._tile
        blocks = ceil_div(t.rows, t.queries)
        head, first = unit // blocks, unit % blocks * t.queries
        b, h = head // t.heads, head % t.heads
        self._load_queries(b, h, first)
        with T.serial(ceil_div(t.keys, t.block)) as kb:
            start = kb * t.block
            count = t.block if _divides(t.block, t.keys) else tirx.min(t.block, t.keys - start)
            self._decode_keys(b, h, start, count)
            self._compute_scores(b, h, first, start, count)
            self._exponentials(count)
            self._copy_values(b, h, start, count)
            self._accumulate(b, h, start, count)
        self._write(b, h, first)

    def _load_queries(self, b: Any, h: Any, first: Any) -> None:
        """qt = (q * scale)^T, m = -inf, l = 0, o = 0; queries beyond the last are the last one again."""
        t = self._tile
        with T.serial(t.vectors) as v, T.serial(t.lanes) as j, T.serial(t.depth) as d:
            value = self._read(self._match.query, b, self._row(first, v, j), h, d)
            T.buffer_store(self._qt, value * float32(self._match.scale), [d, v, j])
        with self._vectors() as (v, j):
            T.buffer_store(self._top, float32(-math.inf), [v, j])
            T.buffer_store(self._sum, float32(0), [v, j])
        with T.serial(t.queries) as q, T.serial(t.columns // t.value_lanes) as e, T.vectorized(t.value_lanes) as j:
            T.buffer_store(self._result, float32(0), [q, e * t.value_lanes + j])
        if t.columns > t.width:  # what is beyond a row takes part in sums that nothing reads
            with T.serial(t.block) as k, T.vectorized(t.columns - t.width) as j:
                T.buffer_store(self._values, float32(0), [k, t.width + j])

    def _decode_keys(self, b: Any, h: Any, start: Any, count: Any) -> None:
        """The block's keys as numbers, where they are stored otherwise; beyond the last key, that key again."""
        if self._keys is None:
            return
        t = self._tile
        with T.serial((count + t.tile_k - 1) // t.tile_k * t.tile_k) as k:
            for d in vectors_of(t.depth, t.value_lanes):
                T.buffer_store(self._keys, self._read(self._match.key, b, self._key(start + k), h, d), [k, d])

    def _compute_scores(self, b: Any, h: Any, first: Any, start: Any, count: Any) -> None:
        """s = k qt + bias; factor = m and m = max(m, s). Keys beyond the last are the last one again."""
        t = self._tile
        with self._vectors() as (v, j):
            T.buffer_store(self._factor, self._top[v, j], [v, j])
        with T.serial((count + t.tile_k - 1) // t.tile_k) as tile:
            acc = float_buffer("acc", (t.tile_k, t.vectors, t.lanes))
            with unrolled(t.tile_k, t.vectors) as (i, v), T.vectorized(t.lanes) as j:
                T.buffer_store(acc, float32(0), [i, v, j])
            with T.serial(t.depth) as d, unrolled(t.tile_k, t.vectors) as (i, v), T.vectorized(t.lanes) as j:
                if self._keys is not None:
                    key = self._keys[tile * t.tile_k + i, d]
                else:
                    key = self._read(self._match.key, b, self._key(start + tile * t.tile_k + i), h, d)
                T.buffer_store(acc, acc[i, v, j] + key * self._qt[d, v, j], [i, v, j])
            with unrolled(t.tile_k, t.vectors) as (i, v), T.vectorized(t.lanes) as j:
                score = acc[i, v, j]
                if self._match.bias is not None:
                    key_index = self._key(start + tile * t.tile_k + i)
                    score = score + self._read(self._match.bias, b, h, self._row(first, v, j), key_index)
                T.buffer_store(self._scores, score, [tile * t.tile_k + i, v, j])
                stored = self._scores[tile * t.tile_k + i, v, j]
                T.buffer_store(self._top, tirx.max(self._top[v, j], stored), [v, j])

    def _exponentials(self, count: Any) -> None:
        """s = exp(s - m), factor = exp(old m - m), l = l * factor + sum of s; where m is -inf, relative to 0."""
        t = self._tile

        def relative(score: Any, v: Any, j: Any) -> Any:
            top = self._top[v, j]
            return exp_flushed(score - tirx.Select(top == float32(-math.inf), float32(0), top))

        with self._vectors() as (v, j):
            T.buffer_store(self._factor, relative(self._factor[v, j], v, j), [v, j])
            T.buffer_store(self._sum, self._sum[v, j] * self._factor[v, j], [v, j])
        with T.serial(count) as k, T.unroll(t.vectors) as v, T.vectorized(t.lanes) as j:
            T.buffer_store(self._scores, relative(self._scores[k, v, j], v, j), [k, v, j])
            T.buffer_store(self._sum, self._sum[v, j] + self._scores[k, v, j], [v, j])

    def _copy_values(self, b: Any, h: Any, start: Any, count: Any) -> None:
        """The block's rows of v as numbers, in whole vectors, where they are not."""
        if self._values is None:
            return
        with T.serial(count) as k:
            for e in self._row_vectors():
                T.buffer_store(self._values, self._read(self._match.value, b, start + k, h, e), [k, e])

    def _accumulate(self, b: Any, h: Any, start: Any, count: Any) -> None:
        """o = o * factor + s^T v, in register tiles of queries and vectors of v."""
        t = self._tile
        columns = t.tile_v * t.value_lanes
        with T.serial(t.queries // t.tile_q) as tile, T.serial(t.columns // columns) as column:
            acc = float_buffer("acc", (t.tile_q, t.tile_v, t.value_lanes))

            def query(i: Any, tile: Any = tile) -> Any:
                return tile * t.tile_q + i

            def place(e: Any, j: Any, column: Any = column) -> Any:
                return column * columns + e * t.value_lanes + j

            with unrolled(t.tile_q, t.tile_v) as (i, e), T.vectorized(t.value_lanes) as j:
                factor = self._factor[query(i) // t.lanes, query(i) % t.lanes]
                T.buffer_store(acc, self._result[query(i), place(e, j)] * factor, [i, e, j])
            with T.serial(count) as k, unrolled(t.tile_q, t.tile_v) as (i, e), T.vectorized(t.value_lanes) as j:
                weight = self._scores[k, query(i) // t.lanes, query(i) % t.lanes]
                at = place(e, j)
                if self._values is None:
                    value = self._read(self._match.value, b, start + k, h, at)
                else:
                    value = self._values[k, at]
                T.buffer_store(acc, acc[i, e, j] + weight * value, [i, e, j])
            with unrolled(t.tile_q, t.tile_v) as (i, e), T.vectorized(t.value_lanes) as j:
                T.buffer_store(self._result, acc[i, e, j], [query(i), place(e, j)])

    def _write(self, b: Any, h: Any, first: Any) -> None:
        """out = o / l, for real queries."""
        t = self._tile
        with self._vectors() as (v, j):
            T.buffer_store(self._sum, float32(1) / self._sum[v, j], [v, j])
        left = t.queries if _divides(t.queries, t.rows) else tirx.min(t.queries, t.rows - first)
        with T.serial(left) as q:
            for e in self._row_vectors():
                index = [b, first + q, h, e]
                value = self._result[q, e] * self._sum[q // t.lanes, q % t.lanes]
                T.buffer_store(self._out, self._args.epilogue(index, value), index)

    # ------------------------------------------------------------ indices and loops
    def _row(self, first: Any, v: Any, j: Any) -> Any:
        row = first + v * self._tile.lanes + j
        return row if _divides(self._tile.queries, self._tile.rows) else tirx.min(row, self._tile.rows - 1)

    def _key(self, key: Any) -> Any:
        exact = _divides(self._tile.tile_k, self._tile.keys) and self._tile.block % self._tile.tile_k == 0
        return key if exact else tirx.min(key, self._tile.keys - 1)

    def _row_vectors(self) -> Iterator[Any]:
        """Elements of a row of v."""
        return vectors_of(self._tile.width, self._tile.value_lanes)

    @contextmanager
    def _vectors(self) -> Iterator[tuple[Any, Any]]:
        """Loops over the vectors of queries."""
        with T.unroll(self._tile.vectors) as v, T.vectorized(self._tile.lanes) as j:
            yield v, j


def ceil_div(size: Any, by: Any) -> Any:
    """How many parts of at most `by` a size has."""
    return (size + by - 1) // by


def _divides(by: int, size: Any) -> bool:
    """Whether a size is known to be whole parts."""
    return isinstance(size, int) and size % by == 0


def float_buffer(name: str, shape: tuple[int, ...]) -> Any:
    """A buffer of float32: "acc" in registers, any other one in memory."""
    return own_buffer(name, shape, scope="local" if name == "acc" else "global")


def float32(value: float) -> Any:
    """A constant."""
    return tirx.const(value, "float32")
