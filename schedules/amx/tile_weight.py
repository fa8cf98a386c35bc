"""Weights in the order a kernel of tile registers streams them: blocks of 32 outputs, tiles of 16.

    (O, I, KH, KW)  ->  (O / 32, first sums | I / step, KH, groups of KW, 2 tiles, K / group, 16 outputs x group)

A tile holds the weights of one step: `taps` neighbouring taps of a row of the kernel with `width` channels each (one
tap with up to 64 bytes of channels, or all taps of a row of an image with few channels). A group of 32 bits is what AMX
multiplies with a group of the activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ext.core.layout import OpaqueLayout, oihw

#: Outputs of a tile, and of a block.
TILE, BLOCK = 16, 32


@dataclass(frozen=True)
class TileWeight(OpaqueLayout):
    """A constant weight for tile registers; what is beyond its channels, taps or outputs is zero.

    Attributes:
        group: elements in 32 bits: 4 of a byte, 2 of bfloat16.
        width: channels of a tap in a step.
        taps: taps in a step.
        transposed: whether the logical weight is (I, O), as in x @ w.
        zero_point: of the activations. Where it is not 0, each block begins with -zero_point times the sum of the
            weights of each output, in int32: what its accumulators begin with.
        flipped: whether the weights are bytes with a zero point of 128, stored as signed ones without.
    """

    group: int = 4
    width: int = 64
    taps: int = 1
    transposed: bool = False
    zero_point: int = 0
    flipped: bool = False

    @staticmethod
    def make(
        rank: int, group: int, width: int, taps: int = 1, zero_point: int = 0, flipped: bool = False
    ) -> TileWeight:  # fmt: skip
        """For a logical weight of `rank` 4 (convolution) or 2 (matmul)."""
        return TileWeight(tuple(range(rank)), None, group, width, taps, rank == 2, zero_point, flipped)

    def __str__(self) -> str:
        axes = "IO" if self.transposed else "OIHW"
        return f"{axes}{self.width * self.taps}i{TILE}o{self.group}i"

    @property
    def depth(self) -> int:
        """Groups of 32 bits in a step."""
        return self.width * self.taps // self.group

    @property
    def tile_elements(self) -> int:
        return self.depth * TILE * self.group

    @property
    def sums_elements(self) -> int:
        """Elements before the tiles of a block."""
        return BLOCK * 4 * self.group // 4 if self.zero_point else 0

    def steps(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """(blocks of channels, rows of the kernel, groups of taps in a row) of a logical shape."""
        _, i, h, w = oihw(shape, self.transposed)
        return (-(-i // self.width), h, -(-w // self.taps))

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        blocks, h, w = self.steps(shape)
        outputs = -(-oihw(shape, self.transposed)[0] // BLOCK)
        return (outputs, self.sums_elements + blocks * h * w * 2 * self.tile_elements)

    def pack(self, array: np.ndarray) -> np.ndarray:
        shape = array.shape
        o, i, h, w = oihw(shape, self.transposed)
        if self.transposed:
            array = array.T
        if self.flipped:
            array = array ^ array.dtype.type(128)
        array = array.reshape(o, i, h, w)
        blocks, _, groups = self.steps(shape)
        outputs = -(-o // BLOCK)
        steps = np.zeros((outputs * BLOCK, blocks * self.width, h, groups, self.taps), array.dtype)
        for g, first in enumerate(tap_groups(w, self.taps)):
            new = max(0, g * self.taps - first)  # taps that the group before has already
            steps[:o, :i, :, g, new:] = array[:, :, :, first + new : first + self.taps]
        split = steps.reshape(outputs, 2, TILE, blocks, self.width, h, groups, self.taps)
        # a step is one row of the image: the channels of a tap, then those of the next one
        rows = split.transpose(0, 3, 5, 6, 1, 2, 7, 4).reshape(-1, TILE, self.depth, self.group)
        tiles = rows.transpose(0, 2, 1, 3).reshape(outputs, -1)
        return np.ascontiguousarray(np.concatenate([self._sums(array, outputs), tiles], axis=1))

    def _sums(self, array: np.ndarray, outputs: int) -> np.ndarray:
        """-zero_point times the sum of the weights of each output, as bytes of int32 that wrap."""
        if not self.zero_point:
            return np.zeros((outputs, 0), array.dtype)
        sums = np.zeros(outputs * BLOCK, np.int64)
        weights = array.view(np.int8) if self.flipped else array
        sums[: len(array)] = weights.astype(np.int64).sum(axis=(1, 2, 3))
        return (-self.zero_point * sums).astype(np.int32).view(array.dtype).reshape(outputs, -1)


def tap_groups(taps: int, together: int) -> list[int]:
    """The first tap of each group of `together` taps; the last group may begin among those of the one before.

    >>> tap_groups(7, 3)
    [0, 3, 4]
    """
    return [max(0, min(first, taps - together)) for first in range(0, taps, together)]
