"""The loops of convolution and matmul over tile registers.

    write the copy of the image, if it has one (tile_image.py)
    for thread in parallel:
        configure tiles
        for (block of 32 outputs, part of the pixels) of the thread:     # or parts first, see Blocks
            for chunk of the channels:                                   # its weights serve all tiles of the part
                for tile (2 x 16 pixels) of the part:
                    accumulators (2 x 2) = what the chunk before left; first: -zero point x sums of the weights, or 0
                    for block of channels, row of the kernel, group of taps:
                        load 2 + 2 operands, multiply 4 times
                    store the accumulators; after the last chunk: out = epilogue(accumulators)
        release tiles

Four accumulators and four operands are all eight registers. Each operand loaded takes part in two products, so loads
(8 cycles each) take half the time of products (16 cycles each). Chunks matter when the weights of a block of outputs
leave L2; with one chunk accumulators stay in registers.

LLVM is given numbers of registers and takes them as they are, on scheduling models that do not rename after allocation
(all of Intel's; tests/schedules/test_amx.py reads the machine code).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.group import Param
from tvm_ext.core.layout import Layout
from tvm_ext.core.recipe import Layouts, Match

from .amx import COLUMNS, Element, Product, Registers, Tiles, as_bits
from .epilogue import Epilogue, buffers
from .storage import Decoding
from .strict_floats import times
from .tile_image import TileImage, vector
from .tile_weight import BLOCK, TileWeight

Place = Callable[[Any, Any, Any, Any], Sequence[Any]]
"""(image, channel, row, column) -> the logical index in a tensor."""


@dataclass(frozen=True)
class Blocks:
    """How the work is cut.

    Attributes:
        outputs: blocks of outputs.
        tiles: of `pixels` x `rows` pixels in an image.
        parts: of the tiles of an image, each a unit of work with one block of outputs.
        pixels: tile registers side by side over pixels.
        chunks: of the blocks of channels.
        threads: that share the units.
    """

    outputs: int
    tiles: int
    parts: int
    pixels: int
    chunks: int
    threads: int

    @staticmethod
    def of(image: TileImage, config: dict[str, Any]) -> Blocks:
        """From the knobs `pixels`, `parts`, `chunk` (blocks of channels) and `threads`."""
        pixels = config["pixels"]
        tiles = -(-image.pixels // (pixels * image.rows))
        outputs = -(-image.window.outputs // BLOCK)
        return Blocks(outputs, tiles, config["parts"], pixels, image.blocks // config["chunk"], config["threads"])

    @property
    def each(self) -> int:
        """Tiles of a part."""
        return -(-self.tiles // self.parts)

    @property
    def by_pixels(self) -> bool:
        """Whether parts come first: each thread reads all weights, and its own pixels."""
        return self.threads > 1 and self.parts % self.threads == 0


class TileKernel:
    """Builds the kernel of one match.

    Args:
        match: with the facts `data`, `weight` and `product`.
        layouts: of its parameters; that of the weight is a :class:`TileWeight`.
        image: how the data is read.
        blocks: how the work is cut.
        tiles: the registers.
        place: where a pixel of a channel stands in the data and in the result.
    """

    def __init__(
        self, match: Match, layouts: Layouts, image: TileImage, blocks: Blocks, tiles: type[Tiles], place: Place
    ) -> None:
        self._match, self._layouts, self._image, self._blocks, self._place = match, layouts, image, blocks, place
        self._product: Product = match.product
        self._where = {p.var: i for i, p in enumerate(match.group.params)}
        packed = layouts.params[self._where[match.weight.var]]
        assert isinstance(packed, TileWeight)
        self._packed = packed
        self._decoding = Decoding.of(match.group, match.data)
        registers = Registers(blocks.pixels, 2, image.rows, packed.depth)
        self._tiles = tiles(self._product, registers)

    def function(self) -> tirx.PrimFunc:
        """Parameters of the group in order, then the result; loops in place."""
        with IRBuilder() as builder, T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr({"tirx.noalias": True})
            self._declare()
            with T.sblock("root"):
                self._stage()
                self._threads()
        return builder.get()

    def _declare(self) -> None:
        group = self._match.group
        self._buffers = buffers(group, self._layouts.params)
        self._out = T.arg("out", T.buffer(self._layouts.output.physical_shape(group.shape), group.dtype))
        readers = [lambda *i, b=b: b[i] for b in self._buffers]
        self._epilogue = Epilogue(group, readers, self._layouts.params)

    def _buffer_of(self, param: Param) -> tuple[Any, Layout]:
        where = self._where[param.var]
        return self._buffers[where], self._layouts.params[where]

    # ------------------------------------------------------------ the image
    def _read(self, n: Any, c: Any, y: Any, x: Any) -> Any:
        buffer, layout = self._buffer_of(self._match.data)
        return buffer[layout.index(self._place(n, c, y, x))]

    def _stage(self) -> None:
        """The copy, if there is one; padding is the zero point."""
        image, dtype = self._image, self._match.data.dtype
        self._source: Any = self._read
        if image.kind != "direct":
            # TVM would make float32 of a buffer of bfloat16 that is no parameter
            self._source = _buffer("image", (image.elements,), "uint16" if dtype == "bfloat16" else dtype)
            fill = tirx.const(self._decoding.zero_point or 0, self._source.dtype)
            together, threads = self._side_by_side(), self._blocks.threads
            image.stage(self._source, lambda *at: as_bits(self._read(*at)), fill, together, threads)

    def _side_by_side(self) -> int:
        """Channels of a pixel that a vector takes."""
        _, layout = self._buffer_of(self._match.data)
        if self._image.kind == "packed":
            return 1
        return layout.block[1] if layout.block else self._image.width

    # ------------------------------------------------------------ units
    def _threads(self) -> None:
        b, images = self._blocks, self._image.window.images
        units = images * b.outputs * b.parts
        threads = min(b.threads, units)
        each = -(-units // threads)
        with T.parallel(threads) if threads > 1 else T.serial(1) as thread:
            shape = (b.each if b.chunks > 1 else 1, b.pixels, self._image.rows, BLOCK)
            self._slots = _buffer("slots", shape, self._product.result)
            self._tiles.begin()
            with T.serial(each) as u:
                unit = thread * each + u
                if units % threads == 0:
                    self._unit(unit)
                else:
                    with T.If(unit < units), T.Then():
                        self._unit(unit)
            self._tiles.end()

    def _unit(self, unit: Any) -> None:
        """One block of outputs at one part of an image's pixels."""
        b, images = self._blocks, self._image.window.images
        inner = b.outputs if b.by_pixels else images * b.parts
        first, second = tirx.floordiv(unit, inner), tirx.floormod(unit, inner)
        output, pixels = (second, first) if b.by_pixels else (first, second)
        n, part = tirx.floordiv(pixels, b.parts), tirx.floormod(pixels, b.parts)
        with T.serial(b.chunks) as chunk, T.serial(b.each) as i:
            tile = part * b.each + i
            if b.each * b.parts == b.tiles:
                self._tile(n, output, tile, i, chunk)
            else:
                with T.If(tile < b.tiles), T.Then():
                    self._tile(n, output, tile, i, chunk)

    def _tile(self, n: Any, output: Any, tile: Any, i: Any, chunk: Any) -> None:
        b = self._blocks
        slot = i if b.chunks > 1 else 0
        if b.chunks == 1:
            self._begin(output)
            self._multiply(n, output, tile, 0)
            self._keep(slot)
            self._write(n, output, tile, slot)
            return
        with T.If(chunk == 0):
            with T.Then():
                self._begin(output)
            with T.Else():
                self._resume(slot)
        self._multiply(n, output, tile, chunk)
        self._keep(slot)
        with T.If(chunk == b.chunks - 1), T.Then():
            self._write(n, output, tile, slot)

    # ------------------------------------------------------------ one tile
    def _accumulators(self) -> list[tuple[int, int, int]]:
        """(register, tile of pixels, tile of outputs)."""
        r = self._tiles.registers
        return [(r.accumulator(p, h), p, h) for p in range(r.pixels) for h in range(r.outputs)]

    def _begin(self, output: Any) -> None:
        """Zero, or what the weights are packed with."""
        weight, _ = self._buffer_of(self._match.weight)
        for register, _, h in self._accumulators():
            if self._packed.sums_elements:
                self._tiles.load_row(register, _run(weight, output, h * 4 * COLUMNS, 0))
            else:
                self._tiles.zero(register)

    def _resume(self, slot: Any) -> None:
        for register, p, h in self._accumulators():
            self._tiles.load(register, _kept(self._slots, slot, p, h), 4 * BLOCK)

    def _keep(self, slot: Any) -> None:
        for register, p, h in self._accumulators():
            self._tiles.store(register, self._slots, _sixteen(slot, p, h), 4 * BLOCK)

    def _multiply(self, n: Any, output: Any, tile: Any, chunk: Any) -> None:
        """All steps of a chunk."""
        image, registers = self._image, self._tiles.registers
        weight, _ = self._buffer_of(self._match.weight)
        rows, groups, each = image.window.kernel[0], len(image.groups), image.blocks // self._blocks.chunks
        size, row = self._packed.tile_elements, COLUMNS * self._product.group
        with T.serial(each) as k, T.serial(rows) as ky, T.serial(groups) as g:
            block = chunk * each + k
            step = (block * rows + ky) * groups + g
            for h in range(registers.outputs):
                start = self._packed.sums_elements + (step * 2 + h) * size
                self._tiles.load(registers.right(h), _run(weight, output, start, row), 4 * COLUMNS)
            for p in range(registers.pixels):
                element = image.element(self._source, n, block, ky, g, self._first(tile, p))
                self._tiles.load(registers.left(p), element, self._pixel_bytes())
            for register, p, h in self._accumulators():
                self._tiles.multiply(register, registers.left(p), registers.right(h))

    def _pixel_bytes(self) -> int:
        """From an output pixel's window to the next one's."""
        size = 4 // self._product.group
        if self._image.kind != "direct":
            return self._image.step * self._image.width * size
        _, layout = self._buffer_of(self._match.data)
        return (layout.block[1] if layout.block else self._match.data.shape[-1]) * size

    def _number(self, tile: Any, p: int) -> Any:
        """The first pixel that tile register `p` is there for."""
        return (tile * self._blocks.pixels + p) * self._image.rows

    def _first(self, tile: Any, p: int) -> Any:
        """The first pixel that it reads: a tensor ends with its last pixel, so the last tile begins earlier."""
        number = self._number(tile, p)
        return tirx.min(number, self._image.pixels - self._image.rows) if self._overlaps else number

    @property
    def _overlaps(self) -> bool:
        exact = self._blocks.tiles * self._blocks.pixels * self._image.rows == self._image.pixels
        return self._image.kind == "direct" and not exact

    # ------------------------------------------------------------ the result
    def _write(self, n: Any, output: Any, tile: Any, slot: Any) -> None:
        """out = epilogue(accumulators), for pixels of the result."""
        image = self._image
        (height, width), pitch = image.window.out_image, image.pitch
        for p in range(self._blocks.pixels):
            first, number = self._first(tile, p), self._number(tile, p)
            with T.serial(image.rows) as m:
                pixel = first + m
                y, x = tirx.floordiv(pixel, pitch), tirx.floormod(pixel, pitch)
                real = [x < width] if pitch > width else []
                real += [y < height] if image.kind != "direct" else []
                real += [pixel >= number] if self._overlaps else []
                with _where(real):
                    for h in range(2):
                        self._store(n, output, y, x, (slot, p, m, h))

    def _store(self, n: Any, output: Any, y: Any, x: Any, at: tuple[Any, Any, Any, int]) -> None:
        """Sixteen channels of a pixel. A result without blocks has room for its own channels only."""
        channels, first = self._image.window.outputs, output * BLOCK + at[3] * COLUMNS
        if self._layouts.output.block is not None or channels % BLOCK == 0:
            self._channels(n, first, y, x, at, COLUMNS)
            return
        with T.If(first + COLUMNS <= channels):
            with T.Then():
                self._channels(n, first, y, x, at, COLUMNS)
            if channels % COLUMNS:
                with T.Else(), _where([first < channels]):
                    self._channels(n, first, y, x, at, channels % COLUMNS)

    def _channels(self, n: Any, first: Any, y: Any, x: Any, at: tuple[Any, Any, Any, int], count: int) -> None:
        slot, p, m, h = at
        with vector(count) as j:
            index = self._place(n, first + j, y, x)
            value = self._value(self._slots[slot, p, m, h * COLUMNS + j], first + j)
            T.buffer_store(self._out, self._epilogue(index, value), list(self._layouts.output.index(index)))

    def _value(self, sums: Any, channel: Any) -> Any:
        """What the anchor computes, of sums over stored numbers."""
        if self._decoding.kind != "dequantize":
            return sums
        weight = Decoding.of(self._match.group, self._match.weight)
        one, other = self._decoding.scale, weight.scale
        if isinstance(one, float) and isinstance(other, float):
            scale = tirx.const(float(np.float32(one) * np.float32(other)), "float32")
        else:
            scale = self._scale(one, channel) * self._scale(other, channel)
        return times(sums.astype("float32"), scale)

    def _scale(self, scale: float | Param, channel: Any) -> Any:
        if not isinstance(scale, Param):
            return tirx.const(scale, "float32")
        buffer, layout = self._buffer_of(scale)
        return buffer[layout.index([channel if d > 1 else 0 for d in scale.shape])]


