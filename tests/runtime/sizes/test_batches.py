"""Batches composed of the sizes that programs were made for: which pieces, and how they are read and written."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tvm_ext.runtime.memory.arrays import aligned_empty
from tvm_ext.runtime.sizes.batches import run_composed, split_batch
from tvm_ext.runtime.spec import TensorSpec

LINEAR = ((1, 1.0), (4, 4.0), (16, 16.0))
STREAMING = ((1, 10.0), (4, 11.0), (16, 14.0))  # the weights cost more than the rows


@pytest.mark.parametrize(
    ("rows", "costs", "sizes"),
    [
        (1, LINEAR, (1,)),
        (16, STREAMING, (16,)),
        (4, ((1, 1.0), (4, 9.0)), (4,)),  # a size that was asked for is used, whatever it costs
        (21, LINEAR, (16, 4, 1)), (3, LINEAR, (1, 1, 1)), (3, STREAMING, (4,)), (33, LINEAR, (16, 16, 1)),
        (33, STREAMING, (16, 16, 1)), (7, STREAMING, (16,)), (2, ((4, 4.0),), (4,)),
        (9, ((4, 4.0), (6, 6.0)), (6, 4)), (0, LINEAR, (1,)),
    ],
)  # fmt: skip
def test_pieces(rows: int, costs: tuple[tuple[int, float], ...], sizes: tuple[int, ...]) -> None:
    assert split_batch(rows, costs) == sizes


@pytest.mark.parametrize("costs", [LINEAR, STREAMING, ((3, 2.0), (5, 4.0))])
def test_pieces_cover_all_rows_and_only_the_last_has_some_to_spare(costs: Any) -> None:
    for rows in range(1, 200):
        sizes = split_batch(rows, costs)
        assert sum(sizes) >= rows > sum(sizes[:-1]) and list(sizes) == sorted(sizes, reverse=True)


class Doubles:
    """Stands for a compiled function: y = 2 x, and the sum of a vector that is no batch. Notes what it was given."""

    def __init__(self, size: int, takes: bool) -> None:
        self.size, self.calls, self._takes = size, [], takes

    def takes(self, output: int, memory: np.ndarray) -> bool:
        return self._takes and memory.ctypes.data % 64 == 0

    def call(self, arrays: Sequence[np.ndarray], into: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, shared = arrays
        assert x.shape[0] == self.size
        self.calls.append((x, into[0]))
        y = into[0] if into[0] is not None else np.full((2 * self.size, 8), np.nan, np.float32)
        y[...] = 2 * x.reshape(-1, 8)
        return [y, shared.sum(keepdims=True)]


SPECS = [TensorSpec("x", ("N", 2, 8), "float32"), TensorSpec("shared", (3,), "float32")]
OUTPUTS = [TensorSpec("y", ("2*N", 8), "float32"), TensorSpec("sum", (1,), "float32")]


@pytest.mark.parametrize("takes", [True, False])
def test_rows_are_read_and_written_where_they_lie(takes: bool) -> None:
    x = aligned_empty((11, 2, 8), "float32")
    x[...] = np.random.default_rng(0).standard_normal(x.shape)
    functions: dict[int, Any] = {4: Doubles(4, takes), 2: Doubles(2, takes)}
    y, total = run_composed(functions, (4, 4, 2, 2), [x, np.float32([1, 2, 4])], SPECS, OUTPUTS, 11)
    assert np.array_equal(y, 2 * x.reshape(22, 8)) and total == [7]
    calls = functions[4].calls + functions[2].calls
    assert all(np.shares_memory(part, x) for part, _ in calls[:3])
    assert [into is not None and np.shares_memory(into, y) for _, into in calls] == [takes] * 3 + [False]
    spare, _ = calls[-1]
    assert np.array_equal(spare[1], x[10]), "the last row once more, not numbers the model was never made for"
