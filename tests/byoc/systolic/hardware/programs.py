"""Random programs of int8 with all instructions that the hardware has, on accelerators of odd sizes."""

import dataclasses

import numpy as np

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.isa import Finish, Instruction, Load, Reduce, Store, Sync
from tvm_ext.byoc.systolic.code.layer import (
    ConvGeometry,
    GemmLayer,
    Matrix,
    Step,
    conv2d,
    filter_matrices,
    matmul,
    nchw,
    windowed,
)
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator

from ..cases import SMALL_INT8, random_float, random_int8


def random_program(seed: int, fusion: bool = False) -> Program:
    """Two dense layers or two convolutions; bias, scales, relu and a residual between."""
    rng = np.random.default_rng([seed, 20])
    sizes = {
        "rows": (1, 8),
        "cols": (1, 8),
        "vector_lanes": (1, 4),
        "dma_bytes_per_cycle": (1, 6),
        "dma_latency": (0, 12),
    }
    settings = {name: int(rng.integers(low, high + 1)) for name, (low, high) in sizes.items()}
    settings |= {"scratchpad_bytes": int(rng.integers(640, 1200)), "accumulator_bytes": int(rng.integers(40, 120)) * 8}
    hardware = Accelerator(**settings, compute_model=("overlapped", "physical")[seed % 2])
    dataflow = ("ws", "os", "is", None)[seed // 2 % 4]
    tensors, layers = (_convolutions if seed % 3 == 0 else _dense)(rng)
    return lower(layers, tensors, hardware, dataflow, fusion)


def random_reductions(seed: int) -> Program:
    """A pooling or depthwise convolution with a clip, then REDUCE of one that another has begun."""
    rng = np.random.default_rng([seed, 21])
    lanes, latency, compute = int(rng.integers(1, 6)), int(rng.integers(0, 5)), ("overlapped", "physical")[seed % 2]
    hardware = Accelerator(2, 2, scratchpad_bytes=900, accumulator_bytes=256, vector_lanes=lanes,
                           dma_bytes_per_cycle=3, dma_latency=latency, compute_model=compute)  # fmt: skip
    channels, size, kernel = int(rng.integers(1, 4)), (int(rng.integers(3, 6)), 4), (3, int(rng.integers(1, 4)))
    geometry = ConvGeometry(channels, size, kernel, padding=(1, 0, 1, 0))
    reduce = ("dot", "max", "sum")[seed % 3]
    weights = random_int8(rng, (1, kernel[0] * kernel[1], channels)) if reduce == "dot" else None
    low, high = ((-2.0, 3.0), (-np.inf, 0.0), (0.0, np.inf))[seed % 3]
    steps = (Step("dequantize", scale=0.02), Step("clip", scale=high, low=low), Step("multiply", scale=3.0))
    layers = [windowed("windows", reduce, "x", weights, "y", geometry, steps=steps, pad_value=-9)]
    shapes = (1, channels, *size), (1, channels, *geometry.out_size)
    program = lower(
        layers, [Tensor("x", "input", shapes[0], "int8"), Tensor("y", "output", shapes[1], "float32")], hardware
    )
    return dataclasses.replace(program, tensors=(*program.tensors, *_MORE), instructions=_accumulating(program, reduce))


_MORE = Tensor("a", "input", (30,), "int8"), Tensor("b", "input", (10,), "int8"), Tensor("c", "output", (6,), "int32")


def _accumulating(program: Program, reduce: str) -> tuple[Instruction, ...]:
    """3 x 2 words of 5 terms, twice, the second time of terms 5 bytes on."""
    first = len(program.tensors)
    loads = (Load("a", first, 0, 1, 30, 0, 30, 1), Load("b", first + 1, 40, 1, 10, 0, 10, 1))
    reduces = (Reduce(reduce, 0, 0, 40, 2, 3, 2, 5), Reduce(reduce, 1, 5, 40, 2, 3, 2, 4))
    store = Store(first + 2, 2, 3, 2, 0, 2, 1)
    return (*program.instructions[:-1], Sync(), *loads, Sync(), *reduces, Sync(), store, Finish())


def resnet18(image: int = 13, channels: int = 4, scratchpad: int = 2048, fusion: bool = False) -> Program:
    """ResNet-18 of int8 with all kinds of its layers, a block of each kind, and few channels of few pixels."""
    rng, wide = np.random.default_rng(22), 2 * channels
    memories = {"scratchpad_bytes": scratchpad, "accumulator_bytes": 2048}
    hardware = dataclasses.replace(SMALL_INT8, vector_lanes=4, **memories, dma_bytes_per_cycle=8, dma_latency=10)
    stem = ConvGeometry(3, (image, image), (7, 7), strides=(2, 2), padding=(3, 3, 3, 3))
    pool = ConvGeometry(channels, stem.out_size, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    same = ConvGeometry(channels, pool.out_size, (3, 3), padding=(1, 1, 1, 1))
    halved, down = dataclasses.replace(same, strides=(2, 2)), ConvGeometry(channels, same.size, (1, 1), strides=(2, 2))
    last = ConvGeometry(wide, halved.out_size, (3, 3), padding=(1, 1, 1, 1))
    whole = ConvGeometry(wide, last.size, last.size)
    tensors = [Tensor("x", "input", (1, 3, image, image), "uint8"), Tensor("y", "output", (1, 10), "float32")]

    def conv(name: str, x: str, geometry: ConvGeometry, n: int, residual: str = "", relu: bool = True) -> GemmLayer:
        tensors.append(Tensor(name, "scratch", (1, n, *geometry.out_size), "int8"))
        weights = filter_matrices(random_int8(rng, (n, geometry.channels, *geometry.kernel)))
        scale = 0.5 / (74 * (weights.shape[1] ** 0.5))
        steps = [Step("add", row=rng.integers(-300, 300, n).astype(np.int32), dtype="int32")]
        steps.append(Step("dequantize", row=np.full(n, scale, np.float32)))
        if residual:
            tile = nchw(residual, n, geometry.out_size, 1)
            steps.append(Step("add", tile=tile, dtype="int8", scale=0.25, zero_point=-9))
        steps += [Step("relu")] * relu + [Step("quantize", scale=0.5, zero_point=-9)]
        return conv2d(name, x, weights, name, geometry, steps=tuple(steps), pad_value=-9)

    layers = [
        conv("conv1", "x", stem, channels),
        windowed("pool", "max", "conv1", None, "pool", pool, pad_value=-128),
        conv("layer1.0.conv1", "pool", same, channels),
        conv("layer1.0.conv2", "layer1.0.conv1", same, channels, "pool"),
        conv("layer2.0.downsample", "layer1.0.conv2", down, wide, relu=False),
        conv("layer2.0.conv1", "layer1.0.conv2", halved, wide),
        conv("layer2.0.conv2", "layer2.0.conv1", last, wide, "layer2.0.downsample"),
        windowed("mean", "sum", "layer2.0.conv2", None, "mean", whole, steps=(
            Step("dequantize", scale=0.5 / (last.size[0] * last.size[1]), zero_point=-9 * last.size[0] * last.size[1]),
            Step("quantize", scale=0.5, zero_point=-9),
        )),
        matmul("fc", "mean", random_int8(rng, (wide, 10)), "y", (1, wide, 10), steps=(Step("dequantize", scale=0.01),)),
    ]  # fmt: skip
    tensors += [Tensor("pool", "scratch", (1, channels, *pool.out_size), "int8")]
    tensors += [Tensor("mean", "scratch", (1, wide, 1, 1), "int8")]
    return lower(layers, tensors, hardware, fusion=fusion)


def random_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of all values of their dtypes."""
    rng = np.random.default_rng(seed)
    return {t.name: rng.integers(0, 256, t.shape).astype(np.uint8).astype(t.dtype) for t in program.of_role("input")}


def _quantized(rng: np.random.Generator, n: int) -> tuple[Step, ...]:
    """Bias, a scale a channel, relu, and int8 again."""
    return (
        Step("add", row=rng.integers(-3000, 3000, n).astype(np.int32), dtype="int32"),
        Step("dequantize", row=np.exp(random_float(rng, (n,)) - 6)),
        Step("relu"),
        Step("quantize", scale=float(np.float32(rng.uniform(0.3, 3))), zero_point=int(rng.integers(-128, 128))),
    )


def _dense(rng: np.random.Generator) -> tuple[list[Tensor], list[GemmLayer]]:
    """uint8 to int8, and a product of two tensors to float32 or int32."""
    m, k, h, n = (int(size) for size in rng.integers(1, 14, 4))
    is_float = bool(rng.integers(2))
    last: tuple[Step, ...] = (Step("relu", dtype="int32"),)
    if is_float:
        last = (
            Step("dequantize", scale=0.0123),
            Step("add", tile=Matrix("r", n), dtype="int8", scale=0.37, zero_point=5),
            Step("multiply", row=random_float(rng, (n,))),
            Step("add", row=random_float(rng, (n,))),
        )
    layers = [
        matmul("first", "x", random_int8(rng, (k, h)), "h", (m, k, h), steps=_quantized(rng, h)),
        matmul("second", "h", "w", "y", (m, h, n), steps=last),
    ]
    tensors = [
        Tensor("x", "input", (m, k), "uint8"),
        Tensor("w", "input", (h, n), "int8"),
        Tensor("h", "scratch", (m, h), "int8"),
        Tensor("y", "output", (m, n), "float32" if is_float else "int32"),
    ]
    return [*tensors, Tensor("r", "input", (m, n), "uint8")] if is_float else tensors, layers


def _convolutions(rng: np.random.Generator) -> tuple[list[Tensor], list[GemmLayer]]:
    """Padding with a zero point, and a residual from before the first one."""
    channels, size = int(rng.integers(1, 4)), (int(rng.integers(2, 6)), int(rng.integers(2, 6)))
    geometry = ConvGeometry(channels, size, (3, 3), padding=(1, 1, 1, 1))
    first, second = (filter_matrices(random_int8(rng, (channels, channels, 3, 3))) for _ in range(2))
    dequantize, residual = Step("dequantize", scale=0.002), Step("add", tile=nchw("x", channels, size, 1), dtype="int8")
    layers = [
        conv2d("first", "x", first, "h", geometry, steps=_quantized(rng, channels), pad_value=-7),
        conv2d("second", "h", second, "y", geometry, steps=(dequantize, residual, Step("quantize", scale=0.5))),
    ]
    shape = (1, channels, *size)
    tensors = [Tensor("x", "input", shape, "int8"), Tensor("h", "scratch", shape, "uint8")]
    return [*tensors, Tensor("y", "output", shape, "int8")], layers
