"""The shapes of a blocked reduction: the problem, and the padded iteration space of units and tiles."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from tvm_ext.core.layout import PackedWeight
from tvm_ext.core.recipe import Config, Sharing

#: Annotation of the loop over the steps of a tap: (buffer of the padded image, first row of the image in it, the row
#: behind its last). Where all rows that a tile reads are of the padding, its products are zero, and left out.
ROWS_INSIDE = "tvm_ext.rows_inside"
#: Annotation of a loop over elements, numbered through rows of rows: (buffer that they are read from, buffer that they
#: are stored to, rows of each of several images or 0, columns). Each is computed of the element of its own number, so
#: that any numbering does, as that through the rows and columns of a call.
NUMBERED = "tvm_ext.numbered"
#: Annotation of a block of which a variable numbers the pixels of an image: (its place among the variables, pixels,
#: columns). It may number those through the rows and columns of a call.
PIXELS = "tvm_ext.pixels"


@dataclass(frozen=True)
class TapRows:
    """The rows of an image that a convolution reads: tap ky of output row y reads row `y * stride + ky * dilation` of
    the padded image, in which the image has the rows from `first` to before `end`."""

    stride: int
    dilation: int
    first: int
    end: int

    def reads(self, y: int, count: int, tap: int) -> bool:
        """Whether a tap of some of `count` output rows from y on reads a row of the image, not of the padding."""
        low = y * self.stride + tap * self.dilation
        return low < self.end and low + (count - 1) * self.stride >= self.first


@dataclass(frozen=True)
class Problem:
    """A blocked reduction.

    Attributes:
        batch: independent problems; images share their weights, the products of a transform have their own.
        outputs: output channels (columns of a matmul).
        pixels: output pixels (rows of a matmul).
        row: pixels whose inputs lie at a constant stride; a row of the image, or all rows of a matmul.
        blocks: blocks of the reduction, each of `inner` steps per tap.
        taps: kernel positions (KH, KW); (1, 1) for a matmul.
        inner: reduction steps that stand together in a block. A step is one number, or one word of narrow numbers.
        lanes: outputs in a block.
        weight_sets: problems of the batch with weights of their own; 1 if all share them.
        weights_in: the level of the memory hierarchy where a call finds the weights
            (:mod:`tvm_ext.core.cost.residence`).
        prefetched: whether the kernel prefetches them.
        instruction: the rate of the machine at which products run: "fma", "dot_int8", "dot_int16" or "dot_bf16".
        word: bytes of a step of a weight in memory: 4, or 2 of numbers that are widened as they are read.
        tap_rows: the rows that the taps of a convolution read, if the kernel leaves out those of the padding.
        image: pixels of an image that its taps read; 0 for as many as there are output pixels.
        free: whether batch and pixels are the most that there may be: a call may have fewer, and one image alone.
        numbered: whether pixels are numbered through the rows and columns of a call (:data:`PIXELS`).
    """

    batch: int
    outputs: int
    pixels: int
    row: int
    blocks: int
    taps: tuple[int, int]
    inner: int
    lanes: int
    weight_sets: int = 1
    weights_in: str = "memory"
    prefetched: bool = True
    instruction: str = "fma"
    word: int = 4
    tap_rows: TapRows | None = None
    image: int = 0
    free: bool = False
    numbered: bool = False

    @functools.cached_property
    def output_blocks(self) -> int:
        return -(-self.outputs // self.lanes)

    @functools.cached_property
    def steps(self) -> int:
        """Length of the reduction."""
        return self.blocks * self.taps[0] * self.taps[1] * self.inner

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.outputs * self.pixels * self.steps

    @property
    def adds(self) -> bool:
        """Whether the instruction leaves its products to be added by another."""
        return self.instruction == "dot_int16"

    @functools.cached_property
    def weight_bytes(self) -> int:
        """Of all sets of weights."""
        return self.word * self.weight_sets * self.output_blocks * self.lanes * self.steps

    @functools.cached_property
    def input_bytes(self) -> int:
        """Of the pixels that all problems read."""
        return 4 * self.batch * (self.image or self.pixels) * self.blocks * self.inner

    @property
    def products_bytes(self) -> int:
        """Of inputs and results of all problems of the batch, if the inputs are a transform's."""
        return 4 * self.batch * self.pixels * (self.steps + self.output_blocks * self.lanes)

    def batch_divides(self, threads: int) -> bool:
        """Whether each of so many threads has as many problems of the batch as the others."""
        return not self.free and self.batch % threads == 0

    def inside(self, tile_p: int) -> float:
        """The share of rows of taps that read the image, in tiles of so many pixels."""
        whole = tile_p <= self.row and self.row % tile_p == 0
        rows = 1 if whole else -(-tile_p // self.row) + (tile_p % self.row > 0)
        return _inside(self.tap_rows, self.pixels // self.row, rows, self.taps[0]) if self.tap_rows else 1.0

    def scattered(self, tile_p: int) -> bool:
        """Whether a tile of so many pixels has no constant stride: it neither divides a row nor is whole rows, or rows
        are only known at run time."""
        return self.numbered or bool(self.row % tile_p and tile_p % self.row)


@functools.lru_cache(maxsize=4096)
def _inside(read: TapRows, height: int, rows: int, taps: int) -> float:
    tiles = [(y, min(rows, height - y)) for y in range(0, height, rows)]
    return sum(read.reads(y, count, tap) for y, count in tiles for tap in range(taps)) / (len(tiles) * taps)


@dataclass(frozen=True)
class Units:
    """The padded iteration space: units of work, and register tiles in each.

    Attributes:
        outer_o, outer_p: units along the blocks of outputs and along the pixels.
        tile_o, tile_p: blocks of outputs and pixels of a register tile.
        tiles_p: tiles of a unit, along the pixels.
        chunk: reduction blocks whose weights stay in L1 while all tiles of a unit pass.
    """

    outer_o: int
    outer_p: int
    tile_o: int
    tile_p: int
    tiles_p: int
    chunk: int

    @staticmethod
    def of(problem: Problem, config: Config) -> Units:
        """Round up so that units divide evenly among the threads."""
        to, tp, parts, threads = (config[k] for k in ("tile_o", "tile_p", "parts", "threads"))
        bp = -(-problem.pixels // (tp * parts))
        outer_o = -(-problem.output_blocks // to)
        outer_p = -(-problem.pixels // (tp * bp))
        if (problem.batch * outer_o * outer_p) % threads:
            more_o = _round_up(outer_o, threads // math.gcd(threads, problem.batch * outer_p))
            more_p = _round_up(outer_p, threads // math.gcd(threads, problem.batch * outer_o))
            if more_o * outer_p <= outer_o * more_p:
                outer_o = more_o
            else:
                outer_p = more_p
        return Units(outer_o, outer_p, to, tp, bp, config["chunk"])

    def sharing(self, problem: Problem, threads: int) -> Sharing:
        """Blocks of outputs of all pixels, which threads share evenly once they are rounded up."""
        done = problem.batch * self.padded_blocks * self.padded_pixels
        return Sharing(threads, problem.batch * problem.output_blocks * problem.pixels, done / threads)

    @property
    def padded_blocks(self) -> int:
        return self.outer_o * self.tile_o

    @property
    def padded_pixels(self) -> int:
        return self.outer_p * self.tiles_p * self.tile_p


def shares_pixels(problem: Problem, units: Units, threads: int) -> bool:
    """Whether threads share a problem's pixels, and not its outputs.

    Then each reads all weights and its own pixels, which it wrote itself if the kernel before was shared alike
    (:func:`..steps.loops.parallel_image`); else each reads its own weights and all pixels, most of them out of another
    core's cache. A configuration decides by the parts it cuts the pixels in.
    """
    alone = not problem.batch_divides(threads) and problem.weight_sets == 1
    return threads > 1 and alone and units.outer_p % threads == 0


def packed_weight(problem: Problem, config: Config, rank: int = 4, transposed: bool = False) -> PackedWeight:
    """The weight of one problem as its tiles stream it, zeros behind the last output.

    Args:
        rank, transposed: those of :meth:`tvm_ext.core.layout.PackedWeight.make`.
    """
    out, outer_o = problem.lanes * config["tile_o"], Units.of(problem, config).outer_o
    return PackedWeight.make(rank, problem.inner, out, outer_o, transposed)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
