"""The loops of few rows by a weight of few bits: the weight is streamed once, and unpacked in registers.

    for thread:                                          each its own vectors of outputs
        x = x / sqrt(mean of x^2 + eps) * g              where rows are normalized first
        q, step, total = digits of x by blocks           or x and its sums, where x is not rounded
        for group of vectors of outputs that stand side by side:
            for weight, of a few rows at a time:
                for block:
                    dot = sum over words: unpacked codes by q          vpdpbusd, or multiply-adds
                    acc += (dot - zero * total[block]) * (scale[block] * step[block])
            y[tile] = epilogue(acc, of the weights beside it)

Rounded numbers of x have one digit of 8 bits, or two: q = 256 * high + low, to 1/32639 of the largest of a block. Then
a code is multiplied by both, which costs a memory-bound kernel nothing; the error is about that of bfloat16's eighth
bit for one, and half of float16's for two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.recipe import Config, Param
from tvm_ext.ops.scalars.strict_floats import times
from tvm_ext.rates.instructions import vpdpbusd

from ..blocked.prefetch import LINE_BYTES, LINES, SHARED_BY, prefetch
from .arguments import building
from .block_weight import BlockMatch
from .indices import unflatten
from .nests import nested, own_buffer, tiles
from .transposes import across, across_all

#: Largest whole number that a digit, or two, may be: -128 to 127, times 256, and -128 to 127.
_LARGEST = {1: 127, 2: 127 * 257}
#: Bytes of the stream from the word that is read to the line that is asked for: more than a core takes in the time that
#: memory needs to answer.
_AHEAD = 8192
#: Instructions of a vector of words up to which a core, which looks some 300 ahead, asks by itself for as many lines as
#: it can wait for at once: a prefetch then takes the place of one of them.
_FEW = 5
#: Words of a block that are unrolled.
_UNROLLED = 8
#: Rows up to which the vectors that stand side by side are summed together, so that each number of x is read once for
#: all of them. LLVM keeps those of a block in registers: of more rows on the stack, as whole vectors.
_TOGETHER = 2


@dataclass(frozen=True)
class StreamTile:
    """What a configuration says.

    Attributes:
        digits: of a rounded number of x; 0 computes in float32.
        rows: whose sums stay in registers; others read and unpack the group's words anew, from L1.
        threads: that share vectors of outputs.
        prefetched: whether the kernel asks for lines ahead.
    """

    digits: int
    rows: int
    threads: int
    prefetched: bool

    @staticmethod
    def of(config: Config, prefetched: bool) -> StreamTile:
        return StreamTile(int(config["digits"]), int(config["rows"]), int(config["threads"]), prefetched)


class BlockStream:
    """Builds the kernel of one match."""

    def __init__(self, match: BlockMatch, tile: StreamTile) -> None:
        self._match, self._tile, self._lanes = match, tile, match.lanes
        shape = match.data.shape
        self._lead = shape[:-1]
        self._rows = math.prod(self._lead)
        self._padded = match.blocks * match.says.block

    def function(self) -> tirx.PrimFunc:
        """Parameters of the group in order, then the result; loops in place."""
        match, count = self._match, self._match.groups
        threads = min(self._tile.threads, count)
        shared = T.parallel(threads) if threads > 1 else T.serial(1)
        with (
            building(match.group, match.layouts()) as (builder, self._args, self._out),
            T.sblock("root"),
            shared as own,
        ):
            self._read(own * count // threads)
            with T.serial(own * count // threads, (own + 1) * count // threads) as group:
                self._compute(group)
        return builder.get()

    # ------------------------------------------------------------ the rows
    def _read(self, group: Any) -> None:
        """What a thread reads of x: whole blocks, rounded or not, and of each block its step and the sum of all.

        Args:
            group: the first one that the thread computes, of which it asks for the beginning meanwhile.
        """
        shape = (self._rows, self._padded)
        self._steps = own_buffer("steps", (self._rows, self._match.blocks), "float32")
        self._totals = own_buffer("totals", (self._rows, self._match.blocks), "float32")
        names, kind = ("high", "low")[: max(self._tile.digits, 1)], "int8" if self._tile.digits else "float32"
        self._numbers = [own_buffer(name, shape, kind) for name in names]
        row = own_buffer("row", (self._match.says.block,), "float32")
        with T.serial(self._rows) as m:
            factor = self._norm_factor(m)
            with T.serial(self._match.blocks) as b:
                self._begin(group, m, b)
                self._copy(row, m, b, factor)
                if self._tile.digits:
                    self._round(row, m, b)
                else:
                    self._keep(row, m, b)

    def _norm_factor(self, m: Any) -> Any:
        """1 / sqrt(mean of x^2 + eps) of a row; None if rows are not normalized."""
        match, width = self._match, self._width
        if match.norm is None:
            return None
        squares = own_buffer("squares", (width,), "float32", "local")
        with T.vectorized(width) as j:
            T.buffer_store(squares, tirx.const(0, "float32"), [j])
        with T.serial(self._padded // width) as v, T.vectorized(width) as j:
            x = self._element(m, v * width + j)
            T.buffer_store(squares, squares[j] + x * x, [j])
        total = across(squares.vload([0], f"float32x{width}" if width > 1 else "float32"), width, lambda x, y: x + y)
        mean = total * tirx.const(1 / match.says.depth, "float32")
        epsilon = tirx.const(match.norm.epsilon, "float32")
        factor = own_buffer("factor", (1,), "float32", "local")
        T.buffer_store(factor, tirx.const(1, "float32") / tirx.sqrt(mean + epsilon), [0])
        return factor[0]

    def _begin(self, group: Any, m: Any, b: Any) -> None:
        """The share that a block of a row of x has of the lines that no loop over words asks for in time: the beginning
        of the first group, or, where several tiles of rows read a group, all of it."""
        if not self._tile.prefetched:
            return
        weight, whole = next((other for _, other in self._match.beside), self._match), self._passes > 1
        streams = [(weight.codes, self._lines_of_a_block)] + ([] if whole else self._factors(weight, self._match.side))
        for param, lines in streams:
            blocks = self._match.blocks if whole else self._blocks_ahead
            each = -(-lines * blocks // (self._rows * self._match.blocks))
            self._ask(param, (group, 0), (m * self._match.blocks + b) * each, each)

    def _ask_next(self, weight: BlockMatch, place: tuple[Any, Any, Any]) -> None:
        """The share that a vector of a tile of rows, one of several, has of the same block of the next group."""
        if self._tile.prefetched and self._passes > 1:
            (group, b, vector), side = place, self._match.side
            share = -(-self._lines_of_a_block // (self._passes * side))
            self._ask(weight.codes, (group + 1, b), (self._first // self._tile.rows * side + vector) * share, share)

    def _ask_factors(self, weight: BlockMatch, place: tuple[Any, Any, Any], vectors: int) -> None:
        """Scales and points of vectors, as far ahead as words are asked for: streams so thin that the hardware, which
        begins anew in each page, is late for a part of every one."""
        if self._tile.prefetched and self._passes == 1:
            group, b, vector = place
            for param, lines in self._factors(weight, vectors):
                self._ask(param, (group, b + self._blocks_ahead, vector), 0, lines)

    def _factors(self, weight: BlockMatch, vectors: int) -> list[tuple[Param, int]]:
        """Scales and points, and cache lines of a block of so many vectors of each."""
        params = [param for param in (weight.scales, weight.points) if param is not None]
        return [(p, -(-vectors * self._lanes * self._itemsize(p) // LINE_BYTES)) for p in params]

    def _itemsize(self, param: Param) -> int:
        return tvm.DataType(str(self._args.buffer(param).ty.dtype)).bits // 8

    def _ask(self, param: Param, place: tuple[Any, ...], first: Any, count: int) -> None:
        """Prefetch lines of a packed operand, numbered from a place in it on."""
        buffer = self._args.buffer(param)
        inner = [0] * (len(buffer.ty.shape) - len(place) - 1)
        with T.unroll(count) as i:
            index = (first + i) * (LINE_BYTES // self._itemsize(param))
            T.evaluate(prefetch(buffer, [*place, *inner, index]))

    @property
    def _blocks_ahead(self) -> int:
        """Blocks of a group that are as many bytes of words as are asked for ahead."""
        return -(-_AHEAD // (LINE_BYTES * self._lines_of_a_block))

    @property
    def _passes(self) -> int:
        """Tiles of rows, which each read a group."""
        return -(-self._rows // self._tile.rows)

    @property
    def _lines_of_a_block(self) -> int:
        """Cache lines of the words of a block of a group."""
        return -(-4 * self._lanes * self._match.words * self._match.side // LINE_BYTES)

    def _copy(self, row: Any, m: Any, b: Any, factor: Any) -> None:
        """A block of x as float32, with zeros behind the end."""
        block, norm = self._match.says.block, self._match.norm
        with T.serial(block // self._width) as v, T.vectorized(self._width) as j:
            k = b * block + v * self._width + j
            value = self._element(m, k)
            if norm is not None:
                value = times(value * factor, self._args.reader(norm.weight)(self._within(k)))
            T.buffer_store(row, value, [v * self._width + j])

    def _within(self, k: Any) -> Any:
        depth = self._match.says.depth
        return tirx.min(k, depth - 1) if depth < self._padded else k

    def _element(self, m: Any, k: Any) -> Any:
        """A number of a row; 0 behind its end."""
        value = self._args.reader(self._match.data)(*unflatten(m, self._lead), self._within(k))
        depth = self._match.says.depth
        return tirx.Select(k < depth, value, tirx.const(0, "float32")) if depth < self._padded else value

    @property
    def _width(self) -> int:
        """Elements of a vector of x: a power of two that divides a block."""
        return min(self._lanes, self._match.says.block & -self._match.says.block)

    def _vectors(self, row: Any) -> list[Any]:
        width, kind = self._width, f"float32x{self._width}" if self._width > 1 else "float32"
        return [row.vload([start], kind) for start in range(0, self._match.says.block, width)]

    def _keep(self, row: Any, m: Any, b: Any) -> None:
        total = across_all(self._vectors(row), self._width, lambda x, y: x + y)
        T.buffer_store(self._totals, total, [m, b])
        T.buffer_store(self._steps, tirx.const(1, "float32"), [m, b])
        with T.serial(self._match.says.block // self._width) as v, T.vectorized(self._width) as j:
            at = v * self._width + j
            T.buffer_store(self._numbers[0], row[at], [m, b * self._match.says.block + at])

    def _round(self, row: Any, m: Any, b: Any) -> None:
        """Whole numbers of x over a step, which is that of the largest; what is no number makes the step none."""
        width, largest = self._width, _LARGEST[self._tile.digits]
        vector = lambda kind: f"{kind}32x{width}" if width > 1 else f"{kind}32"  # noqa: E731
        broadcast: Callable[[Any], Any] = (lambda x: tirx.Broadcast(x, width)) if width > 1 else (lambda x: x)
        magnitude = broadcast(tirx.const(0x7FFFFFFF, "int32"))
        sizes = [tirx.bitwise_and(tirx.reinterpret(vector("int"), x), magnitude) for x in self._vectors(row)]
        most = T.bind(tirx.reinterpret("float32", across_all(sizes, width, tirx.max)))
        zero = tirx.const(0, "float32")
        factor = T.bind(tirx.Select(most > zero, tirx.const(largest, "float32") / most, zero))
        whole = [T.bind(tirx.nearbyint(x * broadcast(factor)).astype(vector("int"))) for x in self._vectors(row)]
        T.buffer_store(self._steps, most * tirx.const(1 / largest, "float32"), [m, b])
        total = across_all(whole, width, lambda x, y: x + y)
        T.buffer_store(self._totals, total.astype("float32"), [m, b])
        for v, value in enumerate(whole):
            high = value
            if self._tile.digits == 2:
                high = T.bind(tirx.shift_right(value + broadcast(tirx.const(128, "int32")),
                                               broadcast(tirx.const(8, "int32"))))  # fmt: skip
                low = value - tirx.shift_left(high, broadcast(tirx.const(8, "int32")))
                self._store(1, m, b, v, low)
            self._store(0, m, b, v, high)

    def _store(self, digit: int, m: Any, b: Any, v: int, value: Any) -> None:
        width = self._width
        at = b * self._match.says.block + v * width
        index = tirx.Ramp(at, 1, width) if width > 1 else at
        T.buffer_store(self._numbers[digit], value.astype(f"int8x{width}" if width > 1 else "int8"), [m, index])

    # ------------------------------------------------------------ products
    def _compute(self, group: Any) -> None:
        """Vectors of outputs that stand side by side: all rows by a weight, whose words stay in L1, then the next."""
        match = self._match
        shape = (self._rows, match.side, self._lanes)
        beside = {var: own_buffer("beside", shape, "float32") for var, _ in match.beside}
        for var, weight in match.beside:
            for tile in self._tiles():
                acc = self._sum(weight, group, tile)
                with nested(*map(T.unroll, tile), T.vectorized(self._lanes)) as (m, r, j):
                    T.buffer_store(beside[var], acc[m, r, j], [self._first + m, r, j])
        for tile in self._tiles():
            acc = self._sum(match, group, tile)
            with nested(*map(T.unroll, tile)) as (m, r):
                self._finish(acc, beside, m, r, (group * match.side + r) * self._lanes)

    def _tiles(self) -> Iterator[tuple[int, int]]:
        """(rows, vectors) of register tiles, from row `_first` on."""
        for first, height in tiles(0, self._rows, self._tile.rows):
            self._first, self._height = first, height
            yield height, self._match.side

    def _sum(self, weight: BlockMatch, group: Any, tile: tuple[int, int]) -> Any:
        """Rows by a weight, of vectors of outputs that stand side by side: (rows, vectors, lanes)."""
        (height, vectors), lanes = tile, self._lanes
        together = vectors if height <= _TOGETHER else 1
        acc = own_buffer("acc", (*tile, lanes), "float32", "local")
        with T.serial(1, annotations={SHARED_BY: 0}), T.serial(vectors // together) as first:
            own = own_buffer("own", (height, together, lanes), "float32", "local")
            with nested(T.unroll(height), T.unroll(together), T.vectorized(lanes)) as (m, r, j):
                T.buffer_store(own, tirx.const(0, "float32"), [m, r, j])
            with T.serial(self._match.blocks) as b:
                self._ask_factors(weight, (group, b, first), together)
                with T.unroll(together) as r:
                    place = (group, b, first + r)
                    self._ask_next(weight, place)
                    self._add(own, r, self._dots(weight, place), weight, place)
            with nested(T.unroll(height), T.unroll(together), T.vectorized(lanes)) as (m, r, j):
                T.buffer_store(acc, own[m, r, j], [m, first + r, j])
        return acc

    def _finish(self, acc: Any, beside: Mapping[Any, Any], m: Any, r: Any, start: Any) -> None:
        """The epilogue of a vector; of the last one only outputs that there are, of padded ones none."""
        lanes, outputs = self._lanes, self._match.outputs

        def write(count: int) -> None:
            with T.vectorized(count) as j:
                index = (*unflatten(self._first + m, self._lead), start + j)
                others = {var: total[self._first + m, r, j] for var, total in beside.items()}
                T.buffer_store(self._out, self._args.epilogue(index, acc[m, r, j], others), index)

        if outputs % (lanes * self._match.side) == 0:
            write(lanes)
            return
        if outputs >= lanes:
            with T.If(start + lanes <= outputs), T.Then():
                write(lanes)
        if rest := outputs % lanes:
            with T.If(start == outputs - rest), T.Then():
                write(rest)

    def _dots(self, weight: BlockMatch, place: tuple[Any, Any, Any]) -> list[Any]:
        """Sums of a block's codes of a vector by the numbers of each digit: (rows, lanes) each.

        Args:
            place: group, block and vector.
        """
        kind, shape, words = "int32" if self._tile.digits else "float32", (self._height, self._lanes), self._match.words
        dots = [own_buffer("dot", shape, kind, "local") for _ in self._numbers]
        for dot in dots:
            with T.unroll(self._height) as m, T.vectorized(self._lanes) as j:
                T.buffer_store(dot, tirx.const(0, kind), [m, j])
        with (T.unroll if words <= _UNROLLED else T.serial)(words, annotations=self._lines(weight)) as g:
            word = self._args.buffer(weight.codes).vload([*place, g, 0], f"int32x{self._lanes}")
            multiply = self._multiply_bytes if self._tile.digits else self._multiply_floats
            multiply(dots, T.bind(word), place[1] * self._match.says.block + g * 4 * self._match.parts)
        return dots

    def _lines(self, weight: BlockMatch) -> dict[str, Any]:
        if not self._tile.prefetched or self._passes > 1 or self._instructions <= _FEW:
            return {}
        place = self._match.group.params.index(weight.codes)
        return {LINES: [f"p{place}", _AHEAD // 4, max(1, 4 * self._lanes // LINE_BYTES), 1]}

    @property
    def _instructions(self) -> int:
        """That load, unpack and multiply a vector of words."""
        parts, digits, bits = self._match.parts, self._tile.digits, self._match.says.bits
        each = digits * parts * self._rows if digits else 4 * parts * (2 + self._rows)
        return 1 + (2 * parts - 1 if bits < 8 else 0) + each

    def _multiply_bytes(self, dots: Sequence[Any], word: Any, k: Any) -> None:
        bits, ramp = self._match.says.bits, tirx.Ramp(0, 1, self._lanes)
        mask = tirx.Broadcast(tirx.const(0x01010101 * ((1 << bits) - 1), "int32"), self._lanes) if bits < 8 else None
        for part in range(self._match.parts):
            codes = word
            if part:
                codes = tirx.shift_right(codes, tirx.Broadcast(tirx.const(bits * part, "int32"), self._lanes))
            codes = T.bind(codes if mask is None else tirx.bitwise_and(codes, mask))
            for dot, numbers in zip(dots, self._numbers, strict=True):
                with T.unroll(self._height) as m:
                    x = tirx.reinterpret("int32", numbers.vload([self._first + m, k + 4 * part], "int8x4"))
                    total = dot.vload([m, 0], f"int32x{self._lanes}")
                    T.buffer_store(dot, vpdpbusd(total, codes, tirx.Broadcast(x, self._lanes)), [m, ramp])

    def _multiply_floats(self, dots: Sequence[Any], word: Any, k: Any) -> None:
        (dot,), (numbers,), ramp = dots, self._numbers, tirx.Ramp(0, 1, self._lanes)
        bits = self._match.says.bits
        mask = tirx.Broadcast(tirx.const((1 << bits) - 1, "int32"), self._lanes)
        for number in range(4 * self._match.parts):
            shift = 8 * (number % 4) + bits * (number // 4)
            shifted = tirx.shift_right(word, tirx.Broadcast(tirx.const(shift, "int32"), self._lanes)) if shift else word
            code = T.bind(tirx.bitwise_and(shifted, mask).astype(f"float32x{self._lanes}"))
            with T.unroll(self._height) as m:
                x = tirx.Broadcast(numbers[self._first + m, k + number], self._lanes)
                T.buffer_store(dot, dot.vload([m, 0], f"float32x{self._lanes}") + x * code, [m, ramp])

    def _add(self, acc: Any, r: Any, dots: Sequence[Any], weight: BlockMatch, place: tuple[Any, Any, Any]) -> None:
        """acc[:, r] += (dot - zero * total) * scale * step, of a block of a vector."""
        match, args, b = weight, self._args, place[1]
        with T.unroll(self._height) as m, T.vectorized(self._lanes) as j:
            row = self._first + m
            scale = args.tensor(match.scales)(*place, j).astype("float32")
            total = dots[0][m, j]
            if len(dots) == 2:
                total = total * tirx.const(256, "int32") + dots[1][m, j]
            total, whole = total.astype("float32"), self._totals[row, b]
            point = None if match.points is None else args.tensor(match.points)(*place, j).astype("float32")
            if match.points is None:
                value = (total - tirx.const(match.says.zero, "float32") * whole) * scale
            elif match.points.dtype == "uint8":
                value = (total - point * whole) * scale
            else:
                value = total * scale - point * whole
            T.buffer_store(acc, acc[m, r, j] + value * self._steps[row, b], [m, r, j])
