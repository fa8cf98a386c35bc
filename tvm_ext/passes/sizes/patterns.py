"""Constants of any number of elements that follow a rule: masks along diagonals, and positions.

    mask[i, j] = 0 where j <= i + 36, else -inf, at P = 36      ->   select(j - i <= P, 0, -inf)
    positions[i] = i + 36, or i + 36.5, at P = 36               ->   i + P, i + P + 0.5

What the rule has of numbers becomes expressions over the sizes, as in all kernels that no recipe made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

#: Values along a diagonal profile, at most: a mask has two, one of a window three.
_MOST_RUNS = 3


@dataclass(frozen=True)
class Pattern:
    """A rule for the elements of an array, of their indices.

    Attributes:
        kind: what is the same in arrays of one rule at all sizes: values of a mask, steps of positions.
        numbers: what may differ with the sizes: of a mask the last diagonal, j - i, of each value but the last one; of
            positions the first.
    """

    kind: tuple[Any, ...]
    numbers: tuple[int, ...]

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """The elements of an array of this shape."""
        indices = np.indices(shape)
        if self.kind[0] == "steps":
            steps = (step * axis for step, axis in zip(self.kind[1], indices, strict=True))
            return np.asarray(sum(steps, start=np.int64(self.numbers[0])) + self.kind[2], dtype)
        diagonal = indices[-1] - (indices[-2] if len(shape) > 1 else 0)
        return np.array(self.kind[1], dtype)[np.searchsorted(self.numbers, diagonal)]

    def kernel(self, shape: Sequence[int], dtype: str) -> tirx.PrimFunc:
        """A kernel that stores such an array."""

        def element(*index: Any) -> Any:
            at = [axis.astype("int64") for axis in index]
            if self.kind[0] == "steps":
                steps = (axis * step for axis, step in zip(at, self.kind[1], strict=True))
                whole = sum(steps, start=tirx.IntImm("int64", self.numbers[0])).astype(dtype)
                return whole + tirx.const(self.kind[2], dtype) if self.kind[2] else whole
            diagonal = at[-1] - at[-2] if len(at) > 1 else at[-1]
            *values, result = (tirx.const(value, dtype) for value in self.kind[1])
            for last, value in reversed(list(zip(self.numbers, values, strict=True))):
                result = tirx.Select(diagonal <= tirx.IntImm("int64", last), value, result)
            return result

        out = te.compute([tirx.IntImm("int64", size) for size in shape], element, name="constant")
        return te.create_prim_func([out]).without_attr("global_symbol")


def pattern_of(array: np.ndarray) -> Pattern | None:
    """The rule that an array follows; None if it is none that is known, or the array is empty."""
    if not array.ndim or not array.size:
        return None
    return _steps(array) or _diagonals(array)


def _steps(array: np.ndarray) -> Pattern | None:
    """Numbers that grow by one whole step an axis, from any number on."""
    if array.dtype.kind not in "iuf" or not np.all(np.isfinite(array)):
        return None
    first = math.floor(array.flat[0])
    beyond = float(array.flat[0]) - first
    nexts = [array[(0,) * axis + (1,) + (0,) * (array.ndim - axis - 1)] if array.shape[axis] > 1 else array.flat[0]
             for axis in range(array.ndim)]  # fmt: skip
    pattern = Pattern(("steps", tuple(math.floor(after) - first for after in nexts), beyond), (first,))
    return pattern if np.array_equal(pattern.array(array.shape, str(array.dtype)), array) else None


def _diagonals(array: np.ndarray) -> Pattern | None:
    """Values that are the same along each diagonal of the last two axes, and in all matrices; few runs of them."""
    if array.dtype.kind not in "biuf":
        return None
    matrix = array.reshape(-1, *array.shape[-2:])[0] if array.ndim > 1 else array[None]
    profile = np.concatenate([matrix[:0:-1, 0], matrix[0]])
    ends = np.flatnonzero(profile[1:] != profile[:-1])
    if len(ends) >= _MOST_RUNS:
        return None
    values = tuple(profile[[*ends, -1]].tolist())
    pattern = Pattern(("diagonals", values), tuple(int(end) - len(matrix) + 1 for end in ends))
    return pattern if np.array_equal(pattern.array(array.shape, str(array.dtype)), array) else None


def patterns_of(arrays: Sequence[np.ndarray]) -> list[Pattern] | None:
    """The rule of each array, where all follow one of a kind; None if they do not."""
    patterns = [pattern_of(array) for array in arrays]
    first = patterns[0]
    if first is None or any(rule is None or rule.kind != first.kind for rule in patterns):
        return None
    return [rule for rule in patterns if rule is not None]
