"""Integer operators against onnxruntime without its graph optimizations, bit by bit, on the CPU and offloaded."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.byoc.systolic.backend import BACKEND

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}


def integers(shape: Any, dtype: str, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.asarray(np.random.default_rng([seed, *shape]).integers(info.min, int(info.max) + 1, shape), dtype)


def equal_bits(proto: onnx.ModelProto, x: np.ndarray, regions: int = 1) -> None:
    expected = first(onnxruntime_outputs(proto, {"x": x}))
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(first(tvm_ext.compile(proto, cache=False).run({"x": x})), expected)
    settings = {"dtype": "int8", "when": "always"}
    offloaded = tvm_ext.compile(proto, cache=False, offload=BACKEND, offload_options=settings)
    assert len(offloaded.offload_report().regions) == regions
    np.testing.assert_array_equal(first(offloaded.run({"x": x})), expected)


def first(outputs: Any) -> np.ndarray:
    return np.asarray(next(iter(outputs.values())) if isinstance(outputs, dict) else outputs[0])


def quantization(w: np.ndarray, channel: bool, axis: int, dtype: str) -> dict[str, np.ndarray]:
    """Scales and zero points; those of the weight per channel or not."""
    n = w.shape[axis]
    rng = np.random.default_rng(n)
    scale = np.float32(rng.random(n) * 0.02 + 0.002) if channel else np.float32(0.011)
    zero = np.zeros(scale.shape, w.dtype)
    inputs: dict[str, Any] = {"w": w, "sx": np.float32(0.037), "zx": np.array(7, dtype), "sw": scale, "zw": zero}
    return inputs | {"sy": np.float32(1.7), "zy": np.array(3, dtype)}


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_qlinear_matmul(dtype: str, channel: bool) -> None:
    w = integers((33, 7), "int8")
    nodes = [node("QLinearMatMul", "x sx zx w sw zw sy zy", "y")]
    proto = model(nodes, [value("x", (2, 5, 33), TYPES[dtype])], [value("y", (2, 5, 7), TYPES[dtype])],
                  quantization(w, channel, 1, dtype))  # fmt: skip
    equal_bits(proto, integers((2, 5, 33), dtype))


@pytest.mark.parametrize("zero", [0, -5])
@pytest.mark.parametrize(
    ("shape", "filters", "attributes"),
    [
        ((1, 16, 9, 7), (8, 16, 3, 3), {"pads": [1, 0, 2, 1]}),
        ((2, 16, 9, 7), (8, 4, 3, 2), {"group": 4, "strides": [2, 1]}),
        ((1, 16, 30), (8, 16, 3), {"pads": [3, 2], "dilations": [3]}),
        ((1, 16, 30), (8, 16, 5), {"strides": [2]}),
    ],
    ids=str,
)
def test_a_convolution_of_bytes_whose_zero_point_is_computed(
    shape: Any, filters: Any, attributes: Any, zero: int
) -> None:
    """As dynamic quantization writes it: of one dimension and of two, it is one of bytes, not of int32."""
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("ConvInteger", "q w z zw", "y", **attributes)]
    proto = model(nodes, [value("x", shape)], [value("y", None, TensorProto.INT32)],
                  {"w": integers(filters, "int8"), "zw": np.int8(zero)})  # fmt: skip
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    compiled = tvm_ext.compile(proto, cache=False)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], first(onnxruntime_outputs(proto, {"x": x})))
    if "group" not in attributes and not zero:
        assert "conv2d" in {kernel["recipe"].partition("_")[0] for kernel in compiled.report["kernels"]}


@pytest.mark.parametrize("attributes", [{"pads": [3, 1], "strides": [2]}, {"auto_pad": "SAME_LOWER"}],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("integer", [True, False])
def test_a_convolution_of_a_line_of_bytes(integer: bool, attributes: Any) -> None:
    """With a known zero point it is one of an image of height 1, for which there are recipes, epilogue and all."""
    w, x = integers((32, 16, 4), "int8"), integers((2, 16, 40), "uint8")
    known = quantization(w, True, 0, "uint8") | {"c": np.float32(0.004), "b": np.float32(integers((32, 1), "int8"))}
    if integer:
        nodes = [node("ConvInteger", "x w zx", "s", **attributes), node("Cast", "s", "f", to=TensorProto.FLOAT)]
        nodes += [node("Mul", "f c", "m"), node("Add", "m b", "a"), node("Relu", "a", "y")]
    else:
        nodes = [node("QLinearConv", "x sx zx w sw zw sy zy", "y", **attributes)]
    kind = TensorProto.FLOAT if integer else TensorProto.UINT8
    proto = model(nodes, [value("x", x.shape, TensorProto.UINT8)], [value("y", None, kind)], known)
    compiled = tvm_ext.compile(proto, cache=False)
    np.testing.assert_allclose(
        first(compiled.run({"x": x})), first(onnxruntime_outputs(proto, {"x": x})), rtol=1e-6, atol=1e-4 * integer
    )
    recipes = {kernel["recipe"].partition("_")[0] for kernel in compiled.report["kernels"]}
    assert recipes <= {"conv2d", "layout"} and "conv2d" in recipes


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_qlinear_conv(groups: int, channel: bool) -> None:
    weights = quantization(integers((6, 4 // groups, 3, 3), "int8"), channel, 0, "uint8")
    weights["b"] = np.arange(-3000, 3000, 1000).astype(np.int32)
    nodes = [node("QLinearConv", "x sx zx w sw zw sy zy b", "y", pads=[1, 0, 1, 2], strides=[1, 2], group=groups)]
    inputs, outputs = [value("x", (2, 4, 7, 9), 2)], [value("y", (2, 6, 7, 5), 2)]
    equal_bits(model(nodes, inputs, outputs, weights), integers((2, 4, 7, 9), "uint8"))


@pytest.mark.parametrize("padding", [{"pads": [1, 1, 0, 2]}, {"auto_pad": "SAME_UPPER"}])
def test_conv_integer(padding: dict[str, Any]) -> None:
    weights = {"w": integers((5, 3, 3, 3), "uint8"), "zx": np.array(200, np.uint8), "zw": np.array(100, np.uint8)}
    size = (5, 7) if "auto_pad" not in padding else (6, 6)
    proto = model([node("ConvInteger", "x w zx zw", "y", **padding)], [value("x", (1, 3, 6, 6), 2)],
                  [value("y", (1, 5, *size), 6)], weights)  # fmt: skip
    equal_bits(proto, integers((1, 3, 6, 6), "uint8"))


def test_zero_points_may_be_left_out() -> None:
    weights = {"w": integers((5, 3, 2, 2), "uint8")}
    proto = model([node("ConvInteger", "x w", "y")], [value("x", (1, 3, 6, 6), 2)], [value("y", (1, 5, 5, 5), 6)],
                  weights)  # fmt: skip
    equal_bits(proto, integers((1, 3, 6, 6), "uint8"))


def test_matmul_integer() -> None:
    """TVM's own converter, with the zero point of each column."""
    weights = {"w": integers((33, 7), "uint8"), "zx": np.array(255, np.uint8), "zw": integers((7,), "uint8")}
    proto = model([node("MatMulInteger", "x w zx zw", "y")], [value("x", (5, 33), 2)], [value("y", (5, 7), 6)], weights)
    equal_bits(proto, integers((5, 33), "uint8"))
