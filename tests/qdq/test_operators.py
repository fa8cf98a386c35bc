"""QLinear and integer operators with scales of every kind, bit by bit; dynamic quantization and its sums."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs

CODES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
#: Data, weight: onnxruntime has no kernel for int8 data with uint8 weights.
TYPES = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")]
#: And where the zero point of the data lies.
ENDS = [("uint8", "int8", "low"), ("uint8", "int8", "inside"), ("int8", "int8", "high"), ("int8", "int8", "low"),
        ("uint8", "uint8", "high")]  # fmt: skip


def integers(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(info.min, int(info.max) + 1, shape), dtype)


def same_bits(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], generic: bool = False) -> None:
    wanted = onnxruntime_outputs(proto, feeds)["y"]
    assert len(np.unique(wanted)) > 10
    compiled = tvm_ext.compile(proto, cache=False, threads=2)
    assert np.array_equal(compiled.run(feeds)["y"], wanted)
    recipes = {k["recipe"] for k in compiled.report["kernels"]}
    assert generic or "generic" not in recipes


def parameters(rng: np.random.Generator, data: str, weight: str, count: int, end: str) -> dict[str, Any]:
    """Scales without a pattern, one a channel where there are several; zero points at an end of the range or inside."""
    low, high = np.iinfo(data).min, np.iinfo(data).max
    zero = {"low": low, "high": high, "inside": (low + high) // 2 + 3}[end]
    scales = np.float32(rng.uniform(0.002, 0.02, count if end != "low" else ()))
    middle = 0 if weight == "int8" else 128
    return {
        "sx": np.float32(rng.uniform(0.01, 0.05)), "zx": np.array(zero, data), "sw": scales,
        "zw": np.full(scales.shape, middle, weight), "sy": np.float32(1.1), "zy": np.array(zero // 2, data),
    }  # fmt: skip


@pytest.mark.parametrize(("data", "weight", "end"), ENDS)
def test_qlinear_conv(data: str, weight: str, end: str) -> None:
    rng = np.random.default_rng(1)
    inputs = parameters(rng, data, weight, 13, end) | {"w": integers(rng, weight, 13, 5, 3, 3)}
    inputs |= {"b": rng.integers(-5000, 5000, 13).astype(np.int32)}
    nodes = [node("QLinearConv", "x sx zx w sw zw sy zy b", "y", pads=[1, 2, 0, 1], strides=[1, 2])]
    proto = model(nodes, [value("x", (2, 5, 9, 11), CODES[data])], [value("y", None, CODES[data])], inputs)
    same_bits(proto, {"x": integers(rng, data, 2, 5, 9, 11)})


@pytest.mark.parametrize(("data", "weight", "end"), ENDS)
def test_qlinear_matmul(data: str, weight: str, end: str) -> None:
    rng = np.random.default_rng(2)
    inputs = parameters(rng, data, weight, 19, end) | {"w": integers(rng, weight, 37, 19)}
    nodes = [node("QLinearMatMul", "x sx zx w sw zw sy zy", "y")]
    proto = model(nodes, [value("x", (3, 7, 37), CODES[data])], [value("y", None, CODES[data])], inputs)
    same_bits(proto, {"x": integers(rng, data, 3, 7, 37)})


@pytest.mark.parametrize(("data", "weight"), TYPES)
@pytest.mark.parametrize("zero", [0, 9])
def test_matmul_integer(data: str, weight: str, zero: int) -> None:
    """A zero point of the weight is taken away from its constant, where that fits into int8."""
    rng = np.random.default_rng(3)
    inputs = {"w": integers(rng, weight, 11, 17) // 2, "zx": np.array(7, data), "zw": np.array(zero, weight)}
    nodes = [node("MatMulInteger", "x w zx zw", "y")]
    proto = model(nodes, [value("x", (2, 7, 11), CODES[data])], [value("y", None, TensorProto.INT32)], inputs)
    same_bits(proto, {"x": integers(rng, data, 2, 7, 11)})


@pytest.mark.parametrize(
    ("weight", "zero", "fits"),
    [("int8", 0, True), ("int8", 9, True), ("uint8", 0, True), ("uint8", 9, True), ("uint8", 0, False),
     ("uint8", 131, False)],
)  # fmt: skip
def test_conv_integer(weight: str, zero: int, fits: bool) -> None:
    """A weight of large bytes does not fit into int8 without its zero point, and goes the generic way."""
    rng = np.random.default_rng(4)
    array = integers(rng, weight, 6, 5, 3, 3) // (2 if fits else 1)
    inputs = {"w": array, "zx": np.array(200, np.uint8), "zw": np.array(zero, weight)}
    nodes = [node("ConvInteger", "x w zx zw", "y", pads=[1, 0, 1, 2])]
    proto = model(nodes, [value("x", (1, 5, 7, 9), 2)], [value("y", None, TensorProto.INT32)], inputs)
    same_bits(proto, {"x": integers(rng, "uint8", 1, 5, 7, 9)}, generic=not fits)


@pytest.mark.parametrize("zeros", ["one", "several"])
def test_dynamic_quantization(zeros: str) -> None:
    """The scale of the data is computed; zero points by column are no part of a decode, but still right."""
    rng = np.random.default_rng(5)
    zero = np.array(3, np.int8) if zeros == "one" else rng.integers(-5, 5, 17).astype(np.int8)
    inputs = {"w": integers(rng, "int8", 33, 17), "zw": zero, "sw": np.float32(0.013)}
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z zw", "m"),
        node("Cast", "m", "f", to=TensorProto.FLOAT), node("Mul", "s sw", "t"), node("Mul", "f t", "y"),
    ]  # fmt: skip
    proto = model(nodes, [value("x", (5, 33))], [value("y", None)], inputs)
    feeds = {"x": rng.normal(0, 1, (5, 33)).astype(np.float32)}
    wanted = onnxruntime_outputs(proto, feeds)["y"]
    result = tvm_ext.compile(proto, cache=False, threads=2).run(feeds)["y"]
    assert np.array_equal(result, wanted)
