"""Output-stationary array, register by register: sums stay in the PEs, both operands stream through.

::

                         B[t, 0]        B[t, 1]           row t of B in clock t, column c skewed by c clocks
                       |              |
                    +--v---------+ +--v---------+
      A[0, t] ----->| right ------>| right ------->       every clock, in PE (r, c):
      first, last   | down       | | down       |           right <- right of the PE to the left, with its bits
                    | total      | | total      |           down  <- down of the PE above
                    | held       | | held       |           total <- (0 if `first`, else total) + right * down, as they
                    | out        | | out        |                    arrive
                    +------------+ +------------+           held  <- that total, if `last`
      A[1, t] ----->   ...            ...                   out   <- out of the PE above (held, when a drain begins)
                       |              |
                       v accumulator memory: C[R-1, c], C[R-2, c], ..., C[0, c], column c after column c - 1

The bottom PE of a column finishes last; from the next clock on the column shifts its R results out, R clocks. The sums
of the next fold are in other registers (`total`), so they grow behind the drain; `held` keeps a result that is
finished while the column still waits for its bottom PE, or for the last fold's drain.

    clock           0 .. T-1            R-1 + C-1 clocks later            R clocks more
    4 x 4, T = 8    row 0 of A enters   the far PE adds its last product  the far column is empty: 2R + C + T - 2 in all
"""

from __future__ import annotations

import numpy as np

from .array_edges import AccumulatorMemory, Port, Product, Skew, padded


class OutputArray:
    """The registers of rows x cols PEs, named as in the drawing above; `right` holds value, first and last.

    Args:
        dtype: of all arithmetic: int32, which wraps, or float32.
        product: of what moves right and what moves down.
    """

    def __init__(self, rows: int, cols: int, dtype: np.dtype, product: Product = np.multiply) -> None:
        self._product = product
        self.down, self.total, self.held, self.out = np.zeros((4, rows, cols), dtype)
        self.right = np.zeros((3, rows, cols), dtype)
        self.left_to_drain = np.zeros(cols, np.int64)  #: results of a column that have not left yet

    def clock(self, left: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Moves every register once.

        Args:
            left: (3, rows) value, first bit and last bit that enter each row.
            top: (cols,) value that enters each column.

        Returns:
            (cols,) which columns deliver a result in this clock, and (cols,) the results.
        """
        rows = len(self.down)
        draining, leaving = self.left_to_drain > 0, np.where(self.left_to_drain == rows, self.held, self.out)
        right = np.concatenate([left[:, :, None], self.right[:, :, :-1]], axis=2)
        down = np.concatenate([top[None], self.down[:-1]])
        value, first, last = right
        self.total = np.where(first, 0, self.total) + self._product(value, down)
        self.held = np.where(last, self.total, self.held)
        self.out = np.concatenate([np.zeros_like(leaving[:1]), leaving[:-1]])
        self.left_to_drain = np.where(last[-1], rows, np.maximum(self.left_to_drain - 1, 0))
        self.right, self.down = right, down
        return draining, leaving[-1]


class OutputRun:
    """The sequencer: feeds result[S_r, S_c] += a[S_r, T] b[T, S_c] to the array, fold by fold.

    Args:
        a, b: operands in the dtype of the arithmetic.
        result: (S_r, S_c) what the products are added to, changed in place.
        overlapped: whether the next fold streams in behind this one, or after its last result.
        product: of a value of a and one of b.
    """

    def __init__(
        self, a: np.ndarray, b: np.ndarray, result: np.ndarray, rows: int, cols: int, overlapped: bool,
        product: Product = np.multiply,
    ) -> None:  # fmt: skip
        self._rows, self._overlapped, self._result = rows, overlapped, result
        self._a, self._b = padded(a, rows, 1), padded(b, 1, cols)
        self._corners = [(r, c) for r in range(0, len(a), rows) for c in range(0, b.shape[1], cols)]
        self._sums = padded(result, rows, cols)
        self._memory = AccumulatorMemory(self._sums, self._corners, np.arange(rows)[::-1], cols)
        self._array = OutputArray(rows, cols, result.dtype, product)
        self._port = Port(len(b))
        self._left, self._top = Skew(rows, 3, result.dtype), Skew(cols, 1, result.dtype)
        self._since_begin = rows

    @property
    def folds(self) -> int:
        return len(self._corners)

    def clock(self) -> bool:
        """One clock of everything; whether this was the last one."""
        if self._port.is_free and self._port.begun < self.folds and self._may_begin():
            self._port.begin()
            self._since_begin = 0
        self._since_begin += 1
        left, top = self._next_step()
        self._memory.clock(*self._array.clock(self._left.clock(left), self._top.clock(top)[0]))
        done = self._memory.has_finished(self.folds)
        if done:
            height, width = self._result.shape
            self._result[:] = self._sums[:height, :width]
        return done

    def _may_begin(self) -> bool:
        """A column drains R clocks, so folds that begin R clocks apart or more find it empty."""
        return self._since_begin >= self._rows if self._overlapped else self._memory.has_finished(self._port.begun)

    def _next_step(self) -> tuple[np.ndarray, np.ndarray]:
        """(3, rows) the column of a of this clock, first and last bits; (1, cols) the row of b."""
        left = np.zeros((3, self._rows), self._result.dtype)
        top = np.zeros((1, self._array.down.shape[1]), self._result.dtype)
        if (at := self._port.take()) is not None:
            (row, column), step = self._corners[at[0]], at[1]
            left[0] = self._a[row : row + self._rows, step]
            left[1], left[2] = step == 0, step == len(self._b) - 1
            top[0] = self._b[step, column : column + top.shape[1]]
        return left, top
