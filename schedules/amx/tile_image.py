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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from tvm_ext.rates.instructions import ROWS

from ..steps.window import Window
from .tile_products import Element
from .tile_weight import tap_groups

#: Part of the products that have to be with padding, for a branch around each.
_WORTH_A_BRANCH = 0.02

Read = Callable[[Any, Any, Any, Any], Any]
"""(image, channel, row, column) -> what is stored there."""


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

    # ------------------------------------------------------------ padding
    def input_rows(self, first: Any, ky: Any) -> tuple[Any, Any]:
        """The first and the last row of the image that a row of the kernel reads for the tile from number `first` on;
        what is less than 0 or not less than the height is padding."""
        w = self.window
        top, bottom = ((first + k) // self.pitch for k in (0, self.rows - 1))
        shift = ky * w.dilation[0] - w.pads[0]
        return top * w.strides[0] + shift, bottom * w.strides[0] + shift

    def skipped(self, zero_point: int, tiles: int) -> int:
        """Rows of the kernel, over so many tiles, that are not multiplied, because a tile reads only zeros there: none
        where there are few, or padding is a zero point that is not 0."""
        if zero_point or self.kind != "staged":
            return 0
        height = self.window.kernel[0]
        rows = (self.input_rows(t * self.rows, ky) for t in range(tiles) for ky in range(height))
        count = sum(int(last) < 0 or int(first) >= self.window.image[0] for first, last in rows)
        return count if count >= _WORTH_A_BRANCH * tiles * height else 0

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

    def cut(self, rows: int) -> TileImage:
        """The image of so many rows of the result, of one image: what a thread copies that has no others."""
        return replace(self, window=replace(self.window, images=1, out_image=(rows, self.window.out_image[1])))

    def element(
        self, read: Any, n: Any, block: Any, ky: Any, group: Any, pixel: Any, base: Any = 0
    ) -> Element:  # fmt: skip
        """Where the tile of the pixels from `pixel` on lies at a step.

        Args:
            read: of the tensor itself (:data:`Read`), or the buffer of the copy.
            base: where the copy begins in its buffer.
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
        start = base + (plane * (height * width) + row * width + column + pixel * self.step) * self.width
        return lambda m, e: read[start + m * (self.step * self.width) + e]


def _first_tap(group: Any, groups: list[int]) -> Any:
    """The first tap of a step, by its number."""
    if len(groups) == 1:
        return 0
    return tirx.min(group * groups[1], groups[-1])
