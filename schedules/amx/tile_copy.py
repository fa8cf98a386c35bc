"""The loops that write the copy of an image that tile registers read (:mod:`.tile_image`).

    tensor (N, C, H, W), in blocks of channels or not  ->  [phase][row][column][channels], with its padding

Blocks of channels are copied as they lie. Few channels, of rows of numbers, are interleaved: a vector of columns of
each channel becomes the pixels of these columns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from tvm_ext.rates.instructions import ROW_BYTES

from ..steps.nests import vector, where
from ..steps.transposes import interleave
from .tile_image import Read, TileImage

ReadRun = Callable[[Any, Any, Any, Any, int], Any]
"""(image, channel, row, column, lanes) -> the vector of so many columns from there on."""

#: Vectors of channels that are interleaved at a time, at most.
_CHANNELS = 4


@dataclass(frozen=True)
class TileCopy:
    """A copy of an image, or of some of its rows.

    Attributes:
        image: what is copied.
        copy: the buffer.
        read: of the tensor.
        fill: what padding holds.
        together: channels that the tensor has side by side, a divisor of the image's `width`.
        read_run: of a tensor whose columns lie side by side; else None.
        base: where the copy begins in its buffer.
        top: the first row of the result that is there.
    """

    image: TileImage
    copy: Any
    read: Read
    fill: Any
    together: int
    read_run: ReadRun | None = None
    base: Any = 0
    top: Any = 0

    def write(self, threads: int = 1) -> None:
        """Adds the loops over all lines, which threads share."""
        image = self.image
        w, (py, px), (height, width) = image.window, image.phases, image.plane
        with _shared(w.images * image.blocks * py * height, threads) as line:
            row, rest = tirx.floormod(line, height), tirx.floordiv(line, height)
            phase, rest = tirx.floormod(rest, py), tirx.floordiv(rest, py)
            n, block = tirx.floordiv(rest, image.blocks), tirx.floormod(rest, image.blocks)
            y = (row + self.top) * w.strides[0] + phase - w.pads[0]
            for p in range(px):
                start = ((((n * image.blocks + block) * py + phase) * px + p) * height + row) * width
                with T.If(tirx.all(y >= 0, y < w.image[0])):
                    with T.Then():
                        self._line((n, block, y, p), start)
                    with T.Else():
                        self._padding(start, 0, width)

    def _line(self, at: tuple[Any, ...], start: Any) -> None:
        """One line of a phase: padding, pixels of the image, padding."""
        left, w, phase = self.image.window.pads[1], self.image.window.image[1], at[3]
        stride = self.image.window.strides[1] if self.image.kind == "staged" else 1
        width = self.image.plane[1]
        first = min(width, max(0, -((phase - left) // stride)))  # the first column x with x * stride + phase >= left
        last = max(first, min(width, (w - 1 + left - phase) // stride + 1))
        self._padding(start, 0, first)
        self._padding(start, last, width)
        if first == last:
            return
        lanes = self._lanes(last - first)
        if self.read_run is not None and lanes > 1:
            self._runs(at, start + first, first + phase - left, last - first, lanes)
            return
        with T.serial(last - first) as x:
            self._pixel(at, start + first + x, (first + x) * stride + (phase - left))

    def _padding(self, start: Any, low: int, high: int) -> None:
        """The columns from `low` to `high` of a line."""
        if low < high:
            with T.serial(high - low) as x:
                self._fill(self.fill, self._place(start + low + x), self.image.width)

    def _place(self, pixel: Any) -> Any:
        return self.base + pixel * self.image.width

    def _pixel(self, at: tuple[Any, ...], to: Any, column: Any) -> None:
        """The channels of a pixel, in vectors; zeros after them."""
        n, block, y, _ = at
        place, width = self._place(to), self.image.width
        for channels in self._cases(block):
            for lane in range(0, channels, self.together):
                with vector(min(self.together, channels - lane)) as j:
                    value = self.read(n, block * width + lane + j, y, column)
                    T.buffer_store(self.copy, value, [place + lane + j])
            if channels < width:
                self._fill(tirx.const(0, self.copy.dtype), place + channels, width - channels)

    def _cases(self, block: Any) -> Iterator[int]:
        """How many channels of the block there are: a condition where the last block has fewer."""
        image = self.image
        left = image.window.channels - (image.blocks - 1) * image.width
        if left == image.width or image.blocks == 1:
            yield left
            return
        with T.If(block < image.blocks - 1):
            with T.Then():
                yield image.width
            with T.Else():
                yield left

    def _lanes(self, columns: int) -> int:
        """Columns that are interleaved at a time; 1 if none are."""
        if self.image.kind != "packed" or self.image.width > _CHANNELS:
            return 1
        most = ROW_BYTES // np.dtype(str(self.copy.dtype)).itemsize
        return 1 << (min(columns, most).bit_length() - 1)

    def _runs(self, at: tuple[Any, ...], start: Any, column: int, columns: int, lanes: int) -> None:
        """Runs of columns, from `column` of the tensor on; the last one overlaps the one before it."""
        (n, _, y, _), channels, width = at, self.image.window.channels, self.image.width
        zeros = T.bind(tirx.Broadcast(tirx.const(0, self.copy.dtype), lanes)) if channels < width else None
        with T.serial(-(-columns // lanes)) as run:
            x = T.bind(tirx.min(run * lanes, columns - lanes))
            rows = [T.bind(self.read_run(n, c, y, column + x, lanes)) for c in range(channels)]  # type: ignore[misc]
            for i, pixels in enumerate(interleave(rows + [zeros] * (width - channels), lanes)):
                T.buffer_store(self.copy, pixels, [tirx.Ramp(self._place(start + x) + i * lanes, 1, lanes)])

    def _fill(self, value: Any, start: Any, count: int) -> None:
        with vector(count) as j:
            T.buffer_store(self.copy, value, [start + j])


@contextmanager
def _shared(count: int, threads: int) -> Iterator[Any]:
    """A loop among threads; the last one may do less."""
    threads = min(threads, count)
    each = -(-count // threads)
    with (
        T.parallel(threads) if threads > 1 else T.serial(1) as thread,
        T.serial(each) as i,
        where([thread * each + i < count] if count % threads else []),
    ):
        yield thread * each + i
