"""Pooling as a layer of the vector unit: the largest, or the sum, of each window of each channel.

max_pool2d          max x: zero point and scale, which keep the order, come behind it
avg_pool2d, mean    sum x - k zx, then times sx / k; of float32 sum x, then times 1 / k; k elements a window
"""

from __future__ import annotations

import numpy as np

from ....core.errors import ProgramError
from ...region import Composite, Operation
from ..code.layer import ConvGeometry, GemmLayer, Step, windowed
from ..config import Accelerator
from .conv2d import geometry_of, numbers
from .epilogue import Epilogue
from .matrices import Form, conv2d_form
from .operands import View, dense_strides, read_operand, tensor_name
from .products import checked_zero_point

#: Operators, and what each makes of a window.
POOLINGS = {"relax.nn.max_pool2d": "max", "relax.nn.avg_pool2d": "sum", "relax.mean": "sum"}


def pooling_layer(composite: Composite, hardware: Accelerator, dry: bool = False) -> GemmLayer:
    """The layer of a composite around max_pool2d, avg_pool2d, or a mean over height and width.

    Args:
        composite, hardware: what, and for what.
        dry: as of the other layers; here is no weight to leave out.

    Raises:
        ProgramError: something of it cannot be done; names the tensor, and what would do.
    """
    anchor, reduce = composite.anchor, POOLINGS[composite.anchor.op]
    source = read_operand(composite, anchor.operands[0])
    view, name = source.data, anchor.result.name
    if not isinstance(view, View) or len(view.shape) != 4 or 0 in view.shape:
        raise ProgramError(f"{name} pools {source.name}; a computed tensor of four axes is needed")
    if view.strides != dense_strides(view.shape):
        raise ProgramError(f"{name}: {source.name} is transposed; a dense NCHW tensor is needed")
    if hardware.dtype == "bfloat16":
        raise ProgramError(f"{name} pools {source.name}, which an array of bfloat16 would round, and no pooling does")
    if reduce == "sum" and source.kind == "plain" and hardware.dtype == "int8":
        raise ProgramError(f"{name} averages {source.name} as it is; a dequantized tensor is taken")
    zero, geometry = checked_zero_point(anchor, source, hardware), _geometry(anchor, view.shape)
    count = geometry.kernel[0] * geometry.kernel[1] if reduce == "sum" else 1
    row = None if hardware.dtype == "float32" else np.full(view.shape[1], -zero * count, np.int32)
    scale = None if source.scale is None else source.scale.reshape(1) / np.float32(count)
    steps = Epilogue(composite, _form(anchor), row, scale).steps()
    if count > 1 and scale is None:
        steps = (Step("multiply", scale=1 / count), *steps)
    return windowed(
        composite.name, reduce, view.tensor, None, tensor_name(composite.result), geometry,
        images=view.shape[0], pad_value=-128 if reduce == "max" else zero, steps=steps,
    )  # fmt: skip


def _form(anchor: Operation) -> Form:
    """Of the result, NCHW, or [N, C] of a mean that drops its axes: channels are columns."""
    shape = anchor.result.shape
    return conv2d_form(shape, 1) if len(shape) == 4 else Form(shape, (0,), (), (1,))


def _geometry(anchor: Operation, shape: tuple[int, ...]) -> ConvGeometry:
    """The windows, of all channels."""
    name, attrs, size = anchor.result.name, anchor.attrs, shape[2:]
    if anchor.op == "relax.mean":
        axes = sorted(int(axis) % 4 for axis in attrs.get("axis") or ())
        if axes != [2, 3]:
            raise ProgramError(f"{name} is a mean over axes {axes}; height and width, 2 and 3, are taken")
        return geometry_of(Operation(anchor.op, anchor.operands, anchor.result), shape[1], size, size)
    layouts = [str(attrs.get(key) or "NCHW") for key in ("layout", "out_layout")]
    if layouts != ["NCHW", "NCHW"]:
        raise ProgramError(f"{name} has layouts {', '.join(layouts)}; NCHW is taken")
    geometry = geometry_of(anchor, shape[1], size, numbers(attrs["pool_size"], 2))
    if geometry.out_size != anchor.result.shape[2:]:
        raise ProgramError(f"{name}: with ceil_mode a window ends outside of the padding; without it is taken")
    if POOLINGS[anchor.op] == "sum" and any(geometry.padding) and not attrs.get("count_include_pad"):
        raise ProgramError(f"{name} has padding that its averages do not count; count_include_pad, or none, is taken")
    return geometry
