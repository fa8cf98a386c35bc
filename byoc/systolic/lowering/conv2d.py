"""Convolution as a layer: the im2col matrix of the image times the filters, each group a batch element.

A depthwise one, of which each group is a column of the array, is the vector unit's where that takes fewer cycles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.errors import ProgramError
from ...region import Composite, Operation
from ..code.layer import ConvGeometry, GemmLayer, Step, conv2d, filter_matrices, windowed
from ..code.tiling import search
from ..config import SystolicOptions
from .epilogue import Epilogue
from .matrices import Form, conv2d_form
from .operands import View, dense_strides, read_operand, tensor_name
from .products import Product

#: A grouped convolution that would use less of the array than this stays on the CPU, ...
LEAST_UTILIZATION = 0.05
#: ... unless it is cheap: takes no longer than so many launches of a region.
CHEAP_LAUNCHES = 10


def conv2d_layer(composite: Composite, options: SystolicOptions, dry: bool = False) -> GemmLayer:
    """The layer of a composite around `relax.nn.conv2d`.

    Args:
        composite, options: what, and for what; with a dataflow that every layer has, if there is one.
        dry: whether the values of constants are left out, which only a check can do without.

    Raises:
        ProgramError: something of it cannot be done; names the tensor, and what would do.
    """
    anchor = composite.anchor
    left, right = (read_operand(composite, operand) for operand in anchor.operands)
    _check(anchor, left.shape, right.shape)
    product = Product.of(anchor, left, right, options, dry)
    if isinstance(product.right, View):
        raise ProgramError(f"{anchor.result.name}: the weight {right.name} is computed; a constant is needed")
    if product.left.strides != dense_strides(product.left.shape):
        raise ProgramError(f"{anchor.result.name}: {left.name} is transposed; a dense NCHW tensor is needed")
    groups = int(anchor.attrs.get("groups", 1))
    layer = _by_array(composite, product, groups)
    if groups == left.shape[1] == right.shape[0] > 1:
        return min((_by_vector_unit(composite, product), layer), key=lambda each: _cycles(each, composite, options))
    if groups > 1:
        _check_worth(composite, layer, groups, options)
    return layer


def _by_array(composite: Composite, product: Product, groups: int) -> GemmLayer:
    """A GEMM for each group of each image."""
    matrices, form = filter_matrices(product.constant(), groups), conv2d_form(composite.result.shape, groups)
    b, parts = product.weights(matrices)
    weight = product.right.shape
    geometry = geometry_of(composite.anchor, weight[1], product.left.shape[2:], weight[2:])
    return conv2d(
        composite.name, product.left.tensor, b, tensor_name(composite.result), geometry,
        images=product.left.shape[0], groups=groups, pad_value=product.zero_point, parts=parts,
        steps=_steps(composite, product, form, matrices),
    )  # fmt: skip


def _by_vector_unit(composite: Composite, product: Product) -> GemmLayer:
    """A depthwise convolution, all channels of an image at once."""
    weight = product.right.shape
    matrices = product.constant().reshape(weight[0], -1).T[None]
    form = conv2d_form(composite.result.shape, 1)
    b, parts = product.weights(matrices)
    geometry = geometry_of(composite.anchor, weight[0], product.left.shape[2:], weight[2:])
    return windowed(
        composite.name, "dot", product.left.tensor, b, tensor_name(composite.result), geometry,
        images=product.left.shape[0], pad_value=product.zero_point, parts=parts,
        steps=_steps(composite, product, form, matrices),
    )  # fmt: skip


def _steps(composite: Composite, product: Product, form: Form, matrices: np.ndarray) -> tuple[Step, ...]:
    scale = None if product.scale is None else _scale_row(product.scale, form)
    return Epilogue(composite, form, product.row(matrices, matrices.shape[2]), scale).steps()


def _cycles(layer: GemmLayer, composite: Composite, options: SystolicOptions) -> int:
    """Estimated cycles of the tiling that the layer will have."""
    problem = layer.problem(composite.result.dtype, options.dataflow)
    return search(problem, options.accelerator, options.dataflow)[0].cycles


def _check(anchor: Operation, data: tuple[int, ...], weight: tuple[int, ...]) -> None:
    layouts = tuple(str(anchor.attrs.get(name, "")) for name in ("data_layout", "kernel_layout", "out_layout"))
    if layouts[:2] != ("NCHW", "OIHW") or layouts[2] not in ("", "NCHW"):
        raise ProgramError(f"{anchor.result.name} has layouts {', '.join(layouts)}; NCHW and OIHW are taken")
    if len(data) != 4 or len(weight) != 4 or 0 in (*data, *weight):
        raise ProgramError(f"{anchor.result.name}: shapes {list(data)} and {list(weight)}; four axes are needed")


def geometry_of(anchor: Operation, channels: int, size: tuple[int, ...], kernel: tuple[int, ...]) -> ConvGeometry:
    """Windows of a convolution or pooling, with the attributes that both have.

    Raises:
        ProgramError: no window load can do them.
    """
    strides, dilation = (numbers(anchor.attrs.get(name, 1), 2) for name in ("strides", "dilation"))
    padding = numbers(anchor.attrs.get("padding", 0), 4)
    geometry = ConvGeometry(channels, (size[0], size[1]), (kernel[0], kernel[1]), strides, padding, dilation)
    if (problem := geometry.problem()) != "":
        raise ProgramError(f"{anchor.result.name}: {problem}")
    return geometry


def numbers(attribute: Any, count: int) -> Any:
    """One number for all, or one for each axis of two (again for the other end of a padding), or all."""
    numbers = (int(attribute),) if isinstance(attribute, int) else tuple(int(number) for number in attribute)
    return numbers * (count // len(numbers))


def _scale_row(scale: np.ndarray, form: Form) -> np.ndarray:
    """The scale of the filters [filters, 1, 1, 1] as a row."""
    row = form.row(scale.reshape(1, -1, 1, 1)) if scale.size == scale.shape[0] else None
    if row is None:
        raise ProgramError(f"a scale of shape {list(scale.shape)} is not one of the whole weight or of its filters")
    return row


def _check_worth(composite: Composite, layer: GemmLayer, groups: int, options: SystolicOptions) -> None:
    """Refuses groups so narrow that most of the array would idle, such as depthwise ones."""
    cycles = _cycles(layer, composite, options)
    used = layer.batch * layer.m * layer.k * layer.n * layer.parts / (cycles * options.macs_per_cycle)
    if used < LEAST_UTILIZATION and cycles > CHEAP_LAUNCHES * options.launch_cycles:
        sizes, array = f"{layer.m}x{layer.k}x{layer.n}", f"{options.rows}x{options.cols}"
        raise ProgramError(
            f"each of the {groups} groups of {composite.anchor.result.name} is a GEMM of {sizes}, which would use "
            f"{used:.1%} of the {array} array; {LEAST_UTILIZATION:.0%} is the least"
        )
