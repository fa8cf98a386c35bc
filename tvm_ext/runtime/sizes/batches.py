"""Batches of any size, composed of those that programs were made for.

21 rows   ->   16 + 4 + 1        and 3 rows   ->   4, the last one repeated, where that costs less than 1 + 1 + 1
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from ..function import Function
from ..memory.arrays import Arrays, Places, aligned_empty
from ..memory.cache_lengths import IN_FRONT
from ..spec import Specs, TensorSpec


@functools.lru_cache(maxsize=1024)
def split_batch(rows: int, costs: tuple[tuple[int, float], ...]) -> tuple[int, ...]:
    """Sizes of programs that together take `rows` rows at the least cost, descending; the last may have rows to spare.

    Args:
        rows: 0 takes the smallest program, for outputs that do not depend on rows.
        costs: (size, cost of a call) of each program. A size that fits exactly is always taken.
    """
    prices = dict(costs)
    if rows in prices:
        return (rows,)
    if not rows:
        return (min(prices),)
    largest = max(prices)
    whole = max(0, rows // largest - 1)  # the choice is about the rest, which is less than two of the largest
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for count in range(1, rows - whole * largest + 1):
        options = ((best[max(0, count - size)], size) for size in sorted(prices, reverse=True))
        best.append(min(((cost + prices[size], (*sizes, size)) for (cost, sizes), size in options), key=lambda o: o[0]))
    return tuple(sorted((largest,) * whole + best[-1][1], reverse=True))


def run_composed(
    functions: Mapping[int, Function], sizes: Sequence[int], arrays: Arrays, inputs: Specs,
    outputs: Specs, rows: int, into: Places | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Run a batch piece by piece; each piece is read, and written, where it lies, if its memory is aligned.

    Args:
        functions: size of the batch -> its function.
        sizes: what :func:`split_batch` gave.
        arrays: one an input, of `rows` rows.
        inputs, outputs: symbolic specs.
        rows: size of the batch.
        into: one an output: memory for all its rows; None for memory of its own.
    """
    results = [None if o.batch_axis is None else aligned_empty(o.sizes_at(rows), o.numpy_dtype) if lent is None
               else lent for o, lent in zip(outputs, into or [None] * len(outputs), strict=True)]  # fmt: skip
    start = 0
    for size in sizes:
        stop = min(start + size, rows)
        fed = [_filled(_part(a, spec, start, stop), spec, size) for a, spec in zip(arrays, inputs, strict=True)]
        places = [None if r is None else _part(r, spec, start, stop) for r, spec in zip(results, outputs, strict=True)]
        function = functions[size]
        written = [p if p is not None and stop - start == size and function.takes(i, p) else None
                   for i, p in enumerate(places)]  # fmt: skip
        token = IN_FRONT.set({spec.name: start * spec.rows_each for spec in inputs})
        try:
            values = function.call(fed, written)
        finally:
            IN_FRONT.reset(token)
        for i, value in enumerate(values):
            place = places[i]
            if place is None:  # it does not depend on the rows
                results[i] = value
            elif value is not place:
                np.copyto(place, _part(value, outputs[i], 0, stop - start))
        start = stop
    return [result for result in results if result is not None]


def _part(array: np.ndarray, spec: TensorSpec, start: int, stop: int) -> np.ndarray:
    """The rows of an array from `start` to `stop`; the whole array if it has none."""
    axis = spec.batch_axis
    if axis is None:
        return array
    return array[(slice(None),) * axis + (slice(start * spec.rows_each, stop * spec.rows_each),)]


def _filled(part: np.ndarray, spec: TensorSpec, size: int) -> np.ndarray:
    """The part with its last row, or zeros, repeated until it has `size`: numbers that the model is made for."""
    axis, shape = spec.batch_axis, spec.sizes_at(size)
    if axis is None or part.shape == shape:
        return part
    whole, before, rows = aligned_empty(shape, part.dtype), (slice(None),) * axis, part.shape[axis]
    whole[(*before, slice(0, rows))] = part
    whole[(*before, slice(rows, None))] = part[(*before, slice(-1, None))] if rows else 0
    return whole
