"""Weights in words of narrow numbers, for dot-product instructions, with what zero points of the input add to a sum.

    sum (x + r - z) w  =  sum (x + r) w  -  z' sum w             z: zero point of x, r: what x is read larger by

The second term is known at compile time for each output. It stands as 32-bit integers in front of each block's weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..layout import PackedWeight, oihw


@dataclass(frozen=True)
class DotWeight(PackedWeight):
    """A weight of int8, uint8 or bfloat16 for a kernel that multiplies words of neighbouring input channels.

    Logical (O, I, KH, KW) -> physical (blocks, [4/group +] steps, out, group), where a step is a word of `group` input
    channels: KH, KW and `inner` words of each block of input channels. Channels beyond I and outputs beyond O are zero.
    Of uint8 weights, the bits of w - 128 are kept.

    With :attr:`rows`, a row of the kernel stands for the channels: a step is `group` neighbours of its KW * I weights,
    and KW is 1.

    Attributes:
        group: input channels of a word.
        shift: what the sums of each output's weights are multiplied by; the products stand in front of each block, as
            the planes of their bytes (lowest first). None leaves them out.
        rows: whether words run over the channels of neighbouring positions.
    """

    group: int = 1
    shift: int | None = None
    rows: bool = False

    @staticmethod
    def of(rank: int, inner: int, out: int, blocks: int, group: int, shift: int | None) -> DotWeight:
        """For a logical weight of `rank` 4 (convolution), or of 2 (a matmul's (I, O)); `inner` words stand together."""
        return DotWeight(tuple(range(rank)), None, inner, out, blocks, rank == 2, group, shift)

    def __str__(self) -> str:
        axes = "IO" if self.transposed else ("OHWI" if self.rows else "OIHW")
        return f"{axes}{self.inner}i{self.out}o{self.group}i" + ("" if self.shift is None else "+sums")

    @property
    def first(self) -> int:
        """The first step; before it stand the sums."""
        return 0 if self.shift is None else 4 // self.group

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        _, i, h, w = oihw(shape, self.transposed)
        i, w = (w * i, 1) if self.rows else (i, w)
        words = -(-i // self.group)
        return (self.blocks, self.first + words * h * w, self.out, self.group)

    def pack(self, array: np.ndarray) -> np.ndarray:
        if self.transposed:
            array = array.T
        bits, offset = array.dtype, 128 if array.dtype == np.uint8 else 0
        array = (array.astype("int16") - offset).astype("int8") if offset else array
        o, i, h, w = array.shape if array.ndim == 4 else (*array.shape, 1, 1)
        if self.rows:
            array, i, w = array.transpose(0, 3, 1, 2), w * i, 1
        short = (self.blocks * self.out - o, -i % self.group)
        array = np.pad(array.reshape(o, i, h, w), ((0, short[0]), (0, short[1]), (0, 0), (0, 0)))
        words = array.reshape(self.blocks, self.out, -1, self.inner, self.group, h, w).transpose(0, 2, 5, 6, 3, 1, 4)
        packed = words.reshape(self.blocks, -1, self.out, self.group)
        if self.shift is not None:
            packed = np.concatenate([self._sums(array), packed], axis=1)
        return np.ascontiguousarray(packed).view(bits)

    def _sums(self, array: np.ndarray) -> np.ndarray:
        """The sums' bytes as steps: (blocks, 4 / group, out, group)."""
        sums = array.sum(axis=(1, 2, 3), dtype="int64") * (self.shift or 0)
        number = sums.astype("int32").astype("<i4").reshape(self.blocks, self.out)
        planes = number.view("int8").reshape(self.blocks, self.out, 4).transpose(0, 2, 1)
        return planes.reshape(self.blocks, self.first, self.out, self.group)
