"""Matmul of any rank as a layer: 2-D or batched, B constant or computed, operands transposed in memory or not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ....core.errors import ProgramError
from ...region import Composite
from ..code.layer import GemmLayer, Matrix
from ..config import Accelerator
from .epilogue import Epilogue
from .matrices import Form, matmul_forms
from .operands import View, read_operand
from .products import Product


def matmul_layer(composite: Composite, hardware: Accelerator, dry: bool = False) -> GemmLayer:
    """The layer of a composite around `relax.matmul`.

    Args:
        composite, hardware: what, and for what.
        dry: whether the values of constants are left out, which only a check can do without.

    Raises:
        ProgramError: something of it cannot be done; names the tensor, and what would do.
    """
    anchor = composite.anchor
    left, right = (read_operand(composite, operand) for operand in anchor.operands)
    if min(len(left.shape), len(right.shape)) < 2:
        raise ProgramError(f"{anchor.result.name} multiplies a vector; matrices are taken: reshape it to [1, n]")
    if 0 in (*left.shape, *right.shape):
        raise ProgramError(f"{anchor.result.name}: an operand is empty")
    product = Product.of(anchor, left, right, hardware, dry)
    *others, last = matmul_forms(anchor.result.shape)
    for form in others:
        try:
            return _layer(composite, product, form)
        except ProgramError:  # the batch cannot be walked through as rows
            continue
    return _layer(composite, product, last)


def _layer(composite: Composite, product: Product, form: Form) -> GemmLayer:
    k = product.left.shape[-1]
    m, n, batch = form.size(form.rows), form.size(form.cols), form.size(form.batch)
    matrices: np.ndarray | None = None
    b: Matrix | np.ndarray
    parts = 1
    if isinstance(product.right, View):
        b = _right_matrix(product.right, form)
    else:
        matrices = _constant_matrices(product.constant(), form)
        b, parts = product.weights(matrices)
    scale = None if product.scale is None else _scale_row(product.scale, form)
    epilogue = Epilogue(composite, form, product.row(matrices, n), scale)
    return GemmLayer(
        name=composite.name, m=m, k=k, n=n, a=_left_matrix(product.left, form), b=b,
        out=form.matrix(View.of(composite.result)), batch=batch, steps=epilogue.steps(), parts=parts,
    )  # fmt: skip


def _left_matrix(view: View, form: Form) -> Matrix:
    """A: its rows are those of the result, its columns run along k."""
    return replace(form, shape=(*form.shape[:-1], view.shape[-1])).matrix(view)


def _right_matrix(view: View, form: Form) -> Matrix:
    """A computed B: rows run along k, columns are those of the result."""
    _one_b(view.shape, form)
    rank = len(form.shape)
    leading = form.shape[:-2] if form.batch else (1,) * (rank - 2)
    return Form((*leading, *view.shape[-2:]), form.batch, (rank - 2,), (rank - 1,)).matrix(view)


def _constant_matrices(values: np.ndarray, form: Form) -> np.ndarray:
    """A constant B as [batches, k, n]."""
    _one_b(values.shape, form)
    sizes = list(values.shape[:-2])
    while sizes and sizes[0] == 1:
        sizes.pop(0)
    batch = [form.shape[axis] for axis in form.batch][len(form.batch) - len(sizes) :] if sizes else []
    matrices = np.broadcast_to(values.reshape(*sizes, *values.shape[-2:]), (*batch, *values.shape[-2:]))
    return matrices.reshape(-1, *values.shape[-2:])


def _one_b(shape: tuple[int, ...], form: Form) -> None:
    if not form.batch and math.prod(shape[:-2]) > 1:
        raise ProgramError("each of the batch has a B of its own")


def _scale_row(scale: np.ndarray, form: Form) -> np.ndarray:
    """The scale of B as a row."""
    if scale.size == 1:
        return scale.reshape(1).astype(np.float32)
    row = form.row(scale) if scale.shape[-2] == 1 else None
    if row is None:
        raise ProgramError(f"a scale of shape {list(scale.shape)} is not one of the whole tensor or of its columns")
    return row
