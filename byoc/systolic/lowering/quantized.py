"""Operands of quantized layers: zero points go into constants, so that the array multiplies plain int8.

    sum (x - zx) (w - zw)  =  sum x w'  -  zx sum w'          with w' = w - zw, both sums over k

The right term is a constant row, for weights are constant. It, and the sum, wrap around at 2^31, which does not matter
where the result is in range. uint8 is int8 with everything 128 less. A w' that needs nine bits is a sum of int8 parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..code.layer import Step


def signed_zero_point(zero_point: int, dtype: str) -> int:
    """The zero point of a tensor as it is on the chip, where uint8 is int8."""
    return zero_point - 128 if dtype == "uint8" else zero_point


def integer_weights(weights: np.ndarray, zero_point: int | np.ndarray = 0) -> tuple[np.ndarray, int]:
    """(B, parts) for :class:`..code.layer.GemmLayer`: int8 [batches, parts * k, n], whose parts sum up to w -
    zero_point.

    Args:
        weights: int8 or uint8 [batches, k, n].
        zero_point: one, or one per column [n] or [batches, 1, n].
    """
    rest = _centered(weights, zero_point)
    parts: list[np.ndarray] = []
    while not parts or rest.any():  # at most three times: |w'| <= 255
        parts.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - parts[-1]
    return np.concatenate(parts, axis=1), len(parts)


def zero_point_row(weights: np.ndarray, zero_point: int | np.ndarray, x_zero_point: int) -> np.ndarray:
    """The row -zx sum(w') of each batch, int32 [batches, n]; `x_zero_point` is a signed one."""
    sums = _centered(weights, zero_point).sum(axis=1, dtype=np.int64)
    return (-x_zero_point * sums).astype(np.int32)


def requantize_steps(
    row: np.ndarray,
    scale: np.ndarray,
    between: Sequence[Step] = (),
    out_scale: float = 1.0,
    out_zero_point: int = 0,
) -> tuple[Step, ...]:
    """The epilogue of a layer between DequantizeLinear and QuantizeLinear of ONNX.

    Args:
        row: int32, what is added to the sums: :func:`zero_point_row`, plus a bias quantized with `scale`.
        scale: float32 [n] (or [batches, n]), or [1]: the scale of x times that of w, per tensor or per channel.
        between: steps on float32 values, such as a residual or relu.
        out_scale, out_zero_point: of QuantizeLinear; the zero point is a signed one.
    """
    scales = np.broadcast_to(np.asarray(scale, np.float32), row.shape)
    return (
        Step("add", row=row, dtype="int32"),
        Step("dequantize", row=scales),
        *between,
        Step("quantize", scale=out_scale, zero_point=out_zero_point),
    )


def _centered(weights: np.ndarray, zero_point: int | np.ndarray) -> np.ndarray:
    return weights.astype(np.int32) - np.asarray(zero_point, np.int32)
