"""What tests of convolution recipes share: references in float64, and a check against them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Recipe

from .kernels import ROUNDOFF, random, run_kernel
from .recipes.convolution.test_conv2d_nchwc import reference


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


def check_against(
    convolution: Callable[[np.ndarray, np.ndarray], np.ndarray], terms: int, recipe: Recipe, group: Group,
    machine: Machine, rng: np.random.Generator, config: Config | None = None,
) -> None:  # fmt: skip
    """The kernel of relu(convolution + bias (+ residual)) on random operands, within the rounding of its sums.

    Args:
        convolution: in float64.
        terms: products of one sum.
    """
    x, w, *added = (random(rng, *p.shape) for p in group.params)
    got = run_kernel(recipe, group, [x, w, *added], machine, config)
    exact: Any = convolution(x, w) + sum(added)
    magnitude = convolution(abs(x), abs(w)) + sum(abs(a) for a in added)
    assert got.shape == exact.shape
    assert np.all(np.abs(got - np.maximum(exact, 0)) <= (terms + 4) * ROUNDOFF * magnitude)
