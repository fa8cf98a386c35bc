"""How tile registers read an image: output pixels are numbered so that sixteen of them lie at a constant distance.

A tile row is one output pixel's window at one step: the channels of one tap, or the taps of a row of the kernel where
there are few channels. Rows of the image follow one another, so a tile goes on where a row ends, and small maps
(14x14, 7x7) fill it: the pixels between two rows (KW - 1 of them) are computed and not stored. With a pitch of 9,
the 49 pixels of a 7x7 map take 61 numbers and four tiles, as many as packed closely; 14x14 takes 14 instead of 13.
Gathering sixteen pixels for each tap into a panel would copy each pixel nine times.

    direct   the tensor itself: no stride, no padding, whole blocks of channels
    staged   a copy [phase][row][column][channels]: padding written; for a stride of s the image cut in s x s phases, in
             each of which neighbours of the result are neighbours; lanes beyond the last channel are zeros
    packed   a copy [phase of rows][row][column][4 channels]: a row of the kernel is one run of it, 7 x 4 numbers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from .amx import ROWS, Element
from .tile_weight import tap_groups

Read = Callable[[Any, Any, Any, Any], Any]
"""(image, channel, row, column) -> what is stored there."""


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution; a matmul is one of images of one column.

    Attributes:
        images, channels, outputs: how many.
        image, out_image: (height, width).
        kernel, strides, dilation: (rows, columns).
        pads: (top, left, bottom, right).
    """

    images: int
    channels: int
    outputs: int
    image: tuple[int, int]
    out_image: tuple[int, int]
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def multiplications(self) -> int:
        (h, w), (kh, kw) = self.out_image, self.kernel
        return self.images * self.outputs * h * w * self.channels * kh * kw

    @property
    def in_place(self) -> bool:
        """Whether windows of neighbouring pixels are neighbours in the tensor itself."""
        return self.strides == (1, 1) and not any(self.pads)


