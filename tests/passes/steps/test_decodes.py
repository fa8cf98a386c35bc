"""Decodes in groups: each reader of a stored tensor decodes it, what stores a tensor is the end of a kernel."""

from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.oracles.reference import onnxruntime_outputs
from tests.passes.stages import stage
from tvm_ext.passes.lowering.group_operations import GroupOperations

IMAGE = (1, 8, 5, 7)


def stored(x: str, y: str, scale: str = "s", zero: str = "z") -> list[onnx.NodeProto]:
    """y is x, rounded to 8 bits."""
    return [
        node("QuantizeLinear", f"{x} {scale} {zero}", f"{y}_q"),
        node("DequantizeLinear", f"{y}_q {scale} {zero}", y),
    ]


def weight(y: str) -> onnx.NodeProto:
    return node("DequantizeLinear", "w ws wz", y, axis=0)


def conv(x: str, w: str, y: str) -> onnx.NodeProto:
    return node("Conv", f"{x} {w}", y, pads=[1, 1, 1, 1])


def on_image(nodes: list[onnx.NodeProto], *outputs: str) -> onnx.ModelProto:
    whole = np.random.default_rng(8).integers(-127, 128, (8, 8, 3, 3))
    constants = {
        "w": whole.astype(np.int8), "ws": np.full(8, 0.0078125, np.float32),
        "wz": np.zeros(8, np.int8), "s": np.array(0.0625, np.float32), "z": np.array(130, np.uint8),
    }  # fmt: skip
    used = {name for n in nodes for name in n.input}
    constants = {name: array for name, array in constants.items() if name in used}
    return model(nodes, [value("x", IMAGE)], [value(name, IMAGE) for name in outputs], constants)


def groups(proto: onnx.ModelProto, **options: Any) -> list[str]:
    return sorted(stage(proto, GroupOperations, **options).groups)


def agrees(proto: onnx.ModelProto) -> None:
    """Equal to onnxruntime without its optimizations: with scales that are powers of two, float32 sums are exact."""
    feed = {"x": random(*IMAGE, scale=3.0)}
    outputs = tvm_ext.compile(proto, cache=False)(feed)
    for name, want in onnxruntime_outputs(proto, feed).items():
        assert np.array_equal(outputs[name], want)


def test_a_convolution_reads_and_writes_what_is_stored() -> None:
    proto = on_image(
        [*stored("x", "a"), weight("v"), conv("a", "v", "c"), node("Relu", "c", "r"), *stored("r", "y")], "y"
    )
    expected = ["dequantize dequantize conv2d relu quantize dequantize", "quantize"]
    assert groups(proto) == sorted(expected)
    agrees(proto)


def test_every_reader_decodes_for_itself() -> None:
    nodes = [
        *stored("x", "a"), weight("v"), conv("a", "v", "c"), *stored("c", "d"), conv("d", "v", "e"),
        node("Add", "e d", "f"), *stored("f", "y"),
    ]  # fmt: skip
    first = "dequantize dequantize conv2d quantize"
    second = "dequantize dequantize conv2d add quantize dequantize"
    assert groups(on_image(nodes, "y")) == sorted(["quantize", first, second])
    agrees(on_image(nodes, "y"))


def test_one_of_two_convolutions_adds_and_the_other_stores_its_result() -> None:
    nodes = [
        *stored("x", "a"), weight("v"), conv("a", "v", "c"), *stored("c", "d"), node("Relu", "a", "g"),
        conv("g", "v", "e"), *stored("e", "f"), node("Add", "d f", "h"), *stored("h", "y"),
    ]  # fmt: skip
    adding = "dequantize dequantize conv2d quantize dequantize dequantize add quantize dequantize"
    storing = "dequantize conv2d quantize"  # it reads the relu, which is float32
    assert groups(on_image(nodes, "y")) == sorted(["quantize", "dequantize relu", adding, storing])
    agrees(on_image(nodes, "y"))


def test_what_stands_between_two_encodes_is_one_kernel() -> None:
    nodes = [*stored("x", "a"), node("Sigmoid", "a", "b"), *stored("b", "c"), node("Mul", "a c", "y")]
    assert groups(on_image(nodes, "y")) == ["quantize dequantize sigmoid quantize dequantize multiply"]
    agrees(on_image(nodes, "y"))


def test_an_output_that_a_convolution_reads_too_is_decoded_by_a_kernel_of_its_own() -> None:
    nodes = [*stored("x", "a"), weight("v"), conv("a", "v", "y")]
    assert groups(on_image(nodes, "a", "y")) == sorted(["quantize", "dequantize", "dequantize dequantize conv2d"])
    agrees(on_image(nodes, "a", "y"))


def test_without_fusion_every_operation_is_a_kernel() -> None:
    nodes = [*stored("x", "a"), weight("v"), conv("a", "v", "y")]
    assert groups(on_image(nodes, "y"), fusion="none") == sorted(["quantize", "dequantize", "dequantize", "conv2d"])


@pytest.mark.parametrize("zero", [0, 1, 254, 255])
def test_quantize_rounds_halves_to_even_and_saturates_as_onnxruntime(zero: int) -> None:
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    constants = {"s": np.array(0.1, np.float32), "z": np.array(zero, np.uint8)}
    proto = model(nodes, [value("x", (1, 4099))], [value("y", (1, 4099))], constants)
    x = np.concatenate([np.arange(-2046, 2047) * np.float32(0.05), [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0]])
    feed = {"x": x.astype(np.float32)[None]}
    expected = onnxruntime_outputs(proto, feed)["y"]
    assert np.array_equal(tvm_ext.compile(proto, cache=False)(feed)["y"], expected)
