"""Attention over a cache of keys and values, up to the length in use; heads of queries that share keys read them once.

A unit of work is the queries of a few tokens, of all heads that share one head of keys: rows. Each block of keys
corrects what they have so far, as in :mod:`..steps.attention_kernel`:

    for (sequence, head of keys, tokens, part of the keys) in parallel:
        for block of keys up to the last one in use, from the first one in the window:
            s[row, keys] = q[row] keys^T            vectors along a key; sums of a vector of keys by a network of adds
            m' = max(m, s); s = exp(s - m'); l = l * exp(m - m') + sum of s
            o[row] = o[row] * exp(m - m') + s[row] values
        out = o / l

Where there are fewer units than a few for each thread, the keys of each are cut in parts; m, l and o of parts are
joined behind that. What stands in a cache behind the length is read by no sum.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.recipe import Config, Layouts
from tvm_ext.ops.kv_cache import Attention
from tvm_ext.ops.scalars.vector_math import exp_flushed, tanh

from ..steps.arguments import building
from ..steps.attention_kernel import ceil_div, float32, float_buffer
from ..steps.nests import tiles, unrolled, vectors_of
from ..steps.transposes import across
from .lines import CacheLines
from .scores import Tile, products
from .tokens import CacheMatch, Tokens, computed

#: Units a thread, from which on the keys of a unit stay whole.
_EVEN = 4
#: Units that are each cut in as many parts as there are threads; more are cut in fewer.
_PARTS = 2 * _EVEN


class CachedAttentionKernel:
    """Builds the kernel of one match."""

    def __init__(self, match: CacheMatch, config: Config, layouts: Layouts) -> None:
        assert isinstance(match.says, Attention)
        self._match, self._layouts, self._says = match, layouts, match.says
        self._groups, self._capacity = match.groups, match.capacity
        self._depth, self._width = match.size, match.param("values").shape[3]
        self._tile = Tile(shared=match.says.heads // self._groups, **config)

    def function(self) -> tirx.PrimFunc:
        """Parameters of the group in order, then the result; loops in place."""
        with building(self._match.group, self._layouts) as (builder, self._args, self._out), T.sblock("root"):
            self._tokens = Tokens(self._match, self._args, self._tile.lanes)
            self._lines = CacheLines(self._match, self._args, self._tokens)
            self._read, t = self._tokens.read, self._tile
            self._blocks = computed((self._tokens.steps + t.queries - 1) // t.queries)
            units = computed(self._tokens.batch * self._groups * self._blocks)
            self._bind = T.bind if isinstance(units, int) else computed
            self._parts: Any = 1
            if t.threads > 1:
                few = _select(units <= _PARTS, t.threads, ceil_div(_EVEN * t.threads, tirx.max(units, 1)))
                self._parts = computed(_select(tirx.any(units >= _EVEN * t.threads, units % t.threads == 0), 1, few))
            self._share(units)
        return builder.get()

    # ------------------------------------------------------------ units
    def _share(self, units: Any) -> None:
        """Threads take units, or parts of them, in turn; then parts are joined."""
        t, rows, parts = self._tile, self._tile.queries * self._tile.shared, self._parts
        whole = isinstance(parts, int) and parts == 1
        most = units * parts if isinstance(parts, int) else _PARTS * t.threads
        if not whole:
            self._part_results = float_buffer("part_results", (most, rows, self._width))
            self._part_sums = float_buffer("part_sums", (most, rows, 2))
        items = units * parts
        with T.parallel(t.threads) if t.threads > 1 else T.serial(1) as thread:
            self._state(rows)
            with T.serial((items - thread + (t.threads - 1)) // t.threads) as turn:
                item = self._number(turn * t.threads + thread)
                self._next = self._number(tirx.min(item + t.threads, items - 1) // parts)
                self._unit(item // parts, item % parts)
                if whole:
                    self._write(item)
                elif isinstance(parts, int):
                    self._keep(item)
                else:
                    with T.If(parts == 1):
                        with T.Then():
                            self._write(item)
                        with T.Else():
                            self._keep(item)
        if not whole:
            with T.serial(units if isinstance(parts, int) else tirx.Select(parts == 1, 0, units)) as unit:
                self._join(unit)

    def _state(self, rows: int) -> None:
        """What a thread keeps; each unit starts it anew."""
        t = self._tile
        # A query lies behind its scores, which may overwrite it for all that LLVM knows: it would else keep queries in
        # registers while values are summed, and their sums on the stack.
        self._scores = float_buffer("scores", (rows, t.block + self._depth))
        self._result = float_buffer("result", (rows, self._width))
        if self._match.param("keys").decode:
            self._decoded = float_buffer("decoded", (t.lanes, self._depth))
        self._largest, self._sum = (float_buffer(name, (rows, t.lanes)) for name in ("largest", "sum"))
        self._top, self._factor = (float_buffer(name, (rows,)) for name in ("top", "factor"))

    def _place(self, unit: Any) -> tuple[Any, Any, Any]:
        """Sequence, head of keys and first token of a unit."""
        head = unit // self._blocks
        return head // self._groups, head % self._groups, unit % self._blocks * self._tile.queries

    def _rows(self, token: Any) -> Any:
        """Rows of a unit in use."""
        t = self._tile
        steps = self._tokens.steps
        if isinstance(steps, int) and steps % t.queries == 0:
            return t.queries * t.shared
        return tirx.min(t.queries, steps - token) * t.shared

    def _number(self, value: Any) -> Any:
        """A number of a unit as a variable: its expression, where sizes are known, does not grow."""
        return self._bind(_expr(value))

    def _unit(self, unit: Any, part: Any) -> None:
        t, says = self._tile, self._says
        b, g, token = map(self._number, self._place(unit))
        rows = self._rows(token)
        rows = rows if isinstance(rows, int) else self._number(rows)
        first = self._tokens.first(b)
        self._load(b, g, token, first, rows, part)
        # a query at row r of the cache sees rows up to r, or all that count
        last = first + token + rows // t.shared if says.causal else self._tokens.last(b)
        stop = self._number(tirx.min(last, self._capacity))
        start = tirx.const(0, "int32")
        if says.window:
            start = self._number(tirx.max(first + token + (1 - says.window), 0) // t.lanes * t.lanes)
        if not isinstance(self._parts, int) or self._parts > 1:
            each = self._number(ceil_div(ceil_div(stop - start, self._parts), t.lanes) * t.lanes)
            start = self._number(start + part * each)
            stop = self._number(tirx.min(stop, start + each))
        with T.serial(tirx.max(ceil_div(stop - start, t.block), 0)) as block:
            low = self._number(start + block * t.block)
            count = self._number(tirx.min(t.block, stop - low))
            self._score(b, g, (first + token, low, stop), count, rows)
            self._exponentials(count, rows)
            self._accumulate((b, g, low), self._behind((b, g, low + t.block), start, stop), count, rows)

    def _behind(self, place: tuple[Any, Any, Any], start: Any, stop: Any) -> tuple[Any, Any, Any]:
        """The block of keys behind another one, or, where there is none, the first one of the thread's next unit."""
        last, (b, g, _) = T.bind(place[2] >= stop), self._place(self._next)
        others = zip((b, g, start), place, strict=True)
        behind = [self._number(tirx.Select(last, other, own)) for other, own in others]
        return behind[0], behind[1], behind[2]

    def _load(self, b: Any, g: Any, token: Any, first: Any, rows: Any, part: Any) -> None:
        """Queries, turned and scaled; m = -inf, l = 0, o = 0; a sink is a key that was before, of the first part."""
        t, says = self._tile, self._says
        with T.serial(rows) as r:
            at = T.bind(token + r // t.shared)
            head = T.bind(g * t.shared + r % t.shared)

            def write(d: Any, value: Any) -> None:
                T.buffer_store(self._scores, value * float32(says.scale), [r, t.block + d])

            self._tokens.turn((b, at, first + at), lambda d: self._read("query", b, at, says.first + head, d), write)
            for d in vectors_of(self._width, t.lanes):
                T.buffer_store(self._result, float32(0), [r, d])
            with T.vectorized(t.lanes) as j:
                T.buffer_store(self._sum, float32(0), [r, j])
            T.buffer_store(self._top, float32(-math.inf), [r])
            if "sink" in self._match.operands or says.smooth:
                sink = self._read("sink", head) if "sink" in self._match.operands else float32(0)
                with T.If(part == 0), T.Then():
                    T.buffer_store(self._top, sink, [r])
                    T.buffer_store(self._sum, float32(1), [r, 0])

    # ------------------------------------------------------------ one block of keys
    def _score(self, b: Any, g: Any, keys: tuple[Any, Any, Any], count: Any, rows: Any) -> None:
        """s = q keys^T, -inf of keys that a query does not see, and the largest of each lane.

        Args:
            keys: rows of the cache: of the first query, the block's first, and behind its last.
        """
        t, (own, low, stop) = self._tile, keys
        with T.serial(rows) as r, T.vectorized(t.lanes) as j:
            T.buffer_store(self._largest, float32(-math.inf), [r, j])
        with T.serial(ceil_div(count, t.lanes)) as tile:
            place = (b, g, low + tile * t.lanes)
            key = self._keys(*place, decoded=not t.has_all(rows))
            for row, height in tiles(0, rows, t.scored):
                ask = functools.partial(self._ask_values, place, None if t.has_all(rows) else row == 0)
                for r, scores in enumerate(products(t, (row, height), self._depth, key, self._query, ask)):
                    T.buffer_store(self._scores, scores, [row + r, self._lanes_from(tile * t.lanes)])
                    self._mask((own, low, stop), tile, row + r)

    def _query(self, row: Any) -> Callable[[Any], Any]:
        """Element of a query -> its value."""
        return lambda d: self._scores[row, self._tile.block + d]

    def _mask(self, keys: tuple[Any, Any, Any], tile: Any, r: Any) -> None:
        """-inf for scores of keys that a query does not see; the largest of each lane, with those of a tile."""
        t, (own, low, stop) = self._tile, keys
        with T.vectorized(t.lanes) as j:
            key, place = low + tile * t.lanes + j, [r, tile * t.lanes + j]
            score = self._capped(self._scores[place[0], place[1]])
            seen = key < stop
            if self._says.causal:
                seen = tirx.all(seen, key <= own + r // t.shared)
            if self._says.window:
                seen = tirx.all(seen, key > own + r // t.shared - self._says.window)
            T.buffer_store(self._scores, tirx.Select(seen, score, float32(-math.inf)), place)
            T.buffer_store(self._largest, tirx.max(self._largest[r, j], self._scores[place[0], place[1]]), [r, j])

    def _keys(self, b: Any, g: Any, low: Any, decoded: bool) -> Callable[[Any], Callable[[Any], Any]]:
        """Key of a tile -> element -> its value; keys that are stored as something else are `decoded` for all rows."""
        t, key_at = self._tile, self._places(b, g, low)

        def key(i: Any) -> Callable[[Any], Any]:
            where = [T.bind(_expr(axis)) for axis in key_at(i)]
            return lambda d: self._read("keys", *where, d)

        if not decoded or not self._match.param("keys").decode:
            return key
        with T.serial(t.lanes) as i:
            value = key(i)
            with T.unroll(self._depth // t.lanes) as v, T.vectorized(t.lanes) as j:
                T.buffer_store(self._decoded, value(v * t.lanes + j), [i, v * t.lanes + j])
        return lambda i: lambda d: self._decoded[i, d]

    def _places(self, b: Any, g: Any, low: Any) -> Callable[[Any], Sequence[Any]]:
        """Number of a key of a tile -> where it lies in the cache; the page of a tile is looked up once."""
        paged, rows = self._says.paged, self._match.cache.shape[1]
        if not paged or rows % self._tile.lanes:
            whole = self._capacity % self._tile.lanes == 0
            last = self._capacity - 1
            return lambda i: self._tokens.place(b, g, low + i if whole else tirx.min(low + i, last))
        page, row, head = (T.bind(_expr(axis)) for axis in self._tokens.place(b, g, low))
        return lambda i: (page, row + i, head)

    def _ask_values(self, place: tuple[Any, Any, Any], condition: Any, part: Any, count: int) -> None:
        """Prefetch the share that a part of a tile of scores has of the tile's values, from first to last.

        A cache is in L3 at best, and a burst of prefetches waits for the few lines that a core asks for at a time.

        Args:
            place: sequence, head of keys and first key of the tile.
            condition: whether the part is one of the first rows; None if there are no others.
            part, count: its number, and how many there are.
        """
        share = -(-self._tile.lanes * self._lines.of("values") // count)
        self._lines.ask("values", place, part * share, share, condition)

    def _ask_keys(self, place: tuple[Any, Any, Any], key: Any, row: Any, column: Any) -> None:
        """Prefetch the share of a column of the first rows of a key of the block that is read next."""
        t, each = self._tile, self._lines.of("keys")
        share = -(-each * t.columns * t.lanes // self._width)
        self._lines.ask("keys", place, key * each + column * share, share, None if isinstance(row, int) else row == 0)

    def _capped(self, score: Any) -> Any:
        cap = self._says.softcap
        return tanh(score / float32(cap)) * float32(cap) if cap else score

    def _exponentials(self, count: Any, rows: Any) -> None:
        """s = exp(s - m), factor = exp(old m - m), l = l * factor + sum of s; where m is -inf, relative to 0."""
        t = self._tile
        with T.serial(rows) as r:
            top = T.bind(tirx.max(self._top[r], across(self._largest[r, self._lanes_from(0)], t.lanes, tirx.max)))
            base = T.bind(tirx.Select(top == float32(-math.inf), float32(0), top))
            factor = T.bind(exp_flushed(self._top[r] - base))
            T.buffer_store(self._factor, factor, [r])
            T.buffer_store(self._top, top, [r])
            with T.vectorized(t.lanes) as j:
                T.buffer_store(self._sum, self._sum[r, j] * factor, [r, j])
            with T.serial(ceil_div(count, t.lanes)) as tile, T.vectorized(t.lanes) as j:
                place = [r, tile * t.lanes + j]
                T.buffer_store(self._scores, exp_flushed(self._scores[r, place[1]] - base), place)
                T.buffer_store(self._sum, self._sum[r, j] + self._scores[r, place[1]], [r, j])

    def _accumulate(self, place: tuple[Any, Any, Any], behind: tuple[Any, Any, Any], count: Any, rows: Any) -> None:
        """o = o * factor + s values, in register tiles of rows and vectors of a value.

        Args:
            place, behind: sequence, head and first key of the block, and of the one that is read behind it.
        """
        t, (b, g, low) = self._tile, place
        several = not isinstance(rows, int) or rows > t.rows
        for row, height in tiles(0, rows, t.rows):
            with T.serial(self._width // (t.columns * t.lanes)) as column:
                acc = float_buffer("acc", (height, t.columns, t.lanes))

                def at(v: Any, j: Any, column: Any = column) -> Any:
                    return (column * t.columns + v) * t.lanes + j

                with unrolled(height, t.columns) as (i, v), T.vectorized(t.lanes) as j:
                    T.buffer_store(acc, self._result[row + i, at(v, j)] * self._factor[row + i], [i, v, j])
                with T.serial(count) as k:
                    self._ask_keys(behind, k, row if several else 0, column)
                    where = [T.bind(_expr(axis)) for axis in self._tokens.place(b, g, low + k)]
                    with unrolled(height, t.columns) as (i, v), T.vectorized(t.lanes) as j:
                        value = self._read("values", *where, at(v, j))
                        T.buffer_store(acc, acc[i, v, j] + self._scores[row + i, k] * value, [i, v, j])
                with unrolled(height, t.columns) as (i, v), T.vectorized(t.lanes) as j:
                    T.buffer_store(self._result, acc[i, v, j], [row + i, at(v, j)])

    # ------------------------------------------------------------ results
    def _total(self, r: Any) -> Any:
        """l of a row."""
        total = self._sum[r, 0]
        for lane in range(1, self._tile.lanes):
            total = total + self._sum[r, lane]
        return total

    def _write(self, unit: Any) -> None:
        """out = o / l."""
        _, _, token = self._place(unit)
        with T.serial(self._rows(token)) as r:
            inverse = T.bind(float32(1) / self._total(r))
            self._store(unit, r, lambda d: self._result[r, d] * inverse)

    def _keep(self, item: Any) -> None:
        """o, m and l of a part."""
        _, _, token = self._place(item // self._parts)
        with T.serial(self._rows(token)) as r:
            T.buffer_store(self._part_sums, self._top[r], [item, r, 0])
            T.buffer_store(self._part_sums, self._total(r), [item, r, 1])
            for d in vectors_of(self._width, self._tile.lanes):
                T.buffer_store(self._part_results, self._result[r, d], [item, r, d])

    def _join(self, unit: Any) -> None:
        """out = o / l of all parts of a unit."""
        _, _, token = self._place(unit)
        numbers, row = float_buffer("numbers", (2,)), float_buffer("row", (self._width,))
        with T.serial(self._rows(token)) as r:
            T.buffer_store(numbers, float32(-math.inf), [0])
            T.buffer_store(numbers, float32(0), [1])
            for d in vectors_of(self._width, self._tile.lanes):
                T.buffer_store(row, float32(0), [d])
            with T.serial(self._parts) as part:
                T.buffer_store(numbers, tirx.max(numbers[0], self._part_sums[unit * self._parts + part, r, 0]), [0])
            with T.serial(self._parts) as part:
                item = T.bind(_expr(unit * self._parts + part))
                factor = T.bind(exp_flushed(self._part_sums[item, r, 0] - numbers[0]))
                T.buffer_store(numbers, numbers[1] + factor * self._part_sums[item, r, 1], [1])
                for d in vectors_of(self._width, self._tile.lanes):
                    T.buffer_store(row, row[d] + factor * self._part_results[item, r, d], [d])
            inverse = T.bind(float32(1) / numbers[1])
            self._store(unit, r, lambda d: row[d] * inverse)

    def _store(self, unit: Any, row: Any, value: Any) -> None:
        """A row of a unit, into the result: `value` of an element."""
        t = self._tile
        b, g, token = self._place(unit)
        head = [b, token + row // t.shared, g * t.shared + row % t.shared]
        for d in vectors_of(self._width, t.lanes):
            T.buffer_store(self._out, self._args.epilogue([*head, d], value(d)), [*head, d])

    # ------------------------------------------------------------ vectors
    def _lanes_from(self, start: Any) -> Any:
        return tirx.Ramp(_expr(start), 1, self._tile.lanes) if self._tile.lanes > 1 else start


def _select(condition: Any, first: Any, other: Any) -> Any:
    """One of two: that one where the condition is known."""
    known = condition if isinstance(condition, bool) else getattr(condition, "value", None)
    return tirx.Select(condition, first, other) if known is None else (first if known else other)


def _expr(number: Any) -> Any:
    return tirx.const(number, "int32") if isinstance(number, int) else number
