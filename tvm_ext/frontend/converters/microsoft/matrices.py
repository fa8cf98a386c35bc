"""Matrix products with what onnxruntime fuses into them; inverses, distances, and complex numbers as pairs.

FusedMatMul(a, b)   ->   alpha * a^T b^T
"""

from typing import Any

from tvm import relax

from ....core.graph.relax_graph import shape_of
from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, Converter, converts, emit, scalar, static_shape, text
from ..fourier import dft
from ..matrices import eliminated
from ..recurrent import columns
from .standard import activated, standard, without


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
    """Inverse of square matrices, by elimination with the largest element of a column as pivot (Gauss and Jordan)."""
    *_, rows, width = static_shape(inputs[0], "the input of Inverse")
    if rows != width:
        raise Refusal(f"the inverse of {rows} x {width} elements")
    return eliminated(inputs[0], jordan=True)


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