def _run(buffer: Any, first: Any, start: Any, row: int) -> Element:
    """Rows of `row` elements of `buffer[first]`, one after the other."""
    return lambda m, e: buffer[first, start + m * row + e]


def _kept(buffer: Any, slot: Any, p: int, h: int) -> Element:
    """Accumulators that are kept."""
    return lambda m, j: buffer[slot, p, m, h * COLUMNS + j]


def _sixteen(slot: Any, p: int, h: int) -> Callable[[Any, Any], list[Any]]:
    """Where accumulators are kept: the index of a row and column."""
    return lambda m, j: [slot, p, m, h * COLUMNS + j]


@contextmanager
def _where(conditions: Sequence[Any]) -> Iterator[None]:
    """Under all conditions, if there are any."""
    if not conditions:
        yield
    else:
        with T.If(tirx.all(*conditions)), T.Then():
            yield


def _buffer(name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """A buffer that tile registers load or store. TVM sees the first element of a tile only, and cuts a buffer down to
    what it sees: it is shown both ends."""
    buffer = T.alloc_buffer(shape, dtype, scope="global")
    IRBuilder.name(name, buffer)
    for corner in ([0] * len(shape), [d - 1 for d in shape]):
        T.evaluate(T.address_of(buffer[tuple(corner)]))
    return buffer
