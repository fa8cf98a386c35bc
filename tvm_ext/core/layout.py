"""How a tensor lies in memory: logical axes permuted, one of them blocked by a number of lanes.

"NCHW" is a 4-d tensor as ONNX has it, "NHWC" the same with channels last, "NCHW8c" the same with channels in blocks
of eight: physical shape (N, ceil(C / 8), H, W, 8). Lanes beyond the last channel hold no value; nothing reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.expansion import Expansion

_LETTERS = {1: "C", 2: "NC", 3: "NCW", 4: "NCHW", 5: "NCDHW"}


@dataclass(frozen=True)
class Layout:
    """A permutation of the logical axes and, innermost, a block of one of them.

    Attributes:
        order: logical axis that each physical dimension runs over, blocks left out.
        block: (logical axis, lanes) of the innermost dimension; None if nothing is blocked.
    """

    order: tuple[int, ...]
    block: tuple[int, int] | None = None

    @staticmethod
    def plain(rank: int) -> Layout:
        """The layout ONNX has: axes in order, nothing blocked."""
        return Layout(tuple(range(rank)))

    @staticmethod
    def blocked(rank: int, lanes: int, axis: int = 1) -> Layout:
        """Axes in order, `axis` in blocks of `lanes`: NCHW{lanes}c."""
        return Layout(tuple(range(rank)), (axis, lanes))

    @property
    def is_plain(self) -> bool:
        return self == Layout.plain(len(self.order))

    def __str__(self) -> str:
        letters = _LETTERS.get(len(self.order)) or "".join(chr(ord("a") + i) for i in range(len(self.order))).upper()
        name = "".join(letters[a] for a in self.order)
        return name + (f"{self.block[1]}{letters[self.block[0]].lower()}" if self.block else "")

    def permuted(self, axes: Sequence[int]) -> Layout:
        """The layout of transpose(x, axes), for an x in this layout, that has every element where it is."""
        where = {axis: i for i, axis in enumerate(axes)}
        block = (where[self.block[0]], self.block[1]) if self.block else None
        return Layout(tuple(where[a] for a in self.order), block)

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Physical shape of a tensor of the given logical shape."""
        if not self.block:
            return tuple(shape[a] for a in self.order)
        axis, lanes = self.block
        return (*(-(-shape[a] // lanes) if a == axis else shape[a] for a in self.order), lanes)

    def element_type(self, dtype: str) -> str:
        """The type of elements in memory, of a tensor of `dtype`."""
        return dtype

    def index(self, logical: Sequence[Any]) -> tuple[Any, ...]:
        """Physical index of a logical index; works on ints and on TIR expressions."""
        if not self.block:
            return tuple(logical[a] for a in self.order)
        axis, lanes = self.block
        outer = tuple(logical[a] // lanes if a == axis else logical[a] for a in self.order)
        return (*outer, logical[axis] % lanes)

    def logical(self, physical: Sequence[Any]) -> tuple[Any, ...]:
        """Logical index of a physical index: the inverse of :meth:`index`."""
        where = {a: physical[i] for i, a in enumerate(self.order)}
        if self.block:
            axis, lanes = self.block
            where[axis] = where[axis] * lanes + physical[-1]
        return tuple(where[a] for a in range(len(self.order)))

    def pack(self, array: np.ndarray) -> np.ndarray:
        """A logical array as it lies in memory; lanes without a value are zero."""
        if self.block:
            axis, lanes = self.block
            short = -array.shape[axis] % lanes
            if short:
                array = np.pad(array, [(0, short if a == axis else 0) for a in range(array.ndim)])
            array = array.reshape(*array.shape[:axis], -1, lanes, *array.shape[axis + 1 :])
            order = tuple(a if a <= axis else a + 1 for a in self.order)
            return np.ascontiguousarray(array.transpose(*order, axis + 1))
        return np.require(array.transpose(self.order), requirements="C")  # ascontiguousarray makes a vector of a scalar

    def compact(self, array: np.ndarray) -> tuple[np.ndarray, Expansion] | None:
        """A smaller form of :meth:`pack`'s result, and what expands it; None if there is none."""
        return None

    def unpack(self, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The logical array of `shape` back from memory."""
        out = np.empty(shape, array.dtype)
        grid = np.ogrid[tuple(slice(d) for d in shape)]
        out[...] = array[self.index(grid)]
        return out


class OpaqueLayout(Layout):
    """A layout that only the kernel of a tensor knows, which reads it through physical indices."""

    def index(self, logical: Sequence[Any]) -> tuple[Any, ...]:
        raise TypeError(f"{self}: a packed tensor is read by its kernel only, through physical indices")


def oihw(shape: Sequence[int], transposed: bool) -> tuple[int, int, int, int]:
    """(O, I, KH, KW) of the shape of a convolution's weight, or of a matmul's (O, I), or (I, O) if it is transposed."""
    o, i = (shape[1], shape[0]) if transposed else (shape[0], shape[1])
    return (o, i, *shape[2:]) if len(shape) == 4 else (o, i, 1, 1)  # type: ignore[return-value]


@dataclass(frozen=True)
class PackedWeight(OpaqueLayout):
    """A convolution or matmul weight, laid out for a kernel that streams it once.

    Logical (O, I, KH, KW) -> physical (blocks, I / inner, KH, KW, inner, out): OIHW{inner}i{out}o. A matmul
    weight is (O, I, 1, 1) after :attr:`transposed` takes (I, O). Outputs beyond O are zero.

    Attributes:
        inner: input channels that stand together; divides I.
        out: outputs that stand together: lanes times the register tile over outputs.
        blocks: blocks of `out` outputs; those beyond O are zero.
        transposed: whether the logical weight is (I, O), as in x @ w.
    """

    inner: int = 1
    out: int = 1
    blocks: int = 1
    transposed: bool = False

    @staticmethod
    def make(rank: int, inner: int, out: int, blocks: int, transposed: bool = False) -> PackedWeight:
        """For a logical weight of `rank` 4 (convolution) or 2 (matmul)."""
        return PackedWeight(tuple(range(rank)), None, inner, out, blocks, transposed)

    def __str__(self) -> str:
        axes = "OIHW" if len(self.order) == 4 else ("IO" if self.transposed else "OI")
        return f"{axes}{self.inner}i{self.out}o"

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        _, i, h, w = oihw(shape, self.transposed)
        return (self.blocks, i // self.inner, h, w, self.inner, self.out)

    def pack(self, array: np.ndarray) -> np.ndarray:
        if self.transposed:
            array = array.T
        o, i, h, w = array.shape if array.ndim == 4 else (*array.shape, 1, 1)
        short = self.blocks * self.out - o
        array = array.reshape(o, i, h, w)
        if short:
            array = np.concatenate([array, np.zeros((short, i, h, w), array.dtype)])
        array = array.reshape(-1, self.out, i // self.inner, self.inner, h, w)
        return np.ascontiguousarray(array.transpose(0, 2, 4, 5, 3, 1))


@dataclass(frozen=True)
class PackedGates(OpaqueLayout):
    """The recurrent weight of an RNN, GRU or LSTM, laid out for a kernel that streams it once a step.

    Logical (D, G * H, K) -> physical (D, ceil(H / lanes), K * G, lanes): for a block of `lanes` units, the weights of
    the gates that are computed together stand side by side, for one of the K inputs after the other. Units beyond H
    are zero.

    Attributes:
        gates: G.
        lanes: units of a block.
        first: gates that are computed together, before the others are.
    """

    gates: int = 1
    lanes: int = 1
    first: int = 1

    def __str__(self) -> str:
        return f"DGK{self.first}g{self.lanes}h"

    @property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """The gates that are computed together: (first of them, how many)."""
        left = self.gates - self.first
        return ((0, self.first), *(((self.first, left),) if left else ()))

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        directions, columns, inputs = shape
        return (directions, -(-(columns // self.gates) // self.lanes), inputs * self.gates, self.lanes)

    def pack(self, array: np.ndarray) -> np.ndarray:
        directions, columns, inputs = array.shape
        hidden = columns // self.gates
        array = array.reshape(directions, self.gates, hidden, inputs)
        array = np.pad(array, ((0, 0), (0, 0), (0, -hidden % self.lanes), (0, 0)))
        array = array.reshape(directions, self.gates, -1, self.lanes, inputs).transpose(0, 2, 4, 1, 3)
        parts = [array[:, :, :, first : first + count] for first, count in self.phases]
        joined = [part.reshape(*part.shape[:2], inputs * part.shape[3], self.lanes) for part in parts]
        return np.ascontiguousarray(np.concatenate(joined, axis=2))
