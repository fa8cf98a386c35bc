"""The loops of convolution and matmul over tile registers.

    for thread in parallel:
        configure tiles
        write the copy of the image, if it has one (tile_copy.py): of the thread's own rows, see amx_blocks.py
        for (block of 32 outputs, part of the pixels) of the thread:
            for chunk of the channels:                                   # its weights serve all tiles of the part
                for tile (2 x 16 pixels) of the part:
                    accumulators (2 x 2) = what the chunk before left; first: -zero point x sums of the weights, or 0
                    for block of channels, row of the kernel, group of taps:
                        load 2 + 2 operands, multiply 4 times
                        prefetch a share of the weights of this step in the next chunk, or the next block of outputs
                        some rows of the tile before: out = epilogue(its accumulators), see amx_result.py
                    store the accumulators
        release tiles

Four accumulators and four operands are all eight registers. Each operand loaded takes part in two products, so loads
(8 cycles each) take half the time of products (16 cycles each). Chunks matter when the weights of a block of outputs
leave L2; with one chunk accumulators stay in registers.

LLVM is given numbers of registers and takes them as they are, on scheduling models that do not rename after allocation
(all of Intel's; tests/schedules/amx/test_tile_products.py reads the machine code).
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.recipe import Layouts
from tvm_ext.rates.instructions import COLUMNS, ROW_BYTES

from ..steps.arguments import building
from ..steps.nests import where
from ..steps.storage import Decoding
from .blocks import Blocks
from .recipe import TileMatch
from .result import Place, TileResult, shown_buffer
from .tile_copy import TileCopy
from .tile_image import TileImage
from .tile_products import Element, Registers, Tiles, as_bits
from .tile_weight import TileWeight


class TileKernel:
    """Builds the kernel of one match.

    Args:
        match: whose it is.
        layouts: of its parameters; that of the weight is a :class:`TileWeight`.
        image: how the data is read.
        blocks: how the work is cut.
        place: where a pixel of a channel stands in the data and in the result.
    """

    def __init__(self, match: TileMatch, layouts: Layouts, image: TileImage, blocks: Blocks, place: Place) -> None:
        self._match, self._layouts, self._image, self._blocks, self._place = match, layouts, image, blocks, place
        self._data, self._weight, self._product = match.operands.data, match.operands.weight, match.operands.product
        packed = layouts.params[match.group.params.index(self._weight)]
        assert isinstance(packed, TileWeight)
        self._packed = packed
        self._decoding = Decoding.of(match.group, self._data)
        self._tiles = Tiles(self._product, Registers(blocks.pixels, 2, image.rows, packed.depth))

    def function(self) -> tirx.PrimFunc:
        """Parameters of the group in order, then the result; loops in place."""
        with building(self._match.group, self._layouts) as (builder, self._args, self._out), T.sblock("root"):
            self._threads()
        return builder.get()

    # ------------------------------------------------------------ the image
    def _read(self, n: Any, c: Any, y: Any, x: Any) -> Any:
        return self._args.buffer(self._data)[self._args.layout(self._data).index(self._place(n, c, y, x))]

    def _read_run(self, n: Any, c: Any, y: Any, x: Any, lanes: int) -> Any:
        """A vector of columns, in bits that may be shuffled."""
        *index, column = self._place(n, c, y, x)
        shape = self._data.shape
        start = functools.reduce(lambda at, d: at * d[0] + d[1], zip(shape[:-1], index, strict=True), 0)
        return self._flat[tirx.Ramp(start * shape[-1] + column, 1, lanes)]

    def _declare_copy(self) -> None:
        """The buffer of the copies, if there are any."""
        image, dtype = self._image, self._data.dtype
        self._slab = self._blocks.slab(image)
        if image.kind == "direct":
            return
        # TVM would make float32 of a buffer of bfloat16 that is no parameter
        bits = "uint16" if dtype == "bfloat16" else dtype
        self._own = self._blocks.alone(image, 4 // self._product.group)
        copies = self._blocks.workers(image) if self._own else 1
        self._copy = shown_buffer("image", (self._slab.elements * copies,), bits)
        if image.kind == "packed" and self._args.layout(self._data).is_plain:
            self._flat = T.decl_buffer((math.prod(self._data.shape),), bits, data=self._args.buffer(self._data).data)
        if not self._own:
            self._copy_of(0, 0).write(self._blocks.workers(image))

    def _copy_of(self, thread: Any, n: Any) -> TileCopy:
        """What a thread copies; `n` is the first image of it."""
        layout = self._args.layout(self._data)
        fill = tirx.const(self._decoding.zero_point or 0, self._copy.dtype)
        run = self._read_run if self._image.kind == "packed" and layout.is_plain else None
        return TileCopy(
            self._slab, self._copy, lambda i, *at: as_bits(self._read(n + i, *at)), fill, self._side_by_side(),
            run and (lambda i, *at: run(n + i, *at)), self._base(thread), self._top(thread),
        )  # fmt: skip

    def _base(self, thread: Any) -> Any:
        """Where the copy of a thread begins."""
        return thread * self._slab.elements if self._own else 0

    def _top(self, thread: Any) -> Any:
        """The first row of the result that a thread has pixels of."""
        if not self._blocks.shares_pixels:
            return 0
        return tirx.floordiv(thread * self._blocks.numbers_of_thread(self._image), self._image.pitch)

    def _side_by_side(self) -> int:
        """Channels of a pixel that a vector takes."""
        layout = self._args.layout(self._data)
        if self._image.kind == "packed":
            return 1
        return layout.block[1] if layout.block else self._image.width

    # ------------------------------------------------------------ units
    def _threads(self) -> None:
        b, workers = self._blocks, self._blocks.workers(self._image)
        self._declare_copy()
        with T.parallel(workers) if workers > 1 else T.serial(1) as thread:
            self._result = TileResult(self._match, self._args, self._out, self._image, b, self._tiles, self._place)
            self._tiles.begin()
            (self._parts_of if b.shares_pixels else self._outputs_of)(thread)
            self._tiles.end()
            self._result.rest()

    def _parts_of(self, thread: Any) -> None:
        """A thread's part of each image, all outputs inside."""
        b = self._blocks
        with T.serial(self._image.window.images) as n:
            if self._image.kind != "direct":
                self._copy_of(thread, n).write()
            with T.serial(b.parts_of_thread) as part, T.serial(b.outputs) as output:
                self._unit(thread, n, output, thread * b.parts_of_thread + part)

    def _outputs_of(self, thread: Any) -> None:
        """A thread's blocks of outputs, all images and their parts inside."""
        b, images = self._blocks, self._image.window.images
        units = images * b.outputs * b.parts
        each = -(-units // b.workers(self._image))
        if self._image.kind != "direct" and self._own:
            self._copy_of(thread, 0).write()
        with T.serial(each) as u, where([thread * each + u < units] if units % each else []):
            unit = thread * each + u
            output, pixels = tirx.floordiv(unit, images * b.parts), tirx.floormod(unit, images * b.parts)
            self._unit(thread, tirx.floordiv(pixels, b.parts), output, tirx.floormod(pixels, b.parts))

    def _unit(self, thread: Any, n: Any, output: Any, part: Any) -> None:
        """One block of outputs at one part of an image's pixels."""
        b = self._blocks
        with T.serial(b.chunks) as chunk, T.serial(b.each) as i:
            tile = part * b.each + i
            inside = [tile < b.tiles] if b.each * b.parts != b.tiles else []
            with where([*inside, *self._result.has_pixels(self._first(tile, 0))]):
                self._tile(thread, n, output, tile, i, chunk)

    def _tile(self, thread: Any, n: Any, output: Any, tile: Any, i: Any, chunk: Any) -> None:
        """A chunk of a tile; after the last one its epilogue can begin."""
        b, result = self._blocks, self._result
        firsts = [self._first(tile, p) for p in range(b.pixels)]
        if b.chunks == 1:
            self._begin(output)
            self._multiply(thread, n, output, firsts, 0, i)
            result.store(0)
            result.note(n, output, 0, firsts)
            return
        with T.If(chunk == 0):
            with T.Then():
                self._begin(output)
            with T.Else():
                result.resume(i)
        self._multiply(thread, n, output, firsts, chunk, i)
        result.store(i)
        with T.If(chunk == b.chunks - 1):
            with T.Then():
                result.note(n, output, i, firsts)
            with T.Else():
                result.done()

    # ------------------------------------------------------------ one tile
    def _accumulators(self) -> list[tuple[int, int, int]]:
        """(register, tile of pixels, tile of outputs)."""
        r = self._tiles.registers
        return [(r.accumulator(p, h), p, h) for p in range(r.pixels) for h in range(r.outputs)]

    def _begin(self, output: Any) -> None:
        """Zero, or what the weights are packed with."""
        weight = self._args.buffer(self._weight)
        for register, _, h in self._accumulators():
            if self._packed.sums_elements:
                self._tiles.load_row(register, _run(weight, output, h * 4 * COLUMNS, 0))
            else:
                self._tiles.zero(register)

    def _multiply(self, thread: Any, n: Any, output: Any, firsts: Sequence[Any], chunk: Any, i: Any) -> None:
        """All steps of a chunk of tile `i` of a part, and between them the epilogue of the tile before."""
        image, registers = self._image, self._tiles.registers
        rows, groups, each = image.window.kernel[0], len(image.groups), image.blocks // self._blocks.chunks
        steps = each * rows * groups
        with T.serial(each) as k, T.serial(rows) as ky, T.serial(groups) as g:
            step = (k * rows + ky) * groups + g
            self._load_weights(output, chunk * steps + step)
            for p, first in enumerate(firsts):
                with where(self._reads_image(first, ky)):
                    element = self._element(thread, n, chunk * each + k, ky, g, first)
                    streamed = self._blocks.stream == "image"
                    self._tiles.load(registers.left(p), element, self._pixel_bytes(), streamed)
                    for h in range(registers.outputs):
                        self._tiles.multiply(registers.accumulator(p, h), registers.left(p), registers.right(h))
            if self._blocks.prefetches:
                self._prefetch(output, (chunk + 1) * steps + step, i)
            self._result.some(step, steps)

    def _reads_image(self, first: Any, ky: Any) -> list[Any]:
        """Conditions under which a tile reads more than padding: none where all do, or the branch would not pay."""
        if not self._image.skipped(self._decoding.zero_point or 0, self._blocks.tiles * self._blocks.pixels):
            return []
        top, bottom = self._image.input_rows(first, ky)
        return [bottom >= 0, top < self._image.window.image[0]]

    def _load_weights(self, output: Any, step: Any) -> None:
        weight = self._args.buffer(self._weight)
        registers, row = self._tiles.registers, COLUMNS * self._product.group
        for h in range(registers.outputs):
            element = _run(weight, output, self._weights_of(step) + h * self._packed.tile_elements, row)
            self._tiles.load(registers.right(h), element, 4 * COLUMNS, self._blocks.stream == "weights")

    def _weights_of(self, step: Any) -> Any:
        """Where the weights of a step begin in their block of outputs; the steps of the next block follow."""
        return self._packed.sums_elements + step * (2 * self._packed.tile_elements)

    def _prefetch(self, output: Any, step: Any, i: Any) -> None:
        """A tile's share of the lines of a step of the next chunk."""
        weight = self._args.buffer(self._weight)
        lines, line = 2 * self._packed.depth, ROW_BYTES // 4 * self._product.group  # rows of two tiles; elements
        share = -(-lines // self._blocks.each)
        with where([i * share < lines] if self._blocks.each * share > lines else []):
            for k in range(share):
                self._tiles.prefetch(weight, [output, self._weights_of(step) + (i * share + k) * line])

    def _element(self, thread: Any, n: Any, block: Any, ky: Any, g: Any, pixel: Any) -> Element:
        """Where a tile of the image lies: in the tensor or in the thread's copy."""
        if self._image.kind == "direct":
            return self._image.element(self._read, n, block, ky, g, pixel)
        if self._blocks.shares_pixels:
            n, pixel = 0, pixel - self._top(thread) * self._image.pitch
        return self._slab.element(self._copy, n, block, ky, g, pixel, self._base(thread))

    def _pixel_bytes(self) -> int:
        """From an output pixel's window to the next one's."""
        size = 4 // self._product.group
        if self._image.kind != "direct":
            return self._image.step * self._image.width * size
        layout = self._args.layout(self._data)
        return (layout.block[1] if layout.block else self._data.shape[-1]) * size

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


def _run(buffer: Any, first: Any, start: Any, row: int) -> Element:
    """Rows of `row` elements of `buffer[first]`, one after the other."""
    return lambda m, e: buffer[first, start + m * row + e]
