"""How tensors of any rank are batches of matrices: which axes are batch, rows and columns, and with what strides.

    matmul  [2, 8, 100, 64]           ->  batch (2, 8), rows (100,), columns (64,)
    conv2d  [2, 32, 56, 56], 4 groups ->  split to [2, 4, 8, 56, 56]: batch (2, 4), rows (56, 56), columns (8,)

An operand of an epilogue has the axes of the result: it is seen in the same form, by its own strides.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ....core.errors import ProgramError
from ..code.layer import Matrix
from .operands import View


@dataclass(frozen=True)
class Form:
    """A tensor's shape as a batch of matrices.

    Attributes:
        shape: of the tensor.
        batch, rows, cols: axes of the split shape.
        groups: where above 1, axis 1 is split to (groups, size / groups) first.
    """

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    groups: int = 0

    @property
    def split(self) -> tuple[int, ...]:
        """The shape, with axis 1 split."""
        if not self.groups:
            return self.shape
        return (self.shape[0], self.groups, self.shape[1] // self.groups, *self.shape[2:])

    def size(self, axes: tuple[int, ...]) -> int:
        """How many elements lie along these axes together."""
        return math.prod(self.split[axis] for axis in axes)

    def matrix(self, view: View) -> Matrix:
        """A view, broadcast to the shape, as a batch of matrices.

        Raises:
            ProgramError: it does not broadcast, or no strides of one load say how.
        """
        strides = self._split_strides(view.broadcast(self.shape).strides)
        row, col = (self._joined(view, axes, strides) for axes in (self.rows, self.cols))
        batches, repeat, stride = self._batches(view, strides)
        return Matrix(view.tensor, row, col, stride, batches, repeat=repeat)

    def row(self, values: np.ndarray) -> np.ndarray | None:
        """A constant that is the same for all rows, as [n] or [batches, n]; None if it differs from row to row."""
        rank = len(self.shape)
        if values.ndim > rank or any(
            size not in (1, whole) for size, whole in zip(values.shape[::-1], self.shape[::-1], strict=False)
        ):
            return None
        values = values.reshape((1,) * (rank - values.ndim) + values.shape)
        if self.groups:
            parts = (1, 1) if values.shape[1] == 1 else (self.groups, values.shape[1] // self.groups)
            values = values.reshape((values.shape[0], *parts, *values.shape[2:]))
        if any(values.shape[axis] != 1 for axis in self.rows):
            return None
        return self._by_batch(values)

    def _by_batch(self, values: np.ndarray) -> np.ndarray:
        """[n], or [batches, n]: leading batch axes along which all is the same need no copy."""
        own = list(self.batch)
        while own and values.shape[own[0]] == 1:
            own.pop(0)
        axes = (*(axis for axis in self.batch if axis not in own), *self.rows, *own, *self.cols)
        shape = [self.split[axis] for axis in (*own, *self.cols)]
        rest = values.transpose(axes).reshape([values.shape[axis] for axis in (*own, *self.cols)])
        full = np.broadcast_to(rest, shape)
        n = self.size(self.cols)
        return np.ascontiguousarray(full.reshape(-1, n) if own else full.reshape(n))

    def _split_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        if not self.groups:
            return strides
        return (strides[0], strides[1] * (self.shape[1] // self.groups), *strides[1:])

    def _joined(self, view: View, axes: tuple[int, ...], strides: tuple[int, ...]) -> int:
        """The one stride with which all of these axes are walked through."""
        wide = [axis for axis in axes if self.split[axis] > 1]
        for outer, inner in itertools.pairwise(wide):
            if strides[outer] != strides[inner] * self.split[inner]:
                raise ProgramError(f"{view.value}: no load walks through it in the order of {list(self.shape)}")
        return strides[wide[-1]] if wide else 1

    def _batches(self, view: View, strides: tuple[int, ...]) -> tuple[int, int, int]:
        """(matrices, how often each is repeated, stride between them)."""
        axes = [axis for axis in self.batch if self.split[axis] > 1]
        own = [axis for axis in axes if strides[axis]]
        if not own:
            return 1, 1, 0
        span = axes[axes.index(own[0]) : axes.index(own[-1]) + 1]
        stride = self._joined(view, tuple(span), strides)  # an axis between them that is broadcast breaks the chain
        repeat = math.prod(self.split[axis] for axis in axes[axes.index(own[-1]) + 1 :])
        return math.prod(self.split[axis] for axis in span), repeat, stride


def matmul_forms(shape: tuple[int, ...]) -> tuple[Form, ...]:
    """Of the result of a matmul: all rows of a batch as those of one matrix, which is better if B allows it; then a
    matrix each."""
    rank = len(shape)
    leading = tuple(range(rank - 1))
    return Form(shape, (), leading, (rank - 1,)), Form(shape, leading[:-1], leading[-1:], (rank - 1,))


def conv2d_form(shape: tuple[int, ...], groups: int) -> Form:
    """Of the result of a convolution, NCHW: pixels are rows, the channels of a group are columns."""
    return Form(shape, (0, 1), (3, 4), (2,), groups)
