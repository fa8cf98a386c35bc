"""Weight- and input-stationary array, register by register: one operand lies in the PEs, the other streams through.

::

                    stationary values S[r, c], row R-1 first, column c skewed by c clocks
                       |              |
                    +--v---------+ +--v---------+
      X[t, 0] ----->| down       | | down       |         every clock, in PE (r, c):
      valid, first  | shadow     | | shadow     |           down    <- down of the PE above      (fills the array)
                    | weight     | | weight     |           shadow  <- what goes into down, if the column latches
                    | stream ----->| stream ----->          weight  <- shadow, if `first` arrives with the value
                    | sum        | | sum        |           stream  <- stream of the PE to the left
                    +--v---------+ +--v---------+           sum     <- sum of the PE above + value * weight
      X[t, 1] ----->   ...            ...
                       |              |
                       v accumulator memory: C[t, c], column c after column c - 1

The rows of S fall into place in R clocks; a latch bit that comes with the last of them makes the column keep them in
its shadow registers. So the next fold's values come in behind the stream of this one, and the `first` bit, which moves
right with the first value of a stream, changes each PE over when the new stream reaches it and not before. In the last
row the accumulator memory stands in the place of the sum register.

    clock           0 .. R-1        R .. R+T-1                 the last value of the last column
    4 x 4, T = 8    S falls         X enters row 0             R-1 + C-1 clocks after it entered: 2R + C + T - 2 in all
"""

from __future__ import annotations

import numpy as np

from .array_edges import AccumulatorMemory, Port, Product, Skew, padded


class StationaryArray:
    """The registers of rows x cols PEs, named as in the drawing above; `stream` holds value, valid and first.

    Args:
        dtype: of all arithmetic: int32, which wraps, or float32.
        product: of what streams by and what stays.
    """

    def __init__(self, rows: int, cols: int, dtype: np.dtype, product: Product = np.multiply) -> None:
        self._product = product
        self.down, self.shadow, self.weight, self.sum = np.zeros((4, rows, cols), dtype)
        self.stream = np.zeros((3, rows, cols), dtype)

    def clock(self, left: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Moves every register once.

        Args:
            left: (3, rows) value, valid bit and first bit that enter each row.
            top: (2, cols) stationary value and latch bit that enter each column.

        Returns:
            (cols,) which columns deliver a sum in this clock, and (cols,) the sums.
        """
        stream = np.concatenate([left[:, :, None], self.stream[:, :, :-1]], axis=2)
        down = np.concatenate([top[:1], self.down[:-1]])
        value, valid, first = stream
        self.weight = np.where(first, self.shadow, self.weight)
        self.sum = _below(self.sum) + self._product(value, self.weight)
        self.shadow = np.where(top[1], down, self.shadow)
        self.stream, self.down = stream, down
        return valid[-1] != 0, self.sum[-1]


def _below(sums: np.ndarray) -> np.ndarray:
    """What each PE gets from the one above; nothing is above the first row."""
    return np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])


class StationaryRun:
    """The sequencer: feeds result[T, S_c] += stream[T, S_r] stationary[S_r, S_c] to the array, fold by fold.

    The folds of one block of columns come one after the other; the accumulator memory adds them up.

    Args:
        stationary, stream: operands in the dtype of the arithmetic.
        result: (T, S_c) what the products are added to, changed in place.
        overlapped: whether the next fold's values come in behind this one's stream, or after its last result.
        product: of what streams by and what stays.
    """

    def __init__(
        self, stationary: np.ndarray, stream: np.ndarray, result: np.ndarray, rows: int, cols: int, overlapped: bool,
        product: Product = np.multiply,
    ) -> None:  # fmt: skip
        self._rows, self._overlapped, self._result = rows, overlapped, result
        self._stationary = padded(stationary, rows, cols)
        self._stream = padded(stream, 1, rows)
        self._corners = [
            (r, c) for c in range(0, stationary.shape[1], cols) for r in range(0, stationary.shape[0], rows)
        ]
        self._sums = padded(result, 1, cols)
        self._memory = AccumulatorMemory(self._sums, [(0, c) for _, c in self._corners], np.arange(len(stream)), cols)
        self._array = StationaryArray(rows, cols, result.dtype, product)
        self._weight_port, self._stream_port = Port(rows), Port(len(stream))
        self._top, self._left = Skew(cols, 2, result.dtype), Skew(rows, 3, result.dtype)

    @property
    def folds(self) -> int:
        return len(self._corners)

    def clock(self) -> bool:
        """One clock of everything; whether this was the last one."""
        if self._stream_port.is_free and self._weight_port.finished > self._stream_port.begun:
            self._stream_port.begin()
        if self._weight_port.is_free and self._weight_port.begun < self.folds and self._may_load():
            self._weight_port.begin()
        left, top = self._left.clock(self._next_stream()), self._top.clock(self._next_weights())
        self._memory.clock(*self._array.clock(left, top))
        done = self._memory.has_finished(self.folds)
        if done:
            self._result[:] = self._sums[:, : self._result.shape[1]]
        return done

    def _may_load(self) -> bool:
        """The shadow registers are free once every loaded fold has begun to stream: `first` runs ahead of the latch."""
        if self._overlapped:
            return self._stream_port.begun == self._weight_port.begun
        return self._memory.has_finished(self._weight_port.begun)

    def _next_weights(self) -> np.ndarray:
        """(2, cols) the row of stationary values of this clock, last row first, and the latch bit."""
        vector = np.zeros((2, self._array.weight.shape[1]), self._result.dtype)
        if (at := self._weight_port.take()) is not None:
            (row, column), from_below = self._corners[at[0]], self._rows - 1 - at[1]
            vector[0] = self._stationary[row + from_below, column : column + vector.shape[1]]
            vector[1] = from_below == 0
        return vector

    def _next_stream(self) -> np.ndarray:
        """(3, rows) the step of this clock for each row of the array, valid and first bits."""
        vector = np.zeros((3, self._rows), self._result.dtype)
        if (at := self._stream_port.take()) is not None:
            row = self._corners[at[0]][0]
            vector[0] = self._stream[at[1], row : row + self._rows]
            vector[1], vector[2] = 1, at[1] == 0
        return vector
