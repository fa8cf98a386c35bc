"""Operators of com.microsoft that ONNX has too, against onnxruntime or, where its CPU lacks them, against ONNX's."""

from typing import Any

import numpy as np
import pytest

from tests.oracles.reference import onnxruntime_outputs

from .cases import Known, agree, built, case, floats, rng_of


def test_convolutions_with_an_activation() -> None:
    """Every other one with a residual before it."""
    rng, cases = rng_of(1), []
    activations: dict[str, list[float]] = {
        "Relu": [], "HardSigmoid": [0.2, 0.5], "LeakyRelu": [0.2], "Clip": [0.0, 6.0], "Sigmoid": [], "Tanh": [],
    }  # fmt: skip
    weights = Known(floats(rng, 7, 3, 3, 3)), Known(floats(rng, 7))
    for number, (activation, parameters) in enumerate(activations.items()):
        more: Any = {"activation_params": parameters} if parameters else {"pads": [1, 1, 1, 1]}
        size = (9, 11) if "pads" in more else (7, 9)
        residual = [floats(rng, 1, 7, *size)] if number % 2 else []
        cases.append(case(floats(rng, 1, 3, 9, 11), *weights, *residual, activation=activation, **more))
    agree("FusedConv", *cases, rtol=1e-4, atol=1e-5)


def nchw(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def nhwc(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def test_channels_last() -> None:
    rng = rng_of(2)
    x, z, weight, bias = floats(rng, 2, 9, 11, 6), floats(rng, 2, 5, 6, 8), floats(rng, 8, 3, 3, 3), floats(rng, 8)
    more: Any = {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 2}
    whole = case(nchw(x), weight, bias, nchw(z), activation="Relu", **more)
    plain = case(nchw(x), weight, bias, **more)
    wanted = [nhwc(y) for y in onnxruntime_outputs(*built("FusedConv", [whole, plain], "com.microsoft")).values()]
    parts = Known(weight), Known(bias)
    agree("NhwcFusedConv", case(x, *parts, z, activation="Relu", **more), case(x, *parts, **more), wanted=wanted,
          rtol=1e-4, atol=1e-5)  # fmt: skip
    agree("NhwcConv", case(x, *parts, **more), wanted=wanted[1:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_pools_of_bytes_with_channels_last(dtype: str) -> None:
    rng = rng_of(3)
    x = np.array(rng.integers(0, 120, (2, 9, 11, 5)), dtype)
    agree("NhwcMaxPool", case(x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]))


def test_windows_that_are_larger_than_the_padded_image() -> None:
    """By less than a stride: then onnxruntime makes one output; none if by a stride."""
    x, scale, zero = np.arange(24, dtype=np.uint8).reshape(1, 1, 4, 6), Known(np.float32(0.5)), Known(np.uint8(3))
    window: Any = {"kernel_shape": [3, 2], "dilations": [1, 2]}
    agree("NhwcMaxPool", *(case(x, strides=[s, 2], pads=[0, 0, p, 1], **window) for s, p in ((3, 0), (2, 1), (2, 0))))
    y = x.reshape(1, 6, 1, 4)
    agree("QLinearAveragePool", *(case(y, scale, zero, scale, zero, kernel_shape=[3, 2], strides=s)
                                  for s in ([3, 2], [2, 1])))  # fmt: skip


def test_a_transposed_convolution() -> None:
    rng = rng_of(4)
    declared = floats(rng, 1, 4, 5, 6), Known(floats(rng, 4, 3, 3, 3)), Known(np.int64([1, 0, 1, 1]))
    agree("ConvTransposeWithDynamicPads", case(*declared, Known(floats(rng, 3)), strides=[2, 2]), case(*declared),
          rtol=1e-4, atol=1e-5)  # fmt: skip


def test_movement() -> None:
    rng = rng_of(5)
    x = floats(rng, 3, 4, 5)
    agree("ExpandDims", case(x, Known(np.int32(1))), case(x, Known(np.int32(-1))))
    agree("GatherND", case(x, np.int64([[0, 1], [2, 3]])), case(x, np.int64([[[1]], [[2]]])))
    agree("Trilu", case(x), case(x, upper=0), case(x, Known(np.int64(-1)), upper=1))
    agree("UnfoldTensor", case(x, dim=1, size=2, step=1), case(floats(rng, 3, 11), dim=-1, size=4, step=3))
    agree("TorchEmbedding", case(x, np.int64([[0, 2], [1, 1]])), wanted=[x[[[0, 2], [1, 1]]]])


def test_pads() -> None:
    rng = rng_of(6)
    x = floats(rng, 3, 4)
    agree(
        "Pad",
        case(x, Known(np.int64([1, 0, 0, 2])), Known(np.float32([2.5])), mode="constant"),
        case(x, Known(np.int64([[1, 1, 0, 2]]).reshape(-1)), mode="reflect"),
        case(x, Known(np.int64([0, 1, 2, 0])), mode="edge"),
    )


def test_numbers() -> None:
    inputs: list[list[Any]] = [
        [np.float32(1), np.float32(8), np.float32(1.5)],
        [np.int32([2]), np.int32([9])],
        [np.int64(5), np.int64(-4), np.int64(-2)],
    ]
    agree("Range", *(case(*map(Known, operands)) for operands in inputs))


@pytest.mark.parametrize(
    "modes",
    [[("bilinear", "zeros"), ("nearest", "border")], pytest.param([("bicubic", "zeros")], marks=pytest.mark.long)],
)
def test_samples(modes: list[tuple[str, str]]) -> None:
    """All paddings and places of corners are tested of ONNX's operator, whose converter it is."""
    rng = rng_of(7)
    x, grid = floats(rng, 2, 3, 5, 7), np.float32(rng.uniform(-1.3, 1.3, (2, 4, 6, 2)))
    cases = [case(x, grid, mode=m, padding_mode=padding, align_corners=i) for i, (m, padding) in enumerate(modes)]
    agree("GridSample", *cases, atol=2e-5)


def test_integers() -> None:
    rng = rng_of(8)
    a, b = (np.int16(rng.integers(-3000, 3000, s)) for s in ((2, 5, 7), (7, 3)))
    agree("MatMulInteger16", case(a, b))
    x = np.uint8(rng.integers(0, 256, (3, 4, 5)))
    agree("ReduceSumInteger", case(x, axes=[1], keepdims=0), wanted=[x.astype(np.uint32).sum(1, dtype=np.uint32)])
    y, zeros = np.uint8(rng.integers(0, 256, (4, 1))), [np.uint8(110), np.uint8(97)]
    wanted = (x.astype(np.int32) - 110) * (y.astype(np.int32) - 97)
    agree("MulInteger", case(x, Known(zeros[0]), y, Known(zeros[1])), wanted=[wanted])
