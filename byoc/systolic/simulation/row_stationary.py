"""Row stationary: what of a convolution each PE has, how many cycles the array takes, and what moves at each level.

The dataflow of Eyeriss (Chen, Emer, Sze, "Eyeriss: A spatial architecture for energy-efficient dataflow for
convolutional neural networks", ISCA 2016; Chen, Krishna, Emer, Sze, JSSC 52(1), 2017). A PE keeps a row of a filter and
slides it along a row of the image, a convolution of one dimension. PEs of a *set* one above the other have the rows of
a filter, and their sums go up the column; those side by side have rows of the output, and so a row of the image is that
of all PEs on a diagonal::

    top       sums of output row 0     output row 1     output row 2      e = 3 columns of a set
      PE      filter 2, image 2        2, 3             2, 4
      PE      filter 1, image 1        1, 2             1, 3              h = 3 rows, stride 1
      PE      filter 0, image 0        0, 1             0, 2

`r` sets of other channels lie one above the other, and one sum goes up through all of them; `t` sets of other filters
lie side by side. A PE has rows of `q` channels and `p` filters, one after the other. What is beyond that is done in
passes: a pass brings its filters to the PEs once, and walks over the whole output, a strip of `e` rows after the other.
A step of it is a *window*, a column of the output, whose p q S products a PE does while what is new of the next window
arrives. Filters come by a port of as many values a clock as the array has columns, the image by one of as many as it
has rows, as in the other dataflows; a value is there at all PEs of a row that want it at once (multicast).

A filter of more rows than the array has is cut into sets of as many as divide it. A GEMM is a convolution of 1x1 over
an image of one row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..code.isa import Conv
from ..config import Accelerator
from .partition import Block, blocks, divisors, pieces


@dataclass(frozen=True)
class RowShape:
    """A convolution: channels, filters, (height, width) of the output and of what else has two axes."""

    channels: int
    filters: int
    out_size: tuple[int, int]
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    @classmethod
    def of(cls, conv: Conv) -> RowShape:
        """That of an instruction."""
        return cls(
            conv.channels, conv.n, (conv.out_height, conv.out_width), (conv.kernel_height, conv.kernel_width),
            (conv.stride_height, conv.stride_width), (conv.dilation_height, conv.dilation_width),
        )  # fmt: skip

    def cut(self, height: int, filters: int) -> RowShape:
        """That of so many rows of its output and filters."""
        return replace(self, out_size=(height, self.out_size[1]), filters=filters)

    @property
    def span(self) -> int:
        """Columns of the image from the first to the last tap of a window."""
        return (self.kernel[1] - 1) * self.dilation[1] + 1

    @property
    def columns(self) -> int:
        """Columns of the image that are new in a window which is not the first of a row."""
        return min(self.strides[1], self.span)

    @property
    def macs(self) -> int:
        return self.channels * self.filters * math.prod(self.out_size) * math.prod(self.kernel)

    def image_rows(self, first: int, outputs: int, taps: range) -> set[int]:
        """Rows of the image, with its padding, that rows [first, first + outputs) of the output read by these taps."""
        return {y * self.strides[0] + tap * self.dilation[0] for y in range(first, first + outputs) for tap in taps}


@dataclass(frozen=True)
class RowMapping:
    """Where a convolution lies in the array, in the letters of Eyeriss.

    Attributes:
        shape: the convolution.
        h: rows of a filter in a set.
        e: rows of the output in a set.
        r, t: sets with other channels, one above the other; sets with other filters, side by side.
        q, p: channels and filters of a PE.
    """

    shape: RowShape
    h: int
    e: int
    r: int
    t: int
    q: int
    p: int

    @property
    def strips(self) -> int:
        """Blocks of e rows of the output."""
        return -(-self.shape.out_size[0] // self.e)

    @property
    def passes(self) -> tuple[int, int, int]:
        """How many passes there are along filters, channels and rows of a filter; the first outermost."""
        shape = self.shape
        return (
            -(-shape.filters // (self.p * self.t)), -(-shape.channels // (self.q * self.r)), shape.kernel[0] // self.h
        )  # fmt: skip

    @property
    def windows(self) -> int:
        """Windows of a pass."""
        return self.strips * self.shape.out_size[1]

    @property
    def work(self) -> int:
        """Products of a PE in a window, one a clock."""
        return self.p * self.q * self.shape.kernel[1]

    @property
    def active_pes(self) -> tuple[int, float]:
        """PEs that a pass has, and their mean over the strips, of which the last may have fewer rows."""
        column = self.r * self.h * self.t
        return column * self.e, column * self.shape.out_size[0] / self.strips

    @property
    def efficiency(self) -> float:
        """Share of the products that PEs of the mapping could do in all windows which the convolution has."""
        could = math.prod(self.passes) * self.windows * self.work * self.active_pes[0]
        return self.shape.macs / could

    def cycles(self, rows: int, cols: int, overlapped: bool) -> int:
        """Clocks of an array of rows x cols PEs until the last sum is in the accumulator memory.

        Args:
            overlapped: whether filters and the first window of the next pass arrive behind the work on this one.
        """
        shape, folds = self.shape, math.prod(self.passes)
        image = self.q * self.r * len(shape.image_rows(0, self.e, range(self.h)))
        fill = -(-self.p * self.t * self.q * self.r * self.h * shape.kernel[1] // cols)
        first, later = (-(-image * columns // rows) for columns in (shape.span, shape.columns))
        begins = (self.windows - self.strips) * max(self.work, later) + (self.strips - 1) * max(self.work, first)
        head, tail = max(fill, first), begins + self.work + rows - 1
        if overlapped:
            return head + (folds - 1) * max(fill, begins + max(self.work, first)) + tail
        return folds * (head + tail)

    def depth_order(self) -> Iterator[list[list[int]]]:
        """Of each pass, of each PE of a column from the bottom up: rows of B[k, n] in the order of its products."""
        shape, (height, width) = self.shape, self.shape.kernel
        _, blocks, parts = self.passes
        for block in range(0, blocks * self.q * self.r, self.q * self.r):
            for top in range(0, parts * self.h, self.h):
                yield [
                    [
                        (channel * height + top + row) * width + tap
                        for channel in range(begin, min(begin + self.q, shape.channels))
                        for tap in range(width)
                    ]
                    for begin in range(block, block + self.q * self.r, self.q)
                    for row in range(self.h)
                ]


@dataclass(frozen=True)
class RowCounts:
    """Values moved, as ISCA 2016 counts them (section VI-C): an operand is read b times from the buffer, goes to c PEs
    each time, and is read d times in each; c - 1 of c PEs hand a sum to the next, which grows by d products in a PE.

    Attributes:
        buffer: reads of the scratchpad, by operand "a" or "b".
        network: values that arrive at a PE: of the image, of filters, and sums of the PE below ("output").
        spad: reads of the memories within PEs, b c d of an operand.
        registers: accesses where a sum grows in a PE, 2 b c (d - 1); a PE here has one sum at a time, in a register.
        sums: how often an element of the output comes out of the array.
    """

    buffer: dict[str, int]
    network: dict[str, int]
    spad: dict[str, int]
    registers: int
    sums: int

    @classmethod
    def of(cls, conv: Conv, mapping: RowMapping) -> RowCounts:
        """Those of an instruction; padding is no value of the scratchpad."""
        shape, (by_filters, by_channels, by_rows) = mapping.shape, mapping.passes
        (height, width), (kernel, taps) = shape.out_size, shape.kernel
        inside = range(conv.pad_top, conv.pad_top + conv.height)
        rows = sum(
            len(shape.image_rows(y, min(mapping.e, height - y), range(top, top + mapping.h)).intersection(inside))
            for y in range(0, height, mapping.e)
            for top in range(0, kernel, mapping.h)
        )
        columns = {x * shape.strides[1] + at for x in range(width) for at in range(shape.span)}
        columns &= set(range(conv.pad_left, conv.pad_left + conv.width))
        weights, outputs = shape.channels * kernel * taps * shape.filters, height * width * shape.filters
        received = shape.span + (width - 1) * shape.columns
        pe_sums = outputs * kernel * -(-shape.channels // mapping.q)
        return cls(
            buffer={"a": by_filters * shape.channels * rows * len(columns), "b": weights},
            network={
                "a": shape.channels * kernel * height * received * -(-shape.filters // mapping.p),
                "b": weights * mapping.e,
                "output": pe_sums - outputs * by_channels * by_rows,
            },
            spad={"a": shape.macs, "b": shape.macs},
            registers=2 * (shape.macs - pe_sums),
            sums=by_channels * by_rows,
        )


def row_problem(kernel: tuple[int, int], dilation: tuple[int, int], hardware: Accelerator) -> str:
    """Why an accelerator has no row-stationary array for such windows; "" if it has."""
    span = (kernel[1] - 1) * dilation[1] + 1
    if span > hardware.input_spad or kernel[1] > hardware.filter_spad:
        return (
            f"a window spans {span} columns and a filter row has {kernel[1]} weights; a PE has "
            f"input_spad={hardware.input_spad} and filter_spad={hardware.filter_spad}"
        )
    return ""


def row_mapping(shape: RowShape, hardware: Accelerator) -> tuple[int, RowMapping]:
    """Of one array: cycles of the mapping with the fewest, and of these the one of the fewest passes; and the mapping.

    What :func:`row_problem` says must be "".
    """
    spads = hardware.filter_spad, hardware.input_spad
    return _best(shape, hardware.rows, hardware.cols, *spads, hardware.compute_model == "overlapped")


def row_block(shape: RowShape, hardware: Accelerator) -> Block:
    """What of the output each array has, whole rows and some filters, in the rectangle of arrays of the fewest cycles,
    which are those of the slowest array: its rows of the im2col matrix and its filters, less at the edges.

    What :func:`row_problem` says must be "".
    """
    (height, width), arrays = shape.out_size, hardware.arrays
    if arrays == 1:
        return Block(row_mapping(shape, hardware)[0], height * width, shape.filters)
    sizes = ((-(-height // ways), -(-shape.filters // (arrays // ways))) for ways in divisors(arrays))
    cuts = (Block(_slowest(shape, hardware, *size), size[0] * width, size[1]) for size in sizes)
    return min(cuts, key=lambda block: (block.cycles, block.m + block.n))


def _slowest(shape: RowShape, hardware: Accelerator, height: int, filters: int) -> int:
    """Cycles of the slowest array where each has so many rows of the output and filters, or what is left of them."""
    return max(
        row_mapping(shape.cut(rows, own), hardware)[0]
        for rows, _ in pieces(shape.out_size[0], height)
        for own, _ in pieces(shape.filters, filters)
    )


def block_mapping(shape: RowShape, hardware: Accelerator) -> tuple[Block, RowMapping]:
    """:func:`row_block`, and how it lies in an array."""
    block = row_block(shape, hardware)
    return block, row_mapping(shape.cut(block.m // shape.out_size[1], block.n), hardware)[1]


def row_parts(conv: Conv, hardware: Accelerator) -> Iterator[tuple[tuple[slice, slice], Conv]]:
    """Of each array that has work: rows and columns of C, and the convolution that it computes. Its image is all of it;
    `pad_top` says where the first window begins, below 0 within the image."""
    for rows, filters in blocks(*conv.sizes[::2], row_block(RowShape.of(conv), hardware)):
        first, end = rows.start // conv.out_width, rows.stop // conv.out_width
        sizes = {"n": filters.stop - filters.start, "out_height": end - first}
        yield (rows, filters), replace(conv, **sizes, pad_top=conv.pad_top - first * conv.stride_height)


@functools.lru_cache(maxsize=1 << 16)
def _best(
    shape: RowShape, rows: int, cols: int, filter_spad: int, input_spad: int, overlapped: bool
) -> tuple[int, RowMapping]:
    mappings = row_mappings(shape, rows, cols, filter_spad, input_spad)
    ranked = ((each.cycles(rows, cols, overlapped), math.prod(each.passes) * each.strips, each) for each in mappings)
    cycles, _, best = min(ranked, key=lambda way: way[:2])
    return cycles, best


def row_mappings(shape: RowShape, rows: int, cols: int, filter_spad: int, input_spad: int) -> Iterator[RowMapping]:
    """One for each number of rows of the output in a set; channels and filters as many as then fit, in equal parts."""
    height, (kernel, width) = shape.out_size[0], shape.kernel
    h = max(part for part in range(1, min(kernel, rows) + 1) if kernel % part == 0)
    q = _equal(-(-shape.channels // (rows // h)), min(input_spad // shape.span, filter_spad // width))
    r = _equal(-(-shape.channels // q), rows // h)
    heights = {-(-height // strips) for strips in range(-(-height // cols), height + 1)}
    for e in sorted(heights):
        t = min(cols // e, shape.filters)
        p = _equal(-(-shape.filters // t), filter_spad // (q * width))
        yield RowMapping(shape, h, e, r, _equal(-(-shape.filters // p), t), q, p)


def _equal(size: int, most: int) -> int:
    """The size of the fewest equal parts of at most so many."""
    return -(-size // -(-size // most))
