"""What `layers.py` times: the convolutions of ResNet-18 as kernels of tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config
from tvm_ext.driver.build import compile_kernels
from tvm_ext.schedules.amx.blocks import Blocks
from tvm_ext.schedules.amx.recipe import TileMatch
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx

Call = Callable[[], Any]


@dataclass(frozen=True)
class Layer:
    """A convolution of ResNet-18.

    Attributes:
        name: as the table says it.
        calls: how often the model has it.
        x, w: shapes of data and weight.
        stride, padding: of both axes.
        residual: whether another tensor is added behind it.
    """

    name: str
    calls: int
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: int = 1
    padding: int = 1
    residual: bool = False


def _block(channels: int, size: int, calls: int) -> list[Layer]:
    """The 3x3 layers of a stage: half of them, rounded up, end a block."""
    x, w = (1, channels, size, size), (channels, channels, 3, 3)
    text, ends = f"3x3, {channels}, {size}x{size}", calls - calls // 2
    return [Layer(text, calls // 2, x, w), Layer(f"{text}, residual", ends, x, w, residual=True)]


def _down(channels: int, size: int) -> list[Layer]:
    """The layers of stride 2 that begin a stage."""
    x, to = (1, channels, size, size), f"{channels} to {2 * channels}, {size}x{size}"
    return [
        Layer(f"3x3 stride 2, {to}", 1, x, (2 * channels, channels, 3, 3), 2),
        Layer(f"1x1 stride 2, {to}", 1, x, (2 * channels, channels, 1, 1), 2, 0),
    ]


LAYERS: tuple[Layer, ...] = (
    Layer("stem 7x7 stride 2", 1, (1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    *_block(64, 56, 4), *_down(64, 56), *_block(128, 28, 3), *_down(128, 28),
    *_block(256, 14, 3), *_down(256, 14), *_block(512, 7, 3),
)  # fmt: skip

#: What a table calls a type -> dtypes of data and weight.
KINDS = {"bf16": ("bfloat16", "bfloat16"), "int8": ("uint8", "int8")}


def group_of(layer: Layer, kind: str) -> Group:
    """The layer as grouping makes it: decode, convolution, bias, residual, relu, encode."""
    from tests.schedules.amx_cases import conv_group

    padding = {"strides": (layer.stride,) * 2, "padding": (layer.padding,) * 4}
    dtypes, zero = KINDS[kind], 0 if kind == "bf16" else 121
    return conv_group(layer.x, layer.w, dtypes, zero, layer.residual, **padding)


@dataclass(frozen=True)
class Work:
    """What a kernel does in a call, on all threads.

    Attributes:
        operations: multiplications and additions of the layer itself.
        products: tile products, also with numbers that are no pixels.
        load_bytes: of operands that tiles load.
    """

    operations: int
    products: int
    load_bytes: int

    @staticmethod
    def of(match: TileMatch, config: Config) -> Work:
        image, operands = match.image(config), match.operands
        blocks = Blocks.of(image, config)
        registers, kernel = blocks.tiles * blocks.pixels, image.window.kernel[0]
        # of the kernel, over all tiles
        rows = registers * kernel - image.skipped(operands.zero_point, registers)
        units, each = image.window.images * blocks.outputs, image.steps // kernel
        row = image.width * image.taps * 4 // operands.product.group
        loads = units * each * row * (rows * image.rows + blocks.tiles * kernel * 2 * 16)
        return Work(2 * image.window.multiplications, units * each * rows * 2, loads)


def layer_calls(
    match: TileMatch, config: Config, machine: Machine, cold_bytes: int
) -> tuple[Call, list[Call]]:
    """A call of the kernel with weights that it read before, and calls that each have weights of
    their own."""
    from tests.schedules.amx_cases import arrays_of
    from tests.schedules.kernels import scheduled

    group = match.group
    offered = [_offered(match, param) for param in group.params]
    layouts, mod = scheduled(Conv2dAmx(), match, config, machine, offered)
    function = compile_kernels({"main": mod["main"]}, machine)["main"]
    arrays = arrays_of(group, np.random.default_rng(0))
    packed = [how.pack(array) for how, array in zip(layouts.params, arrays, strict=True)]
    arguments = [tvm.runtime.tensor(array) for array in packed]
    shape = layouts.output.physical_shape(group.shape)
    out = tvm.runtime.tensor(np.zeros(shape, packed[0].dtype))
    copies = max(2, cold_bytes // packed[1].nbytes)
    weights = [tvm.runtime.tensor(packed[1]) for _ in range(copies)]

    def with_weights(weight: Any) -> Call:
        return lambda: function(arguments[0], weight, *arguments[2:], out)

    return with_weights(arguments[1]), [with_weights(weight) for weight in weights]


def _offered(match: TileMatch, param: Any) -> Layout:
    """The layout in which the layer before leaves a tensor; the model's input is plain."""
    rank, few = len(param.shape), len(param.shape) != 4 or param.shape[1] < 8
    plain = few or param is match.operands.weight
    return Layout.plain(rank) if plain else Layout.blocked(4, match.operands.product.lanes)
