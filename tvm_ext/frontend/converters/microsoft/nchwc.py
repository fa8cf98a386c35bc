"""Operators of com.microsoft.nchwc, which onnxruntime writes where it may optimize for one processor.

    ReorderInput(x); Conv(x, w in blocks, b, z); ReorderOutput(y)   ->   pad; activation(conv(x, w, b) + z); slice

Its tensors hold channels in blocks, and so many of them that blocks are full. Here they are plain NCHW tensors of as
many channels, for layouts are chosen by passes; weights, which lie in the file as its kernels read them, are put back.

The file does not say how large a block is: onnxruntime takes 16 channels on a processor with AVX-512 and 8 on others,
and a model that was saved so runs, there as here, on the kind of processor that it was saved on.
"""

import functools
from typing import Any

import numpy as np
from tvm import relax

from ....runtime.cpu import cpu_flags
from ...checks.refusal import Refusal
from ..base import NCHWC, Attributes, constant, converts, emit, known, static_shape
from .standard import channels_first, channels_last, fused_conv, same, standard, without


@functools.cache
def block_size() -> int:
    """Channels of a block on this processor, as onnxruntime has them."""
    return 16 if "avx512f" in cpu_flags() else 8


@converts("ReorderInput", NCHWC)
def reorder_input(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ReorderInput(x) -> x with channels of zeros up to a whole block; of NHWC with `channels_last`."""
    x = channels_first(inputs[0]) if attributes.get("channels_last", 0) else inputs[0]
    missing = -static_shape(x, "what is reordered")[1] % block_size()
    if not missing:
        return relax.op.reshape(x, static_shape(x, "what is reordered"))
    return relax.op.nn.pad(x, [0, 0, 0, missing, 0, 0, 0, 0])


@converts("ReorderOutput", NCHWC)
def reorder_output(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ReorderOutput(x) -> the first `channels` of x; in NHWC with `channels_last`."""
    y = emit(relax.op.strided_slice(inputs[0], [1], [0], [int(attributes["channels"])]))
    return channels_last(y) if attributes.get("channels_last", 0) else y


@converts("Conv", NCHWC)
def conv(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Conv(x, w, b, z) -> activation(conv(x, w, b) + z) of a weight in blocks, which must be known."""
    return fused_conv([inputs[0], constant(_plain(known(inputs[1], "W"))), inputs[2], inputs[3]], attributes, opset)


def _plain(weight: np.ndarray) -> np.ndarray:
    """A weight (filters, channels, height, width) that lies in blocks of filters, and of channels where they fill them.

    OIHW8i8o, or OIHW8o with less channels than a block has.
    """
    filters, channels, height, width = weight.shape
    block = block_size()
    if filters % block:
        raise Refusal(
            f"a weight of {filters} filters in blocks of {block}: the model was optimized for another processor",
            fix="save it with optimization level ORT_ENABLE_EXTENDED, whose result is of no processor",
        )
    if channels % block:
        apart = weight.reshape(filters // block, channels, height, width, block)
        return np.ascontiguousarray(apart.transpose(0, 4, 1, 2, 3).reshape(weight.shape))
    blocks = weight.reshape(filters // block, channels // block, height, width, block, block)
    return np.ascontiguousarray(blocks.transpose(0, 5, 1, 4, 2, 3).reshape(weight.shape))


@converts("Upsample", NCHWC)
def upsample(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Upsample(x) -> Resize by the attribute `scales`."""
    scales = constant(np.array(attributes["scales"]), "float32")
    rest = {"nearest_mode": b"floor", **without(attributes, "scales")}
    return standard("Resize", [inputs[0], None, scales], rest, 13)


for _pool in ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"):
    converts(_pool, NCHWC)(same(_pool))
