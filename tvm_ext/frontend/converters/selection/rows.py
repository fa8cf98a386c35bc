"""Operators that pick elements by index."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import numpy_of, shape_of
from ..base import Attributes, converts


@converts("Gather")
def gather(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Gather(x, i) -> take that wraps around: -1 is the last row, and no index leaves the tensor.

    Stock TVM emits a `take` whose kernel reads foreign memory where an index is out of bounds (and says so on
    stderr). ONNX defines indices from -n to n - 1; constant ones are checked here.
    """
    data, indices = inputs[0], inputs[1]
    if isinstance(data, relax.ShapeExpr):
        data = relax.op.shape_to_tensor(data)
    if isinstance(indices, relax.ShapeExpr):
        indices = relax.op.shape_to_tensor(indices)
    axis, shape = int(attributes.get("axis", 0)), shape_of(data)
    known = numpy_of(indices)
    if known is not None and shape is not None:
        indices = relax.const(_row_numbers(known, shape[axis]), str(known.dtype))
    return relax.op.take(data, indices, axis, mode="wrap")


def _row_numbers(indices: np.ndarray, rows: int) -> np.ndarray:
    wrong = indices[(indices < -rows) | (indices >= rows)]
    if wrong.size:
        raise ValueError(f"index {wrong.flat[0]} lies outside -{rows} .. {rows - 1}")
    return np.where(indices < 0, indices + rows, indices).astype(indices.dtype)
