"""Row-stationary array, register by register: a row of a filter stays in a PE, windows of the image slide past it.

::

                         to the PE above, or the accumulator memory
                       ^
                    +--|--------------------+       every clock, in PE (d, c), d rows from the bottom:
                    | sum                   |         window   <- without its first columns, and `arriving` behind it,
                    | total                 |                     if the command turns
      command ----->| filters     shadow    |<--      filters  <- shadow, if the command swaps
                    | window      arriving  |<--      total    <- (0 if `first`, else total) + filter * window
                    +--^--------------------+         sum      <- sum of the PE below + that total, if `last`
                       |
                         from the PE below            shadow, arriving <- values of the network with the PE's numbers

One command goes to all PEs of a row and, a clock later, to those of the row above; so does what the network brings.
With it each PE is one clock behind the one below, and the sum of that one is there when its own is finished. In the top
row the accumulator memory stands in the place of the sum register.

The numbers of a PE are set with the mapping: its set, its row of a filter, its copy, and the row of a strip's image
that it reads, which is the same on a diagonal. PEs beyond the mapping have none, and pass sums on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from .row_stationary import RowMapping


class Command(NamedTuple):
    """What the PEs of a row do in a clock: a product, and what they take over before it.

    Attributes:
        filter, channel, tap: of the product, within a PE.
        first, last: whether it begins a sum, or ends it.
        turn: new columns of the window; 0: it stays.
        swap: whether filters change over.
    """

    filter: int
    channel: int
    tap: int
    first: bool
    last: bool
    turn: int
    swap: bool


class Pixel(NamedTuple):
    """A value of the image on its way: to all PEs of a set that read a row, as a column of a channel that is new."""

    set: int
    row: int
    channel: int
    column: int
    value: Any


class Weight(NamedTuple):
    """A value of a filter on its way: to all PEs of a copy, a set and a row of filters."""

    copy: int
    set: int
    row: int
    filter: int
    channel: int
    tap: int
    value: Any


class RowArray:
    """The registers of rows x cols PEs, named as in the drawing above; row 0 is the bottom.

    Args:
        dtype: of all arithmetic: int32, which wraps, or float32.
    """

    def __init__(self, rows: int, cols: int, mapping: RowMapping, dtype: np.dtype) -> None:
        shape = mapping.shape
        self.filters, self.shadow = np.zeros((2, rows, cols, mapping.p, mapping.q, shape.kernel[1]), dtype)
        self.window, self.arriving = np.zeros((2, rows, cols, mapping.q, shape.span), dtype)
        self.total, self.sum = np.zeros((2, rows, cols), dtype)
        self._dilation = shape.dilation[1]
        sets, self._filter_row = np.divmod(np.arange(rows), mapping.h)
        copies, outputs = np.divmod(np.arange(cols), mapping.e)
        self._set, self._copy = (np.where(of < most, of, -1) for of, most in ((sets, mapping.r), (copies, mapping.t)))
        image_row = outputs * shape.strides[0] + self._filter_row[:, None] * shape.dilation[0]
        self._image_row = np.where((self._set[:, None] >= 0) & (self._copy >= 0), image_row, -1)
        self._commands = deque[Command | None]([None] * rows, maxlen=rows)
        self._brought = deque[tuple[list[Pixel], list[Weight]]]([([], [])] * rows, maxlen=rows)

    def clock(self, command: Command | None, pixels: list[Pixel], weights: list[Weight]) -> np.ndarray | None:
        """Moves every register once.

        Args:
            command, pixels, weights: what goes to the bottom row.

        Returns:
            (cols,) sums, if the top row has finished them in this clock.
        """
        below = np.concatenate([np.zeros_like(self.sum[:1]), self.sum[:-1]])
        self._commands.appendleft(command)
        self._brought.appendleft((pixels, weights))
        for row, known in enumerate(self._commands):
            if known is not None:
                self._work(row, known, below[row])
        for row, brought in enumerate(self._brought):
            self._take(row, *brought)
        top = self._commands[-1]
        return self.sum[-1] if top is not None and top.last else None

    def _work(self, row: int, command: Command, below: np.ndarray) -> None:
        if command.swap:
            self.filters[row] = self.shadow[row]
        if command.turn:
            stays, new = self.window[row, ..., command.turn :], self.arriving[row, ..., : command.turn]
            self.window[row] = np.concatenate([stays, new], axis=-1)
        value = self.window[row, :, command.channel, command.tap * self._dilation]
        product = self.filters[row, :, command.filter, command.channel, command.tap] * value
        self.total[row] = (0 if command.first else self.total[row]) + product
        if command.last:
            self.sum[row] = below + self.total[row]

    def _take(self, row: int, pixels: list[Pixel], weights: list[Weight]) -> None:
        for pixel in pixels:
            if self._set[row] == pixel.set:
                self.arriving[row, self._image_row[row] == pixel.row, pixel.channel, pixel.column] = pixel.value
        for weight in weights:
            if (self._set[row], self._filter_row[row]) == (weight.set, weight.row):
                self.shadow[row, self._copy == weight.copy, weight.filter, weight.channel, weight.tap] = weight.value


T = TypeVar("T")


class Feed(Generic[T]):
    """Brings the values of one block after the other, as many a clock as it is wide, each block when it is told to."""

    def __init__(self, width: int) -> None:
        self.begun = 0
        self._width, self._left = width, list[T]()

    @property
    def is_free(self) -> bool:
        return not self._left

    @property
    def finished(self) -> int:
        """Blocks whose last value was taken in an earlier clock."""
        return self.begun - bool(self._left)

    def begin(self, values: list[T]) -> None:
        self.begun += 1
        self._left = values

    def take(self) -> list[T]:
        taken, self._left = self._left[: self._width], self._left[self._width :]
        return taken


class RowRun:
    """The sequencer: feeds result[E, F, M] += image[C, H, W] * filters[M, C, R, S] to the array, pass by pass.

    Args:
        image: with its padding; operands are in the dtype of the arithmetic.
        result: what the products are added to, changed in place.
        overlapped: whether the next pass comes in behind the work on this one, or after its last result.
    """

    def __init__(
        self, image: np.ndarray, filters: np.ndarray, result: np.ndarray, mapping: RowMapping, rows: int, cols: int,
        overlapped: bool,
    ) -> None:  # fmt: skip
        shape, (by_filters, by_channels, by_rows) = mapping.shape, mapping.passes
        self._mapping, self._overlapped, self._result = mapping, overlapped, result
        channels = by_channels * mapping.q * mapping.r - shape.channels
        height = max(shape.image_rows(0, mapping.strips * mapping.e, range(shape.kernel[0]))) + 1 - image.shape[1]
        self._image = np.pad(image, ((0, channels), (0, max(0, height)), (0, 0)))
        self._filters = np.pad(
            filters, ((0, by_filters * mapping.p * mapping.t - shape.filters), (0, channels), (0, 0), (0, 0))
        )
        self._passes = [
            (f * mapping.p * mapping.t, c * mapping.q * mapping.r, row * mapping.h)
            for f in range(by_filters) for c in range(by_channels) for row in range(by_rows)
        ]  # fmt: skip
        self._array = RowArray(rows, cols, mapping, result.dtype)
        self._pixels, self._weights = Feed[Pixel](rows), Feed[Weight](cols)
        self._begun, self._at, self._delivered = 0, mapping.work, 0

    def clock(self) -> bool:
        """One clock of everything; whether this was the last one."""
        mapping, all_windows = self._mapping, len(self._passes) * self._mapping.windows
        if self._at == mapping.work and self._begun < all_windows and self._is_ready():
            self._begun, self._at = self._begun + 1, 0
        begun = self._pixels.begun
        if self._pixels.is_free and begun == self._begun < all_windows and self._may_bring(begun):
            self._pixels.begin(list(self._window(begun)))
        first = self._weights.begun * mapping.windows  # free once the pass before has begun
        if self._weights.is_free and first < min(self._begun + mapping.windows, all_windows) and self._may_bring(first):
            self._weights.begin(list(self._block(self._weights.begun)))
        sums = self._array.clock(self._command(), self._pixels.take(), self._weights.take())
        if sums is not None:
            self._store(sums)
        return self._delivered == all_windows * mapping.p

    def _is_ready(self) -> bool:
        """Whether the next window is there, and where it is the first of a pass, the filters."""
        number, step = divmod(self._begun, self._mapping.windows)
        return self._pixels.finished > self._begun and (step > 0 or self._weights.finished > number)

    def _may_bring(self, window: int) -> bool:
        """Whether values of a window may come: unless passes overlap, those of its first wait for all results."""
        waits = not self._overlapped and window % self._mapping.windows == 0
        return not waits or self._delivered == window * self._mapping.p

    def _command(self) -> Command | None:
        mapping = self._mapping
        if self._at == mapping.work:
            return None
        width, step = mapping.shape.kernel[1], (self._begun - 1) % mapping.windows
        filter, product = divmod(self._at, mapping.q * width)
        turn = self._new_columns(step) if self._at == 0 else 0
        swap = self._at == 0 and step == 0
        self._at += 1
        return Command(filter, *divmod(product, width), product == 0, product == mapping.q * width - 1, turn, swap)

    def _new_columns(self, step: int) -> int:
        shape = self._mapping.shape
        return shape.columns if step % shape.out_size[1] else shape.span

    def _window(self, number: int) -> Iterator[Pixel]:
        """What is new of a window, of all passes' windows."""
        mapping, shape = self._mapping, self._mapping.shape
        at, step = divmod(number, mapping.windows)
        (_, channel, top), (strip, x) = self._passes[at], divmod(step, shape.out_size[1])
        first, new = strip * mapping.e * shape.strides[0] + top * shape.dilation[0], self._new_columns(step)
        begin = x * shape.strides[1] + shape.span - new
        for group in range(mapping.r):
            for row in sorted(shape.image_rows(0, mapping.e, range(mapping.h))):
                for own in range(mapping.q):
                    values = self._image[channel + group * mapping.q + own, first + row, begin : begin + new]
                    yield from (Pixel(group, row, own, column, value) for column, value in enumerate(values))

    def _block(self, number: int) -> Iterator[Weight]:
        """The filters of a pass."""
        mapping, (first, channel, top) = self._mapping, self._passes[number]
        sizes = mapping.t, mapping.r, mapping.h, mapping.p, mapping.q, mapping.shape.kernel[1]
        for copy, group, row, own, each, tap in np.ndindex(sizes):
            number, depth = first + copy * mapping.p + own, channel + group * mapping.q + each
            yield Weight(copy, group, row, own, each, tap, self._filters[number, depth, top + row, tap])

    def _store(self, sums: np.ndarray) -> None:
        """Adds what leaves the top row to the result; nothing beyond its rows and filters."""
        mapping, (height, width) = self._mapping, self._mapping.shape.out_size
        window, own = divmod(self._delivered, mapping.p)
        number, step = divmod(window, mapping.windows)
        (first, _, _), (strip, x) = self._passes[number], divmod(step, width)
        for copy, output in np.ndindex(mapping.t, mapping.e):
            y, filter = strip * mapping.e + output, first + copy * mapping.p + own
            if y < height and filter < mapping.shape.filters:
                self._result[y, x, filter] += sums[copy * mapping.e + output]
        self._delivered += 1
