"""Lengths and magnitudes of what ONNX operators sum, from the values they read where these are known.

The magnitude of a value bounds sum |x_i| |w_i| of what made it: then :mod:`.tolerance` bounds the rounding, whatever
cancels. Through a chain of operators it is carried on by numbers; where an operand's array is known, its norm is taken.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ..frontend.reading.walk import attribute
from ..ops import Kind, of
from ..runtime.memory.arrays import NamedArrays
from .tolerance import FUNCTION_LENGTH

#: Roundings that passes add: a constant that was put together of several, a division that is a product.
FOLDED = 4


@dataclass(frozen=True)
class Chain:
    """Nodes that one kernel computes, in an order in which they can run.

    Attributes:
        arrays: ONNX value -> its array, of values that are known.
    """

    nodes: Sequence[onnx.NodeProto]
    arrays: NamedArrays

    def length(self) -> int:
        """Steps of all sums, one behind the other; 0 if values are only moved."""
        total = sum(_LENGTHS[of(node.op_type).rounding](node, self.arrays) for node in self.nodes)
        return total + FOLDED if total else 0

    def magnitude(self, value: str) -> float:
        """A bound on the magnitudes behind a value."""
        known: dict[str, float] = {}

        def behind(name: str) -> float:
            return known[name] if name in known else largest(self.arrays.get(name))

        for node in self.nodes:
            bound = _magnitude_of(node)(node, _Operands(node, self.arrays, behind))
            known.update(dict.fromkeys(filter(None, node.output), bound))
        return max(behind(value), largest(self.arrays.get(value)))


@dataclass(frozen=True)
class _Operands:
    """Operands of a node: arrays where they are known, and magnitudes."""

    node: onnx.NodeProto
    arrays: NamedArrays
    of: Callable[[str], float]

    def array(self, index: int) -> np.ndarray | None:
        """An operand in float64, without what is not finite; None if it is not known."""
        known = self.arrays.get(self.node.input[index]) if index < len(self.node.input) else None
        if known is None:
            return None
        return np.nan_to_num(np.asarray(known, np.float64), nan=0.0, posinf=0.0, neginf=0.0)

    def magnitude(self, index: int) -> float:
        there = index < len(self.node.input) and self.node.input[index]
        return self.of(self.node.input[index]) if there else 0.0


def largest(array: np.ndarray | None) -> float:
    """The largest magnitude of the finite elements of an array; 0 of one that is not known, or holds no numbers."""
    if array is None or (array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16"):
        return 0.0
    finite = np.asarray(array, np.float64)
    return float(np.abs(finite[np.isfinite(finite)]).max(initial=0.0))


# ------------------------------------------------------------ lengths
def _shape(node: onnx.NodeProto, index: int, arrays: NamedArrays) -> tuple[int, ...]:
    known = arrays.get(node.input[index]) if index < len(node.input) else None
    return () if known is None else known.shape


def _of_transposed(node: onnx.NodeProto, arrays: NamedArrays) -> int:
    weight = _shape(node, 1, arrays)
    return max(1, math.prod((*weight[:1], *weight[2:]))) + 1


def _of_product(node: onnx.NodeProto, arrays: NamedArrays) -> int:
    inner = 0 if attribute(node, "transA", 0) else -1
    return max([1, *_shape(node, 0, arrays)[inner:][:1], *_shape(node, 1, arrays)[-2:][:1]]) + 2


def _of_whole(node: onnx.NodeProto, arrays: NamedArrays) -> int:
    """An operator over some axes of its first operand: all of its elements, at most."""
    return max(1, math.prod(_shape(node, 0, arrays))) + FUNCTION_LENGTH


def _of_row(node: onnx.NodeProto, arrays: NamedArrays) -> int:
    """An operator over one axis."""
    shape = _shape(node, 0, arrays)
    return (max(shape) if shape else 1) + FUNCTION_LENGTH


#: Class of roundings of an operator's row -> its length.
_LENGTHS: dict[str, Callable[[Any, NamedArrays], int]] = {
    "exact": lambda node, arrays: 0, "once": lambda node, arrays: max(1, len(node.input) - 1),
    "twice": lambda node, arrays: 2, "transposed": _of_transposed, "product": _of_product,
    "convolution": lambda node, arrays: max(1, math.prod(_shape(node, 1, arrays)[1:])) + 1,
    "window": lambda node, arrays: math.prod(attribute(node, "kernel_shape", (1,))),
    "image": lambda node, arrays: max(1, math.prod(_shape(node, 0, arrays)[2:])) + 1, "axis": _of_row,
    "whole": _of_whole, "function": lambda node, arrays: FUNCTION_LENGTH,
}  # fmt: skip


# ------------------------------------------------------------ magnitudes
def _of_operands(node: onnx.NodeProto, operands: _Operands) -> float:
    """An operator that makes nothing larger: activations, softmax, pooling, whatever is not known."""
    return max([1.0, *(operands.magnitude(i) for i in range(len(node.input)))])


def _of_moved(node: onnx.NodeProto, operands: _Operands) -> float:
    return max([0.0, *(operands.magnitude(i) for i in range(len(node.input)))])


def _of_quotient(node: onnx.NodeProto, operands: _Operands) -> float:
    below = operands.array(1)
    least = float(np.abs(below).min(initial=math.inf)) if below is not None else 0.0
    return operands.magnitude(0) / least if least else operands.magnitude(0)


def _of_linear(node: onnx.NodeProto, operands: _Operands) -> float:
    """A convolution: |window| |weight of an output|, and the bias."""
    weight = operands.array(1)
    if weight is None:
        return operands.magnitude(0) * operands.magnitude(1)
    apart = 1 if node.op_type == "ConvTranspose" else 0
    squares = np.square(np.moveaxis(weight, apart, 0)).reshape(weight.shape[apart], -1 if weight.size else 0)
    taps, group = math.prod(weight.shape[2:]), int(attribute(node, "group", 1))
    window = operands.magnitude(0) * math.sqrt(squares.shape[1])
    data = operands.array(0)
    if data is not None and data.ndim > 2 and group == 1:
        pixels = np.square(data).sum(axis=1)
        window = min(window, math.sqrt(min(taps * float(pixels.max(initial=0.0)), float(pixels.sum()))))
    return window * math.sqrt(float(squares.sum(axis=1).max(initial=0.0))) + operands.magnitude(2)


def _of_matmul(node: onnx.NodeProto, operands: _Operands) -> float:
    """A product of matrices: |row| |column|, and what Gemm adds."""
    norms = []
    for index, transposed, axis in ((0, "transA", -1), (1, "transB", -2)):
        array = operands.array(index)
        if array is None:
            other = operands.array(1 - index)
            depth = other.shape[-1 if index else 0] if other is not None and other.ndim else 1
            norms.append(operands.magnitude(index) * math.sqrt(depth))
            continue
        at = axis if not attribute(node, transposed, 0) else -3 - axis
        squares = np.square(array).sum(axis=at if array.ndim > 1 else -1)
        norms.append(math.sqrt(float(np.max(squares, initial=0.0))))
    alpha, beta = abs(attribute(node, "alpha", 1.0)), abs(attribute(node, "beta", 1.0))
    return alpha * norms[0] * norms[1] + beta * operands.magnitude(2)


def _of_batch_norm(node: onnx.NodeProto, operands: _Operands) -> float:
    scale, mean, variance = (operands.array(i) for i in (1, 3, 4))
    if scale is None or mean is None or variance is None:
        return _of_operands(node, operands)
    factor = np.abs(scale / np.sqrt(variance + attribute(node, "epsilon", 1e-5)))
    return (operands.magnitude(0) + largest(mean)) * largest(factor) + operands.magnitude(2)


def _of_normalized(node: onnx.NodeProto, operands: _Operands) -> float:
    """(x - mean) / deviation * scale + bias: what cancels in x - mean counts, relative to the least deviation."""
    skips = node.op_type == "SkipLayerNormalization"  # x, skip, scale, shift and bias
    scale = operands.magnitude(1 + skips) or 1.0
    used = [0, *(i for i in (1, 4) if skips and i < len(node.input) and node.input[i])]
    added = [array for array in map(operands.array, used) if array is not None]
    if len(added) < len(used):
        return _of_operands(node, operands)
    data, highest = functools.reduce(np.add, added), functools.reduce(np.add, map(np.abs, added))
    first = min(2, data.ndim - 1)
    if "LayerNormalization" in node.op_type:
        first = int(attribute(node, "axis", -1))
    axes = tuple(range(first % data.ndim, data.ndim))
    spread = np.sqrt(data.var(axis=axes) + attribute(node, "epsilon", 1e-5))
    with np.errstate(invalid="ignore"):
        return largest(highest.max(axis=axes, initial=0.0) / spread) * scale + operands.magnitude(2 + skips)


def _of_whole_sum(node: onnx.NodeProto, operands: _Operands) -> float:
    data = operands.array(0)
    return operands.magnitude(0) * (data.size if data is not None else 1)


#: Class of magnitudes of an operator's row -> the magnitude.
_MAGNITUDES: dict[str, Callable[[Any, _Operands], float]] = {
    "operands": _of_operands, "sum": lambda node, operands: sum(map(operands.magnitude, range(len(node.input)))),
    "factors": lambda node, operands: operands.magnitude(0) * operands.magnitude(1), "quotient": _of_quotient,
    "linear": _of_linear,
    "matmul": _of_matmul, "batch norm": _of_batch_norm, "normalized": _of_normalized, "whole sum": _of_whole_sum,
}  # fmt: skip
#: Those that take norms of arrays.
BY_NORMS = ("quotient", "linear", "matmul", "batch norm")


def _magnitude_of(node: onnx.NodeProto) -> Callable[[Any, _Operands], float]:
    row = of(node.op_type)
    jumps = row.kind is Kind.ELEMENTWISE and (row.jump or row.types == "logic") and not row.is_conversion
    return _of_moved if row.rounding == "exact" and not jumps else _MAGNITUDES[row.magnitude]