@dataclass(frozen=True)
class TileImage:
    """An image as tiles read it.

    Attributes:
        window: the convolution.
        kind: "direct", "staged" or "packed".
        width: channels of a tap in a step.
        taps: taps in a step.
    """

    window: Window
    kind: str
    width: int
    taps: int = 1

    @staticmethod
    def packed(window: Window, lanes: int, group: int) -> TileImage | None:
        """Few channels: pixels of whole groups, as many taps as a tile row holds; None if that is one."""
        width = next((group << i for i in range(4) if group << i >= window.channels), lanes)
        taps = min(window.kernel[1], lanes // width)
        return TileImage(window, "packed", width, taps) if taps > 1 and window.dilation[1] == 1 else None

    # ------------------------------------------------------------ steps
    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.window.channels // self.width)

    @property
    def groups(self) -> list[int]:
        """First tap of each step in a row of the kernel."""
        return tap_groups(self.window.kernel[1], self.taps)

    @property
    def steps(self) -> int:
        return self.blocks * self.window.kernel[0] * len(self.groups)

    # ------------------------------------------------------------ pixels
    @property
    def pitch(self) -> int:
        """Numbers from an output pixel to the one below it."""
        w = self.window
        if self.kind == "direct":
            return w.image[1]
        return w.out_image[1] + (w.kernel[1] - 1) * w.dilation[1] // w.strides[1]

    @property
    def pixels(self) -> int:
        """Numbers of output pixels of an image, with those between its rows."""
        height, width = self.window.out_image
        return (height - 1) * self.pitch + width

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return min(ROWS, self.pixels)

    @property
    def step(self) -> int:
        """Stored pixels from an output pixel to the next one."""
        return self.window.strides[1] if self.kind == "packed" else 1

    # ------------------------------------------------------------ the copy
    @property
    def phases(self) -> tuple[int, int]:
        """Phases of rows and of columns that taps fall into."""
        w = self.window
        rows, columns = (min(s, (k - 1) * d + 1) for s, k, d in zip(w.strides, w.kernel, w.dilation, strict=True))
        return rows, (1 if self.kind == "packed" else columns)

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of a phase."""
        w = self.window
        reach = (w.kernel[0] - 1) * w.dilation[0]
        return w.out_image[0] + reach // w.strides[0], self.pitch * self.step

    @property
    def elements(self) -> int:
        """Of the copy, with what the last tiles read beyond it."""
        py, px = self.phases
        height, width = self.plane
        planes = self.window.images * self.blocks * py * px
        return (planes * height * width + (2 * ROWS + 1) * self.step + self.taps) * self.width

    def element(self, read: Any, n: Any, block: Any, ky: Any, group: Any, pixel: Any) -> Element:
        """Where the tile of the pixels from `pixel` on lies at a step.

        Args:
            read: of the tensor itself (:data:`Read`), or the buffer of the copy.
        """
        (sy, sx), (dy, dx) = self.window.strides, self.window.dilation
        first = group if self.taps == 1 else _first_tap(group, self.groups)
        if self.kind == "direct":
            width = self.window.image[1]
            base = pixel + ky * (dy * width) + first * dx

            def from_tensor(m: Any, e: Any) -> Any:
                place = base + m
                return read(n, block * self.width + e, tirx.floordiv(place, width), tirx.floormod(place, width))

            return from_tensor
        (py, px), (height, width) = self.phases, self.plane
        row, column = ky * dy, first * dx
        plane = (n * self.blocks + block) * py + (tirx.floormod(row, sy) if py > 1 else 0)
        row = tirx.floordiv(row, sy)
        if self.kind == "staged":
            plane = plane * px + (tirx.floormod(column, sx) if px > 1 else 0)
            column = tirx.floordiv(column, sx)
        start = (plane * (height * width) + row * width + column + pixel * self.step) * self.width
        return lambda m, e: read[start + m * (self.step * self.width) + e]

    def stage(self, copy: Any, read: Read, fill: Any, together: int, threads: int) -> None:
        """Adds the loops that write the copy, rows among threads.

        Args:
            copy: the buffer of the copy.
            read: of the tensor.
            fill: what padding holds.
            together: channels that the tensor has side by side, a divisor of `width`.
        """
        w = self.window
        (sy, _), (py, px), (height, width) = w.strides, self.phases, self.plane
        with _shared(w.images * self.blocks * py * height, threads) as line:
            row, rest = tirx.floormod(line, height), tirx.floordiv(line, height)
            phase, rest = tirx.floormod(rest, py), tirx.floordiv(rest, py)
            n, block = tirx.floordiv(rest, self.blocks), tirx.floormod(rest, self.blocks)
            y = row * sy + phase - w.pads[0]
            for p in range(px):
                start = ((((n * self.blocks + block) * py + phase) * px + p) * height + row) * width
                with T.If(tirx.all(y >= 0, y < w.image[0])):
                    with T.Then():
                        self._line(copy, read, fill, together, (n, block, y, p), start)
                    with T.Else(), T.serial(width) as x:
                        self._fill(copy, fill, (start + x) * self.width, self.width)

    def _line(self, copy: Any, read: Read, fill: Any, together: int, at: tuple[Any, ...], start: Any) -> None:
        """One line of a phase: padding, pixels of the image, padding."""
        n, block, y, phase = at
        left, w = self.window.pads[1], self.window.image[1]
        stride = self.window.strides[1] if self.kind == "staged" else 1
        width = self.plane[1]
        first = min(width, max(0, -((phase - left) // stride)))  # the first column x with x * stride + phase >= left
        last = max(first, min(width, (w - 1 + left - phase) // stride + 1))
        for low, high in ((0, first), (last, width)):
            if low < high:
                with T.serial(high - low) as x:
                    self._fill(copy, fill, (start + low + x) * self.width, self.width)
        if first == last:
            return
        with T.serial(last - first) as x:
            column = (first + x) * stride + (phase - left)
            to = (start + first + x) * self.width
            for whole in self._cases(block):
                self._pixel(copy, lambda c: read(n, block * self.width + c, y, column), together, to, whole)

    def _cases(self, block: Any) -> Iterator[int]:
        """How many channels of the block there are: a condition where the last block has fewer."""
        left = self.window.channels - (self.blocks - 1) * self.width
        if left == self.width or self.blocks == 1:
            yield left
            return
        with T.If(block < self.blocks - 1):
            with T.Then():
                yield self.width
            with T.Else():
                yield left

    def _pixel(self, copy: Any, load: Any, together: int, to: Any, channels: int) -> None:
        """The channels of a pixel, in vectors; zeros after them."""
        for lane in range(0, channels, together):
            count = min(together, channels - lane)
            with vector(count) as j:
                T.buffer_store(copy, load(lane + j), [to + lane + j])
        if channels < self.width:
            self._fill(copy, tirx.const(0, copy.dtype), to + channels, self.width - channels)

    @staticmethod
    def _fill(copy: Any, value: Any, start: Any, count: int) -> None:
        with vector(count) as j:
            T.buffer_store(copy, value, [start + j])


def _first_tap(group: Any, groups: list[int]) -> Any:
    """The first tap of a step, by its number."""
    if len(groups) == 1:
        return 0
    together = groups[1]
    return tirx.min(group * together, groups[-1])


@contextmanager
def vector(count: int) -> Iterator[Any]:
    """A vectorized loop; none for one element."""
    if count == 1:
        yield 0
    else:
        with T.vectorized(count) as j:
            yield j


@contextmanager
def _shared(count: int, threads: int) -> Iterator[Any]:
    """A loop among threads; the last one may do less."""
    threads = min(threads, count)
    each = -(-count // threads)
    with T.parallel(threads) if threads > 1 else T.serial(1) as thread, T.serial(each) as i:
        number = thread * each + i
        if count % threads == 0:
            yield number
        else:
            with T.If(number < count), T.Then():
                yield number
