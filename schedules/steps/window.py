"""The geometry of a convolution, which its recipes share."""

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution; a matmul is one of images of one column.

    Attributes:
        images, channels, outputs: how many.
        image, out_image: (height, width).
        kernel, strides, dilation: (rows, columns).
        pads: (top, left, bottom, right).
        groups: of channels, each with outputs of its own.
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
    groups: int = 1

    @property
    def multiplications(self) -> int:
        (h, w), (kh, kw) = self.out_image, self.kernel
        return self.images * self.outputs * h * w * self.channels // self.groups * kh * kw

    @property
    def pixels_read(self) -> int:
        """Pixels of an image, without its padding, that windows read: with long strides, not all."""
        axes = zip(self.image, self.out_image, self.kernel, self.strides, strict=True)
        return math.prod(min(extent, count * min(taps, stride)) for extent, count, taps, stride in axes)

    @property
    def in_place(self) -> bool:
        """Whether windows of neighbouring pixels are neighbours in the tensor itself."""
        return self.strides == (1, 1) and not any(self.pads)

    def pixel(self, q: Any) -> tuple[Any, Any]:
        """(row, column) of output pixel number q."""
        return tirx.floordiv(q, self.out_image[1]), tirx.floormod(q, self.out_image[1])

    def tap(self, y: Any, x: Any, ky: Any, kx: Any) -> tuple[Any, Any]:
        """(row, column) of the padded image that tap (ky, kx) of the output pixel (y, x) reads."""
        return y * self.strides[0] + ky * self.dilation[0], x * self.strides[1] + kx * self.dilation[1]

    def inside(self, y: Any, x: Any, image: tuple[Any, Any]) -> Any:
        """Whether (y, x) of the padded image is a pixel of the image, of which so many rows and columns are in use."""
        (h, w), (top, left, _, _) = image, self.pads
        return tirx.all(y >= top, y < h + top, x >= left, x < w + left)
