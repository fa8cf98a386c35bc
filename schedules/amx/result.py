"""What becomes of accumulators: they are stored, and while the next tile multiplies, out = epilogue(stored ones).

    tile t:      ... products ...  store accumulators, note where its pixels go
    tile t + 1:  step 0: products, epilogue of rows 0 and 1 of tile t; step 1: products, rows 2 and 3; ...

Vector instructions so run in the shadow of products, which other units of the core compute. Where the pixels of a tile
go is computed for all of them at once, in vectors; a number between two rows of the image, or beyond the last one,
stands for a pixel of the tile that is real: its value is written twice, and no row has a condition.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.group import Param
from tvm_ext.ops.scalars.strict_floats import times
from tvm_ext.rates.instructions import COLUMNS

from ..steps.arguments import Arguments
from ..steps.nests import own_buffer, vector, where
from ..steps.storage import Decoding
from .blocks import Blocks
from .recipe import TileMatch
from .tile_image import TileImage
from .tile_products import Element, Tiles
from .tile_weight import BLOCK

Place = Callable[[Any, Any, Any, Any], Sequence[Any]]
"""(image, channel, row, column) -> the logical index in a tensor."""


class TileResult:
    """The accumulators of a thread behind its registers. Made where the thread begins, for buffers of its own.

    Args:
        match: whose the kernel is.
        args, out: of the kernel: its parameters and the buffer of its result.
        image: how the data is read.
        blocks: how the work is cut.
        tiles: the registers.
        place: where a pixel of a channel stands in the result.
    """

    def __init__(
        self, match: TileMatch, args: Arguments, out: Any, image: TileImage, blocks: Blocks, tiles: Tiles, place: Place
    ) -> None:
        self._args, self._out = args, out
        self._image, self._blocks, self._tiles, self._place = image, blocks, tiles, place
        self._decoding = Decoding.of(match.group, match.operands.data)
        self._weight_scale = Decoding.of(match.group, match.operands.weight).scale
        self._rows = blocks.pixels * image.rows
        slots = (blocks.each if blocks.chunks > 1 else 1, self._rows, BLOCK)
        self._slots = shown_buffer("slots", slots, tiles.product.result)
        self._places, self._row_of = (own_buffer(n, (self._rows,), "int32", "local") for n in ("places", "row_of"))
        # whether a tile waits; its image, block of outputs and slot
        self._waiting = own_buffer("waiting", (4,), "int32", "local")
        T.buffer_store(self._waiting, 0, [0])

    # ------------------------------------------------------------ accumulators
    def resume(self, slot: Any) -> None:
        """Loads the accumulators that were stored."""
        for register, row, h in self._accumulators():
            self._tiles.load(register, self._stored(slot, row, h), 4 * BLOCK)

    def store(self, slot: Any) -> None:
        """Stores the accumulators."""
        for register, row, h in self._accumulators():
            index = lambda m, j, row=row, h=h: [slot, row + m, h * COLUMNS + j]  # noqa: E731
            self._tiles.store(register, self._slots, index, 4 * BLOCK)

    def _accumulators(self) -> list[tuple[int, int, int]]:
        """(register, its first row, tile of outputs)."""
        r = self._tiles.registers
        return [(r.accumulator(p, h), p * self._image.rows, h) for p in range(r.pixels) for h in range(r.outputs)]

    def _stored(self, slot: Any, row: int, h: int) -> Element:
        return lambda m, j: self._slots[slot, row + m, h * COLUMNS + j]

    # ------------------------------------------------------------ where pixels go
    def note(self, n: Any, output: Any, slot: Any, firsts: Sequence[Any]) -> None:
        """A tile waits for its epilogue.

        Args:
            n, output, slot: its image, its block of outputs, and where its accumulators are.
            firsts: the number of the first pixel of each of its registers.
        """
        for i, value in enumerate((1, n, output, slot)):
            T.buffer_store(self._waiting, value, [i])
        real = self._first_real(firsts[0]) if self._gaps else None
        for p, first in enumerate(firsts):
            with vector(self._image.rows) as m:
                self._note_row(first + m, p * self._image.rows + m, real)

    def _note_row(self, number: Any, row: Any, real: tuple[Any, Any] | None) -> None:
        image, width = self._image, self._image.window.out_image[1]
        y = tirx.floordiv(number, image.pitch)
        place = number - y * (image.pitch - width)
        if real is not None:
            fits = tirx.all(number - y * image.pitch < width, number < image.pixels)
            T.buffer_store(self._row_of, tirx.Select(fits, row, real[0]), [row])
            place = tirx.Select(fits, place, real[1])
        T.buffer_store(self._places, place, [row])

    def _first_real(self, first: Any) -> tuple[Any, Any]:
        """(row of the tile, place in the image) of its first pixel that is one of the image."""
        pitch, width = self._image.pitch, self._image.window.out_image[1]
        y = T.bind(tirx.floordiv(first, pitch))
        x = T.bind(first - y * pitch)
        row = T.bind(tirx.Select(x < width, 0, pitch - x))
        return row, T.bind(tirx.Select(x < width, y * width + x, (y + 1) * width))

    @property
    def _gaps(self) -> bool:
        """Whether there are numbers that are no pixels."""
        image = self._image
        whole = image.kind == "direct" or self._blocks.tiles * self._rows == image.pixels
        return not whole or image.pitch > image.window.out_image[1]

    def has_pixels(self, first: Any) -> list[Any]:
        """Conditions under which the tile from a number on has a pixel of the image: none where every tile has."""
        pitch, width = self._image.pitch, self._image.window.out_image[1]
        if pitch - width < self._rows:
            return []
        x = tirx.floormod(first, pitch)
        return [tirx.any(x < width, pitch - x < self._rows)]

    # ------------------------------------------------------------ epilogue
    def some(self, step: Any, steps: int) -> None:
        """Of the tile that waits, the rows of one of `steps` steps."""
        each = -(-self._rows // steps)
        late = [step * each < self._rows] if (steps - 1) * each >= self._rows else []
        with where([self._waiting[0] > 0, *late]), T.serial(each) as r:
            row = step * each + r
            self._write(tirx.min(row, self._rows - 1) if self._rows % each else row)

    def done(self) -> None:
        """No tile waits."""
        T.buffer_store(self._waiting, 0, [0])

    def rest(self) -> None:
        """All rows of a tile that still waits."""
        with where([self._waiting[0] > 0]), T.serial(self._rows) as row:
            self._write(row)

    def _write(self, row: Any) -> None:
        """Out = epilogue(accumulators) for one row of the tile that waits."""
        width, b = self._image.window.out_image[1], self._blocks
        n = T.bind(self._waiting[1]) if self._image.window.images > 1 else 0
        output = T.bind(self._waiting[2]) if b.outputs > 1 else 0
        slot = T.bind(self._waiting[3]) if b.chunks > 1 else 0
        place = T.bind(self._places[row])
        row = T.bind(self._row_of[row]) if self._gaps else row
        y, x = tirx.floordiv(place, width), tirx.floormod(place, width)
        for h in range(2):
            self._sixteen((n, output, y, x), (slot, row, h))

    def _sixteen(self, to: tuple[Any, Any, Any, Any], at: tuple[Any, Any, int]) -> None:
        """Sixteen channels of a pixel. A result without blocks has room for its own channels only."""
        channels, first = self._image.window.outputs, to[1] * BLOCK + at[2] * COLUMNS
        if self._args.layouts.output.block is not None or channels % BLOCK == 0:
            self._channels(to, at, first, COLUMNS)
            return
        with T.If(first + COLUMNS <= channels):
            with T.Then():
                self._channels(to, at, first, COLUMNS)
            if channels % COLUMNS:
                with T.Else(), where([first < channels]):
                    self._channels(to, at, first, channels % COLUMNS)

    def _channels(self, to: tuple[Any, Any, Any, Any], at: tuple[Any, Any, int], first: Any, count: int) -> None:
        (n, _, y, x), (slot, row, h) = to, at
        with vector(count) as j:
            index = self._place(n, first + j, y, x)
            value = self._value(self._slots[slot, row, h * COLUMNS + j], first + j)
            physical = list(self._args.layouts.output.index(index))
            T.buffer_store(self._out, self._args.epilogue(index, value), physical)

    def _value(self, sums: Any, channel: Any) -> Any:
        """What the anchor computes, of sums over stored numbers."""
        if self._decoding.kind != "dequantize":
            return sums
        data, weight = self._decoding.scale, self._weight_scale
        if isinstance(data, float) and isinstance(weight, float):
            scale = tirx.const(float(np.float32(data) * np.float32(weight)), "float32")
        else:
            scale = self._scale(data, channel) * self._scale(weight, channel)
        return times(sums.astype("float32"), scale)

    def _scale(self, scale: float | Param, channel: Any) -> Any:
        if not isinstance(scale, Param):
            return tirx.const(scale, "float32")
        index = self._args.layout(scale).index([channel if d > 1 else 0 for d in scale.shape])
        return self._args.buffer(scale)[index]


def shown_buffer(name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """A buffer that tile registers load or store. TVM sees the first element of a tile only, and cuts a buffer down to
    what it sees: it is shown both ends."""
    buffer = own_buffer(name, shape, dtype)
    for corner in ([0] * len(shape), [d - 1 for d in shape]):
        T.evaluate(T.address_of(buffer[tuple(corner)]))
    return buffer
