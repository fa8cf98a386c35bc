"""What tests of convolution recipes share: references in float64, and a check against them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Recipe

from .kernels import ROUNDOFF, make_group, random, run_kernel


def conv_group(
    x: tuple[int, ...], w: tuple[int, ...], *, residual: bool = False, relu: bool = True,
    operator: Any = relax.op.nn.conv2d, **attrs: Any,
) -> Any:  # fmt: skip
    """operator(x, w) + bias, + residual, relu."""
    probe = relax.BlockBuilder().normalize(
        operator(
            relax.Var("x", relax.TensorType(x, "float32")), relax.Var("w", relax.TensorType(w, "float32")), **attrs
        )
    )
    out = tuple(int(d) for d in probe.ty.shape)

    def body(x: Any, w: Any, b: Any, *r: Any) -> Any:
        y = yield operator(x, w, **attrs)
        y = yield relax.op.add(y, b)
        if r:
            y = yield relax.op.add(r[0], y)
        if relu:
            yield relax.op.nn.relu(y)

    shapes = [x, w, (1, out[1], 1, 1), *([out] if residual else [])]
    return make_group(probe.op.name, shapes, body, constants=(1, 2))


def reference(x: np.ndarray, w: np.ndarray, strides: Any, padding: Any, dilation: Any) -> np.ndarray:
    """Direct convolution in float64."""
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    x = np.pad(x.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    kh, kw = ((k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(2, 3))
    view = view[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]
    return np.einsum("ncyxhw,ochw->noyx", view, w.astype("float64"), optimize=True)


def grouped_reference(x: np.ndarray, w: np.ndarray, groups: int, strides: Any, padding: Any, dilation: Any) -> Any:
    """Each group of channels is a convolution of its own."""
    parts = zip(np.split(x, groups, axis=1), np.split(w, groups, axis=0), strict=True)
    return np.concatenate([reference(a, b, strides, padding, dilation) for a, b in parts], axis=1)


def transposed_reference(
    x: np.ndarray, w: np.ndarray, strides: Any, padding: Any, output_padding: Any, dilation: Any
) -> np.ndarray:  # fmt: skip
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
    machine: Machine, rng: np.random.Generator, config: Config | None = None, offered: Sequence[Layout] | None = None,
) -> None:  # fmt: skip
    """The kernel of relu(convolution + bias (+ residual)) on random operands, within the rounding of its sums.

    Args:
        convolution: in float64.
        terms: products of one sum.
        offered: layouts of the operands; by default those that the recipe likes.
    """
    x, w, *added = (random(rng, *p.shape) for p in group.params)
    got = run_kernel(recipe, group, [x, w, *added], machine, config, offered)
    exact: Any = convolution(x, w) + sum(added)
    magnitude = convolution(abs(x), abs(w)) + sum(abs(a) for a in added)
    assert got.shape == exact.shape
    assert np.all(np.abs(got - np.maximum(exact, 0)) <= (terms + 4) * ROUNDOFF * magnitude)
