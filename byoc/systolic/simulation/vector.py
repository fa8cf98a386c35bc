"""The vector unit: what each of its operations does to a tile of the accumulator, in float32 or int32.

dequantize, quantize and a residual of int8 follow the formulas of ONNX DequantizeLinear and QuantizeLinear
(https://onnx.ai/onnx/operators): `(x - zero_point) * scale`, and `saturate(round(x / scale) + zero_point)` with
halves to even, each step rounded to float32. int32 addition wraps around at 2^31.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..code.isa import Vector

#: erf(x) = x P(x^2) / Q(x^2) on |x| <= 3.8325: the rational approximation of Eigen and XLA, highest power first.
_ERF_LIMIT = 3.8325
_ERF_P = (-2.7261423e-10, 2.7706815e-08, -2.1010239e-06, -5.6925062e-05, -7.3499064e-04, -2.9545999e-03, -1.6096033e-02)
_ERF_Q = (-1.4566072e-05, -2.1337406e-04, -1.6828270e-03, -7.3733293e-03, -1.4264739e-02)


def apply(vector: Vector, words: np.ndarray, operand: np.ndarray | None) -> None:
    """Does one operation in place.

    Args:
        vector: the instruction.
        words: its tile of the accumulator, int32 [rows, cols]; float32 data lies in it as bits.
        operand: [cols] or [rows, cols] of `vector.dtype`; None for source "none".
    """
    _OPERATIONS[vector.op](vector, words, operand)


def reduced(op: str, a: np.ndarray, b: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """[rows, cols] of dtype: what REDUCE makes of a [rows, cols, taps] and b [taps, cols]; int32 sums wrap around."""
    if op == "max":
        return a.max(axis=2).astype(dtype)
    if op == "sum":
        return a.sum(axis=2, dtype=dtype)
    assert b is not None
    return np.einsum("mnt,tn->mn", a, b, dtype=dtype)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function of a float32 array, within 5e-7; exactly 1 or -1 where float32 has nothing between."""
    inner = np.clip(x, np.float32(-_ERF_LIMIT), np.float32(_ERF_LIMIT))
    square = inner * inner
    value = inner * _polynomial(square, _ERF_P) / _polynomial(square, _ERF_Q)
    return np.where(np.abs(x) < _ERF_LIMIT, value, np.sign(x))


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= x
        value += np.float32(coefficient)
    return value


def _add(vector: Vector, words: np.ndarray, operand: np.ndarray | None) -> None:
    assert operand is not None
    if vector.dtype == "int32":
        words += operand
        return
    values = words.view(np.float32)
    values += operand if vector.dtype == "float32" else _dequantized(operand, vector.zero_point, vector.scale)


def _multiply(vector: Vector, words: np.ndarray, operand: np.ndarray | None) -> None:
    values = words.view(np.float32)
    values *= np.float32(vector.scale) if operand is None else operand


def _relu(vector: Vector, words: np.ndarray, _operand: np.ndarray | None) -> None:
    values = words.view(vector.dtype)
    np.maximum(values, 0, out=values)


def _clip(vector: Vector, words: np.ndarray, _operand: np.ndarray | None) -> None:
    values = words.view(np.float32)
    np.clip(values, np.float32(vector.low), np.float32(vector.scale), out=values)


def _gelu(_vector: Vector, words: np.ndarray, _operand: np.ndarray | None) -> None:
    values = words.view(np.float32)
    values *= np.float32(0.5) * (np.float32(1) + erf(values * np.float32(np.sqrt(0.5))))


def _gelu_tanh(_vector: Vector, words: np.ndarray, _operand: np.ndarray | None) -> None:
    x = words.view(np.float32)
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    x *= np.float32(0.5) * (np.float32(1) + np.tanh(inner))


def _dequantize(vector: Vector, words: np.ndarray, operand: np.ndarray | None) -> None:
    words.view(np.float32)[...] = _dequantized(words, vector.zero_point, vector.scale if operand is None else operand)


def _quantize(vector: Vector, words: np.ndarray, operand: np.ndarray | None) -> None:
    scaled = words.view(np.float32) / (np.float32(vector.scale) if operand is None else operand)
    scaled[np.isnan(scaled)] = 0  # a NaN becomes the zero point; C leaves such a conversion undefined
    np.clip(scaled, -128 - vector.zero_point, 127 - vector.zero_point, out=scaled)
    words[...] = np.rint(scaled)
    words += np.int32(vector.zero_point)


def _dequantized(values: np.ndarray, zero_point: int, scale: float | np.ndarray) -> np.ndarray:
    return (values.astype(np.int32) - np.int32(zero_point)).astype(np.float32) * np.asarray(scale, np.float32)


_OPERATIONS: dict[str, Callable[[Vector, np.ndarray, np.ndarray | None], None]] = {
    "add": _add, "multiply": _multiply, "relu": _relu, "gelu": _gelu, "gelu_tanh": _gelu_tanh,
    "dequantize": _dequantize, "quantize": _quantize, "clip": _clip,
}  # fmt: skip
