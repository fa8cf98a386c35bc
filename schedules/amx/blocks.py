"""How the work of a kernel of tile registers is cut in units, and which thread does which.

    share    a thread has                                          it reads
    pixels   its part of every image, and all outputs of it        all weights, the image of its own rows
    outputs  its blocks of outputs, at all pixels of all images    its own weights, all images

By pixels, outputs are inside: `for image: for part of the thread: for block of outputs: for tile of the part`. A part
of few tiles keeps its rows of the image in L1 and streams the weights; one of many streams the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .tile_image import TileImage
from .tile_weight import BLOCK

#: A copy of an image of so many bytes is made by each thread that reads all of it: nobody waits, and it is near.
_OWN_BYTES = 256 * 1024
SHARES = ("pixels", "outputs")
#: Operands that may be loaded with the hint that L1 need not keep them.
STREAMS = ("neither", "weights", "image")

#: Tile registers of pixels in a part that are enough to share prefetches.
_MANY = 8
_PLAIN = {"share": "pixels", "stream": "neither"}


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
        share: what they share, of :data:`SHARES`.
        stream: what goes past L1, of :data:`STREAMS`.
    """

    outputs: int
    tiles: int
    parts: int
    pixels: int
    chunks: int
    threads: int
    share: str
    stream: str

    @staticmethod
    def of(image: TileImage, config: dict[str, Any]) -> Blocks:
        """From the knobs `pixels`, `parts`, `chunk` (blocks of channels), `share`, `stream` and `threads`."""
        pixels = config["pixels"]
        tiles = -(-image.pixels // (pixels * image.rows))
        outputs = -(-image.window.outputs // BLOCK)
        chunks = image.blocks // config["chunk"]
        rest = (config[knob] for knob in ("threads", "share", "stream"))
        return Blocks(outputs, tiles, config["parts"], pixels, chunks, *rest)

    @staticmethod
    def serial(image: TileImage) -> Blocks:
        """All of the work as one part of one thread."""
        return Blocks.of(image, {**dict.fromkeys(("pixels", "parts", "threads"), 1), "chunk": image.blocks, **_PLAIN})

    @property
    def each(self) -> int:
        """Tiles of a part."""
        return -(-self.tiles // self.parts)

    @property
    def prefetches(self) -> bool:
        """Whether the tiles of a part ask for the weights of the next chunk, or of the next block of outputs: a line or
        a few in each step. Of few tiles it would be a burst, and their own loads come at memory's speed."""
        return min(self.each, self.tiles) * self.pixels >= _MANY

    @property
    def shares_pixels(self) -> bool:
        return self.share == "pixels"

    def workers(self, image: TileImage) -> int:
        """Threads that have work."""
        units = image.window.images * self.outputs * self.parts
        return self.threads if self.shares_pixels else -(-units // -(-units // self.threads))

    @property
    def parts_of_thread(self) -> int:
        """Parts of an image that a thread has, where pixels are shared."""
        return self.parts // self.threads

    def numbers_of_thread(self, image: TileImage) -> int:
        """Numbers of pixels of an image that a thread has, where pixels are shared."""
        return self.parts_of_thread * self.each * self.pixels * image.rows

    def slab(self, image: TileImage) -> TileImage:
        """What a thread copies at a time: of one image the rows that its pixels read, or all images."""
        if not self.shares_pixels:
            return image
        count = self.numbers_of_thread(image)
        starts = range(0, image.pixels, count)
        return image.cut(max((s % image.pitch + min(count, image.pixels - s) - 1) // image.pitch + 1 for s in starts))

    def alone(self, image: TileImage, itemsize: int) -> bool:
        """Whether each thread makes a copy of its own; else all threads make one before they begin."""
        return self.shares_pixels or self.threads == 1 or image.elements * itemsize <= _OWN_BYTES
