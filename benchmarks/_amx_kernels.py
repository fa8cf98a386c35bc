"""What `amx_layers.py` times: tile instructions alone, and the convolutions of ResNet-18 as kernels of tiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.group import CONSTANTS, GROUP, Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config
from tvm_ext.driver.build import compile_kernels
from tvm_ext.rates.instructions import PRODUCTS
from tvm_ext.schedules.amx.blocks import Blocks
from tvm_ext.schedules.amx.recipe import TileMatch
from tvm_ext.schedules.amx.tile_products import AmxTiles, Registers
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx

Call = Callable[[], Any]
_TILE = 1024
_REGISTERS = Registers(2, 2, 16, 16)
#: Weights that are read once before the first ones are read again: more than L2, as in a whole model.
COLD_BYTES = 64 << 20


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
    x, w, text = (1, channels, size, size), (channels, channels, 3, 3), f"3x3, {channels}, {size}x{size}"
    return [Layer(text, calls // 2, x, w), Layer(f"{text}, residual", calls - calls // 2, x, w, residual=True)]


def _down(channels: int, size: int) -> list[Layer]:
    """The layers of stride 2 that begin a stage."""
    x, to = (1, channels, size, size), f"{channels} to {2 * channels}, {size}x{size}"
    return [
        Layer(f"3x3 stride 2, {to}", 1, x, (2 * channels, channels, 3, 3), 2),
        Layer(f"1x1 stride 2, {to}", 1, x, (2 * channels, channels, 1, 1), 2, 0),
    ]


LAYERS: tuple[Layer, ...] = (
    Layer("stem 7x7 stride 2", 1, (1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    *_block(64, 56, 4), *_down(64, 56), *_block(128, 28, 3), *_down(128, 28), *_block(256, 14, 3), *_down(256, 14),
    *_block(512, 7, 3),
)  # fmt: skip

#: What a table calls a type -> dtypes of data and weight.
KINDS = {"bf16": ("bfloat16", "bfloat16"), "int8": ("uint8", "int8")}


# ------------------------------------------------------------ tile instructions alone
def rate_call(machine: Machine, kind: str, size: int, loads: bool, products: bool, steps: int) -> Call:
    """A call in which each thread passes `steps` times over `size` bytes of its own, in steps of four tiles.

    Args:
        size: bytes, a multiple of 4096.
        loads: whether each step loads its tiles; else those of the first one stay.
        products: whether each step multiplies, 2 x 2 tiles.
    """
    tiles, threads = AmxTiles(PRODUCTS[KINDS[kind]], _REGISTERS), machine.threads
    operands = [_REGISTERS.left(p) for p in range(2)] + [_REGISTERS.right(h) for h in range(2)]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        x, out = T.arg("x", T.buffer((threads, size), "uint8")), T.arg("out", T.buffer((threads, 16, 16), "int32"))

        def load(thread: Any, step: Any) -> None:
            for i, tile in enumerate(operands):
                start = step * (4 * _TILE) + i * _TILE
                tiles.load(tile, lambda m, e, start=start: x[thread, start + m * 64 + e], 64)

        with T.sblock("root"), T.parallel(threads) as thread:
            tiles.begin()
            for accumulator in range(4):
                tiles.zero(accumulator)
            load(thread, 0)
            with T.serial(steps), T.serial(size // (4 * _TILE)) as step:
                if loads:
                    load(thread, step)
                for p, h in itertools.product(range(2), range(2)):
                    if products:
                        tiles.multiply(_REGISTERS.accumulator(p, h), _REGISTERS.left(p), _REGISTERS.right(h))
            tiles.store(0, out, lambda m, n: [thread, m, n], 64)
            tiles.end()
    function = compile_kernels({"main": builder.get()}, machine)["main"]
    shapes = ((threads, size), "uint8"), ((threads, 16, 16), "int32")
    arguments = [tvm.runtime.tensor(np.zeros(shape, dtype)) for shape, dtype in shapes]
    return lambda: function(*arguments)


# ------------------------------------------------------------ layers
def group_of(layer: Layer, kind: str) -> Group:
    """The layer as grouping makes it: decode, convolution, bias, residual, relu, encode."""
    data, weight = KINDS[kind]
    out = (layer.x[0], layer.w[0], *(-(-d // layer.stride) for d in layer.x[2:]))
    shapes = [(layer.x, data), (layer.w, weight), ((1, out[1], 1, 1), "float32")]
    shapes += [((out[1],), "float32")] if kind == "int8" else []
    shapes += [(out, data)] if layer.residual else []
    params = [relax.Var(f"p{i}", relax.TensorType(s, d)) for i, (s, d) in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("g", params):
        with builder.dataflow():
            result = builder.emit_output(_body(builder, layer, kind, params))
        builder.emit_func_output(result)
    mod = relax.transform.CanonicalizeBindings()(builder.get())
    constants = [1, 2, 3] if kind == "int8" else [1, 2]
    return Group("g", mod["g"].with_attr({GROUP: "relax.nn.conv2d", CONSTANTS: constants}))


def _body(builder: relax.BlockBuilder, layer: Layer, kind: str, params: Sequence[relax.Var]) -> Any:
    x, w, bias, *rest = params

    def decode(value: Any, scale: Any, zero: int, dtype: str, axis: int) -> Any:
        if kind == "bf16":
            return builder.emit(relax.op.astype(value, "float32"))
        return builder.emit(relax.op.dequantize(value, scale, relax.const(np.array(zero, dtype)), axis=axis))

    scales = rest.pop(0) if kind == "int8" else None
    scale = relax.const(np.float32(0.02))
    left, right = decode(x, scale, 121, "uint8", -1), decode(w, scales, 0, "int8", 0)
    y = relax.op.nn.conv2d(left, right, strides=(layer.stride,) * 2, padding=(layer.padding,) * 4)
    y = builder.emit(relax.op.add(builder.emit(y), bias))
    for other in rest:
        y = builder.emit(relax.op.add(y, decode(other, scale, 3, "uint8", -1)))
    y = builder.emit(relax.op.nn.relu(y))
    if kind == "bf16":
        return relax.op.astype(y, "bfloat16")
    return relax.op.quantize(y, scale, relax.const(np.array(5, "uint8")), out_dtype="uint8")


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
        rows = registers * kernel - image.skipped(operands.zero_point, registers)  # of the kernel, over all tiles
        units, each = image.window.images * blocks.outputs, image.steps // kernel
        row = image.width * image.taps * 4 // operands.product.group
        loads = units * each * row * (rows * image.rows + blocks.tiles * kernel * 2 * 16)
        return Work(2 * image.window.multiplications, units * each * rows * 2, loads)


def layer_calls(
    match: TileMatch, config: Config, machine: Machine, cold_bytes: int = COLD_BYTES
) -> tuple[Call, list[Call]]:  # fmt: skip
    """A call of the kernel with weights that it read before, and calls that each have weights of their own."""
    recipe, group = Conv2dAmx(), match.group
    offered = [_offered(match, p) for p in group.params]
    layouts = recipe.layouts(match, config, offered)
    sch = Schedule(recipe.compute(match, config, layouts))
    function = compile_kernels({"main": sch.mod["main"]}, machine)["main"]
    rng = np.random.default_rng(0)
    packed = [how.pack(_array(rng, p.shape, p.dtype)) for p, how in zip(group.params, layouts.params, strict=True)]
    arguments = [tvm.runtime.tensor(a) for a in packed]
    out = tvm.runtime.tensor(np.zeros(layouts.output.physical_shape(group.shape), packed[0].dtype))
    weights = [tvm.runtime.tensor(packed[1]) for _ in range(max(2, cold_bytes // packed[1].nbytes))]

    def with_weights(weight: Any) -> Call:
        return lambda: function(arguments[0], weight, *arguments[2:], out)

    return with_weights(arguments[1]), [with_weights(weight) for weight in weights]


def _offered(match: TileMatch, param: Any) -> Layout:
    """The layout in which the layer before leaves a tensor; the model's input is plain."""
    plain = len(param.shape) != 4 or param is match.operands.weight or param.shape[1] < 8
    return Layout.plain(len(param.shape)) if plain else Layout.blocked(4, match.operands.product.lanes)


def _array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype in ("int8", "uint8"):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)
    values = 0.1 * rng.standard_normal(shape).astype("float32")
    return values.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.abs(values) * 0.01
