"""References in float64 for grouped and transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .test_conv2d_nchwc import reference


def grouped_reference(
    x: np.ndarray,
    w: np.ndarray,
    groups: int,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    """Each group of channels is a convolution of its own."""
    parts = zip(np.split(x, groups, axis=1), np.split(w, groups, axis=0), strict=True)
    return np.concatenate([reference(a, b, strides, padding, dilation) for a, b in parts], axis=1)


def transposed_reference(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    """Every input pixel adds its multiple of the kernel to the output, in float64; then the padding is cut off."""
    (n, _, h, width), (_, outputs, kh, kw), (sy, sx), (dy, dx) = x.shape, w.shape, strides, dilation
    x, w = x.astype("float64"), w.astype("float64")
    rows, columns = (h - 1) * sy + (kh - 1) * dy + 1, (width - 1) * sx + (kw - 1) * dx + 1
    full = np.zeros((n, outputs, rows + output_padding[0], columns + output_padding[1]))
    for y, k in np.ndindex(kh, kw):
        span = np.s_[:, :, y * dy : y * dy + (h - 1) * sy + 1 : sy, k * dx : k * dx + (width - 1) * sx + 1 : sx]
        full[span] += np.einsum("nchw,co->nohw", x, w[:, :, y, k])
    top, left, bottom, right = padding
    return full[:, :, top : full.shape[2] - bottom, left : full.shape[3] - right]
