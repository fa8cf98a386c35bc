"""Determinants of small matrices."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import te

from ...core.graph.relax_graph import dtype_of
from ..checks.refusal import Refusal
from .base import Attributes, constant, converts, kernel, static_shape

#: Rows up to which Laplace's expansion is written out: 4 rows are 24 products.
_MOST_ROWS = 4


@converts("Det")
def determinant(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Det of the last two dimensions, by expansion along the first row."""
    *batch, rows, columns = static_shape(inputs[0], "the input of Det")
    if rows != columns or rows > _MOST_ROWS:
        raise Refusal(f"the determinant of {rows} x {columns} elements; up to {_MOST_ROWS} rows work")

    if not rows:  # of nothing: the empty product
        return constant(np.ones(batch), dtype_of(inputs[0]))

    def compute(data: te.Tensor) -> te.Tensor:
        if batch:
            return te.compute(batch, lambda *i: _expanded(lambda r, c: data(*i, r, c), 0, range(rows)), name="out")
        one = te.compute([1], lambda i: _expanded(lambda r, c: data(r + i, c), 0, range(rows)), name="flat")
        return te.compute([], lambda: one(0), name="out")

    return kernel(compute, inputs[0], name="determinant")


def _expanded(element: Callable[[int, int], Any], row: int, columns: Sequence[int]) -> Any:
    if len(columns) == 1:
        return element(row, columns[0])
    total = None
    for k, column in enumerate(columns):
        minor = _expanded(element, row + 1, [c for c in columns if c != column])
        term = element(row, column) * minor
        total = term if total is None else total - term if k % 2 else total + term
    return total
