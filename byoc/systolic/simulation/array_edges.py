"""What stands around the PEs in the stepper: skew registers, ports that feed folds, the accumulator memory.

Operands come as whole vectors, a vector a clock; lane i must enter the array i clocks after lane 0, so that what
belongs together meets in every PE (Kung, "Why systolic architectures?", 1982). A triangle of registers does it::

    vector of clock t   lane 0  ------------------> PE row 0 in clock t
                        lane 1  -[reg]------------> PE row 1 in clock t + 1
                        lane 2  -[reg]-[reg]------> PE row 2 in clock t + 2
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: What a PE computes of the values in two of its registers, which it adds to a sum.
Product = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Skew:
    """The triangle of registers at one edge; control bits travel with the values, as further fields of a lane.

    Args:
        lanes: rows (left edge) or columns (top edge) of the array.
        fields: values a lane carries.
        dtype: of the values; control bits are 0 and 1 in it.
    """

    def __init__(self, lanes: int, fields: int, dtype: np.dtype) -> None:
        self._stages = np.zeros((lanes, fields, lanes), dtype)  # [clocks ago, field, lane]
        self._lanes = np.arange(lanes)

    def clock(self, vector: np.ndarray) -> np.ndarray:
        """Takes a vector (fields, lanes), gives what each lane hands to its PE in this clock, in the same shape."""
        self._stages[1:] = self._stages[:-1]
        self._stages[0] = vector
        return self._stages[self._lanes, :, self._lanes].T


class Port:
    """Feeds the vectors of one fold after the other, a vector a clock, each fold when it is told to begin.

    Args:
        length: vectors of a fold.
    """

    def __init__(self, length: int) -> None:
        self.begun = 0
        self._length = length
        self._position = length

    @property
    def is_free(self) -> bool:
        return self._position == self._length

    @property
    def finished(self) -> int:
        """Folds whose last vector was taken in an earlier clock."""
        return self.begun if self.is_free else self.begun - 1

    def begin(self) -> None:
        self.begun += 1
        self._position = 0

    def take(self) -> tuple[int, int] | None:
        """(fold, position in it) of the vector of this clock; None while the port has nothing to feed."""
        if self.is_free:
            return None
        self._position += 1
        return self.begun - 1, self._position - 1


class AccumulatorMemory:
    """Adds what leaves the bottom of the array to the result; a column delivers its folds in order.

    Args:
        values: (S_1, S_2) results, both padded to whole folds, changed in place.
        corners: (row, column) of each fold's block.
        order: row within the block of a column's first, second, ... delivery.
        cols: columns of the array.
    """

    def __init__(self, values: np.ndarray, corners: list[tuple[int, int]], order: np.ndarray, cols: int) -> None:
        self._values = values
        self._corners = np.array(corners)
        self._order = order
        self._delivered = np.zeros(cols, np.int64)

    def clock(self, arriving: np.ndarray, sums: np.ndarray) -> None:
        """Writes the sums (cols,) of those columns that deliver in this clock, `arriving` (cols,) of bool."""
        lanes = np.flatnonzero(arriving)
        if lanes.size == 0:
            return
        fold, position = np.divmod(self._delivered[lanes], len(self._order))
        corner = self._corners[fold]
        self._values[corner[:, 0] + self._order[position], corner[:, 1] + lanes] += sums[lanes]
        self._delivered[lanes] += 1

    def has_finished(self, folds: int) -> bool:
        """Whether every column has delivered this many folds."""
        return int(self._delivered.min()) >= folds * len(self._order)


def padded(values: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """A copy with zeros behind, to whole multiples of rows and cols: PEs without work multiply zeros."""
    height, width = values.shape
    return np.pad(values, ((0, -height % rows), (0, -width % cols)))
