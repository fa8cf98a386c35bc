"""Matrix products with what onnxruntime fuses into them; inverses, distances, and complex numbers as pairs.

FusedMatMul(a, b)   ->   alpha * a^T b^T
"""

from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of, shape_of
from ...checks.refusal import Refusal
from ..base import (
    MICROSOFT,
    Attributes,
    Converter,
    as_dtype,
    constant,
    converts,
    emit,
    scalar,
    static_shape,
    text,
    widest,
)
from ..fourier import dft
from ..recurrent import columns
from .standard import activated, standard, without

#: Rows up to which an inverse is written out, a handful of operators a row.
_MOST_ROWS = 16


@converts("FusedMatMul FusedMatMulActivation TransposeMatMul", MICROSOFT)
def fused_matmul(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """FusedMatMul(a, b): a matmul of transposed operands, times alpha, and an activation behind it."""
    flags = [[bool(attributes.get(f"trans{of}{name}", 0)) for of in ("Batch", "")] for name in "AB"]
    y = emit(relax.op.matmul(*(_turned(x, *both) for x, both in zip(inputs[:2], flags, strict=True))))
    alpha = float(attributes.get("alpha", 1.0))
    y = y if alpha == 1.0 else emit(y * scalar(alpha, y))
    return activated(y, attributes)


def _turned(x: Any, batch: bool, last: bool) -> Any:
    """With the last two dimensions swapped; with the first one moved behind all batch dimensions. A vector as it is."""
    rank = len(shape_of(x) or ())
    order = list(range(rank))
    if batch and rank > 2:
        order = [*order[1:-1], order[0], order[-1]]
    if last and rank > 1:
        order[-2:] = [order[-1], order[-2]]
    return x if order == sorted(order) else emit(relax.op.permute_dims(x, order))


@converts("FusedGemm", MICROSOFT)
def fused_gemm(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """FusedGemm(a, b, c): Gemm with an activation behind it."""
    return activated(emit(standard("Gemm", inputs, without(attributes, "activation"), 13)), attributes)


@converts("Inverse", MICROSOFT)
def inverse(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Inverse of square matrices, by elimination with the largest element of a column as pivot (Gauss and Jordan).

    Narrow floats are eliminated in float32: each step loses by the condition number.
    """
    x = inputs[0]
    *batch, rows, width = static_shape(x, "the input of Inverse")
    if rows != width or rows > _MOST_ROWS:
        raise Refusal(f"the inverse of {rows} x {width} elements; up to {_MOST_ROWS} rows work")
    dtype = widest(x)
    unit = emit(relax.op.broadcast_to(constant(np.eye(rows), dtype), (*batch, rows, rows)))
    both = emit(relax.op.concat([as_dtype(x, dtype), unit], -1))
    for step in range(rows):
        both = _eliminated(both, step, [*batch, rows], dtype)
    return as_dtype(columns(both, rows, 2 * rows), dtype_of(x))


def _eliminated(both: Any, step: int, shape: list[int], dtype: str) -> Any:
    """[A | B] with column `step` of A made that of the unit matrix."""
    *batch, rows = shape
    last, at = len(batch), np.arange(rows)
    column = emit(relax.op.reshape(columns(both, step, step + 1), (*batch, rows)))
    size = emit(relax.op.where(constant(at < step), scalar(-1, column), relax.op.abs(column)))
    best = emit(relax.op.argmax(size, last, keepdims=True))
    is_best = emit(relax.op.reshape(relax.op.equal(constant(at), best), (*batch, rows, 1)))
    zero = relax.const(0, dtype)
    pivot = emit(relax.op.sum(relax.op.where(is_best, both, zero), [last], keepdims=True))
    own = emit(relax.op.strided_slice(both, [last], [step], [step + 1]))
    here = constant((at == step).reshape(-1, 1))
    moved = emit(relax.op.where(is_best, own, both))
    unit = emit(pivot / columns(pivot, step, step + 1))
    less = emit(moved - columns(moved, step, step + 1) * unit)
    return emit(relax.op.where(here, unit, less))


@converts("CDist", MICROSOFT)
def distances(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """CDist(a, b) -> the euclidean distance of each row of a to each row of b, or its square."""
    metric = text(attributes, "metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise Refusal(f"metric {metric!r}; euclidean and sqeuclidean work")
    left, right = emit(relax.op.expand_dims(inputs[0], 1)), emit(relax.op.expand_dims(inputs[1], 0))
    apart = emit(left - right)
    squares = relax.op.sum(apart * apart, [-1])
    return relax.op.sqrt(emit(squares)) if metric == "euclidean" else squares


# ------------------------------------------------------------ complex numbers
def _product(sign: float) -> Converter:
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        (a, b), (c, d) = ([columns(x, i, i + 1) for i in range(2)] for x in inputs[:2])
        d = emit(d * scalar(sign, d))
        real = a * c - b * d
        imaginary = a * d + b * c
        return relax.op.concat([emit(real), emit(imaginary)], -1)

    other = "b" if sign > 0 else "conjugate of b"
    converter.__doc__ = f"a * {other}, of complex numbers that are pairs in the last dimension."
    return converter


@converts("Rfft", MICROSOFT)
def rfft(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Rfft(x) -> the first half of the spectrum of the last dimension, as pairs."""
    _check(attributes)
    x = emit(relax.op.expand_dims(inputs[0], -1))
    return dft([x, None], {"axis": len(static_shape(x, "a signal")) - 2, "onesided": 1}, 17)


@converts("Irfft", MICROSOFT)
def irfft(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Irfft(x) -> the signal of an even length whose half spectrum x is; not divided by its length."""
    _check(attributes)
    x, axis = inputs[0], len(static_shape(inputs[0], "a spectrum")) - 2
    signal = emit(dft([x, None], {"axis": axis, "onesided": 1, "inverse": 1}, 17))
    return relax.op.squeeze(signal, [-1])


def _check(attributes: Attributes) -> None:
    several = int(attributes.get("signal_ndim", 1)) != 1
    if not attributes.get("onesided", 1) or attributes.get("normalized", 0) or several:
        raise Refusal("a transform that is not onesided, or normalized, or of several dimensions")


converts("ComplexMul", MICROSOFT)(_product(1.0))
converts("ComplexMulConj", MICROSOFT)(_product(-1.0))
