"""Indices that stay within what they pick from, whatever a model or its inputs hold.

    GatherElements(x, i), x of n rows   ->   GatherElements(x, max(min(i, n - 1), -n))

TVM's kernels read, and write, foreign memory where an index is out of bounds. ONNX leaves such an index undefined and
onnxruntime refuses it when it runs; so does this library where it is known, and takes the nearest row where it is not.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of, numpy_of, shape_of
from ..base import Attributes, constant, emit, known, operands, static_shape

_NOTHING = "it picks from a dimension of size 0"
Extents = Callable[[Any, Attributes], "tuple[int, ...]"]
"""(inputs, attributes) -> rows that an index may mean; or one number for each coordinate, the last dimension."""


def in_bounds(op_type: str, inputs: Sequence[Any], attributes: Attributes) -> Any:
    """The inputs of a node with its indices in bounds.

    Raises:
        ValueError: an index that is known is not, or there is nothing to pick from.
    """
    if op_type == "Gather" and dtype_of(inputs[0]):  # its kernel clips, but not to no row
        shape, axis = shape_of(inputs[0]) or (1,), int(attributes.get("axis", 0))
        if shape[axis] == 0 and 0 not in (shape_of(inputs[1]) or ()):
            raise ValueError(_NOTHING)
    if op_type not in INDICES:
        return inputs
    new = operands(inputs)
    for number, extents in INDICES[op_type].items():
        if inputs[number] is not None:
            new[number] = _inside(inputs[number], extents(inputs, attributes))
    return new


def _inside(indices: Any, extents: tuple[int, ...]) -> Any:
    high = np.array(extents if len(extents) != 1 else extents[0], np.int64)
    count = math.prod(shape_of(indices) or (1,))
    if count and not high.all():
        raise ValueError(_NOTHING)
    values = numpy_of(indices)
    if values is not None:
        wrong = values[(values < -high) | (values >= high)]
        if wrong.size:
            raise ValueError(f"index {wrong.flat[0]} is out of bounds: {', '.join(map(str, extents))} rows are there")
        return indices
    dtype = dtype_of(indices)
    if not count or not dtype:
        return indices
    low = constant(-high if not dtype.startswith("u") else 0 * high, dtype)
    return emit(relax.op.maximum(relax.op.minimum(indices, constant(high - 1, dtype)), low))


def _rows(data: int, axis: int | None = None) -> Extents:
    """Rows of input `data`, along an axis, or along the attribute "axis"."""

    def extents(inputs: Any, attributes: Attributes) -> tuple[int, ...]:
        shape = static_shape(inputs[data], "what it picks from")
        return (shape[int(attributes.get("axis", 0)) if axis is None else axis],)

    return extents


def _coordinates(inputs: Any, attributes: Attributes) -> tuple[int, ...]:
    """Of GatherND and ScatterND: an index is a vector, of one number for each of the first dimensions."""
    skipped = int(attributes.get("batch_dims", 0))
    shape, length = static_shape(inputs[0], "what it picks from"), static_shape(inputs[1], "its indices")[-1]
    return shape[skipped : skipped + length] if length else (1,)


def _unpooled(inputs: Any, attributes: Attributes) -> tuple[int, ...]:
    """Of MaxUnpool: an index counts the elements of the whole result."""
    if inputs[2] is not None:
        return (math.prod(map(int, known(inputs[2], "output_shape"))),)
    shape, kernel = static_shape(inputs[0], "what is unpooled"), list(attributes["kernel_shape"])
    strides, pads = attributes.get("strides", [1] * len(kernel)), attributes.get("pads", [0] * 2 * len(kernel))
    padded = [pads[i] + pads[i + len(kernel)] for i in range(len(kernel))]
    outs = [(n - 1) * s + k - p for n, s, k, p in zip(shape[2:], strides, kernel, padded, strict=True)]
    return (math.prod(shape[:2]) * math.prod(outs),)


def _axis(inputs: Any, attributes: Attributes) -> tuple[int, ...]:
    """Of CumSum: an axis of the first input."""
    return (len(static_shape(inputs[0], "what is summed")),)


#: Operator -> number of an input of indices -> what they count.
INDICES: dict[str, dict[int, Extents]] = {
    "CumSum": {1: _axis},
    "EmbedLayerNormalization": {0: _rows(2, 0), 1: _rows(4, 0), 8: _rows(3, 0)},
    "GatherElements": {1: _rows(0)},
    "GatherND": {1: _coordinates},
    "MaxUnpool": {1: _unpooled},
    "RoiAlign": {2: _rows(0, 0)},
    "Scatter": {1: _rows(0)},
    "ScatterElements": {1: _rows(0)},
    "ScatterND": {1: _coordinates},
}
