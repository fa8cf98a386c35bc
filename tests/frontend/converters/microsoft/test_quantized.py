"""Quantized operators of com.microsoft against onnxruntime; scales are powers of two, so that the floats are exact."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.frontend.converters.test_quantize import CODES, equal_bits, integers, powers, rng_of
from tests.frontend.graphs import model, value
from tests.oracles.reference import onnxruntime_outputs

#: Zero points of int8 are odd below, which tells where onnxruntime rounds.
BYTES = ["int8", pytest.param("uint8", marks=pytest.mark.long)]


def contributed(operator: str, inputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(operator, inputs, ["y"], operator, domain="com.microsoft", **attributes)


def small(operator: str, names: list[str], shapes: dict[str, Any], dtype: str, weights: Any, **attributes: Any) -> Any:
    inputs = [value(name, shape, CODES[dtype]) for name, shape in shapes.items()]
    node = contributed(operator, names, **attributes)
    return model([node], inputs, [value("y", None, CODES[dtype])], weights, domains=["com.microsoft"])


def scales(seed: int, dtype: str, *names: str) -> dict[str, np.ndarray]:
    """A scale and a zero point for each name."""
    rng = rng_of(seed)
    drawn = {f"s{name}": np.asarray(powers(rng), np.float32) for name in names}
    low, high = (-9, 9) if dtype == "int8" else (110, 140)
    return drawn | {f"z{name}": np.array(rng.integers(low, high), dtype) for name in names}


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_of_two(operator: str, dtype: str) -> None:
    weights = scales(1, dtype, "a", "b", "y")
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    proto = small(operator, names, {"a": [3, 5, 7], "b": [5, 1]}, dtype, weights)
    equal_bits(proto, {"a": integers(rng_of(2), dtype, 3, 5, 7), "b": integers(rng_of(3), dtype, 5, 1)})


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [("QLinearGlobalAveragePool", {}), ("QLinearGlobalAveragePool", {"channels_last": 1}),
     ("QLinearLeakyRelu", {"alpha": 0.25}), ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
     ("QLinearSigmoid", {}), ("QLinearSoftmax", {"axis": -1, "opset": 13})],
)  # fmt: skip
def test_of_one(operator: str, attributes: dict[str, Any], dtype: str) -> None:
    weights = scales(4, dtype, "x", "y")
    if operator in ("QLinearSigmoid", "QLinearSoftmax"):
        weights |= {"sy": np.float32(1 / 256), "zy": np.array(0 if dtype == "uint8" else -128, dtype)}
    proto = small(operator, ["x", "sx", "zx", "sy", "zy"], {"x": [2, 3, 4, 8]}, dtype, weights, **attributes)
    x = integers(rng_of(5), dtype, 2, 3, 4, 8)
    result, (wanted,) = (
        tvm_ext.compile(proto, cache=False).run({"x": x})["y"],
        onnxruntime_outputs(proto, {"x": x}).values(),
    )
    assert len(np.unique(wanted)) > 3 and result.dtype == wanted.dtype and result.shape == wanted.shape
    assert np.abs(result.astype(int) - wanted).max() <= (operator in ("QLinearSigmoid", "QLinearSoftmax"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    ("scale", "ratio", "step"), [(0.3, 1, 2), (0.0123, 3, 2), pytest.param(0.0717, 5, 8, marks=pytest.mark.long)]
)
def test_ties_fall_to_the_same_side(operator: str, scale: float, ratio: float, step: float, dtype: str) -> None:
    """Scales in simple ratios, which are no powers of two: many results lie in the middle of two stored values, but for
    a rounding."""
    one = np.float32(scale)
    weights = {"sa": one, "sb": one * np.float32(ratio), "sy": one * np.float32(step)}
    if operator == "QLinearMul":
        weights["sy"] = one * weights["sb"] * np.float32(128)
    rng = rng_of(13)
    weights |= {name: integers(rng, dtype) for name in ("za", "zb", "zy")}
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    for other in ([50, 77], []):
        proto = small(operator, names, {"a": [3, 50, 77], "b": other}, dtype, weights)
        equal_bits(proto, {"a": integers(rng, dtype, 3, 50, 77), "b": integers(rng, dtype, *other)})


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
def test_ties_of_a_global_pool(last: int, dtype: str) -> None:
    for scale in (0.3, 0.0123):
        weights = {"sx": np.float32(scale), "sy": np.float32(scale) * np.float32(0.125)}
        weights |= {"zx": np.array(120 if dtype == "uint8" else -8, dtype), "zy": np.array(60, dtype)}
        names, shape = ["x", "sx", "zx", "sy", "zy"], {"x": [5, 16, 8, 8]}
        proto = small("QLinearGlobalAveragePool", names, shape, dtype, weights, channels_last=last)
        equal_bits(proto, {"x": integers(rng_of(15), dtype, 5, 16, 8, 8)})


@pytest.mark.parametrize("floats", [False, True])
def test_gemm_with_a_factor(floats: bool) -> None:
    rng = rng_of(16)
    weights = {"b": integers(rng, "int8", 33, 11), "c": np.arange(-5000, 6000, 1000, dtype=np.int32)}
    weights |= {"sa": np.float32(0.0371), "za": np.array(120, np.uint8), "sb": np.float32(rng.uniform(0.001, 0.02, 11))}
    weights |= {"zb": np.zeros(11, np.int8), "sy": np.float32(0.13), "zy": np.array(100, np.uint8)}
    names = ["a", "sa", "za", "b", "sb", "zb", "c", *([] if floats else ["sy", "zy"])]
    proto = small("QGemm", names, {"a": [5, 33]}, "uint8", {n: weights[n] for n in names if n != "a"}, alpha=0.3)
    proto.graph.output[0].CopyFrom(value("y", None, TensorProto.FLOAT if floats else TensorProto.UINT8))
    equal_bits(proto, {"a": integers(rng, "uint8", 5, 33)})


def test_concat() -> None:
    weights = scales(6, "uint8", "a", "b", "y")
    names = ["sy", "zy", "a", "sa", "za", "b", "sb", "zb"]
    proto = small("QLinearConcat", names, {"a": [3, 5], "b": [3, 2]}, "uint8", weights, axis=1)
    equal_bits(proto, {"a": integers(rng_of(7), "uint8", 3, 5), "b": integers(rng_of(8), "uint8", 3, 2)})


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("turn", [0, 1])
def test_gemm(turn: int, floats: bool) -> None:
    weights = scales(9, "uint8", "a", "b", "y") | {"c": np.arange(-500, 600, 100, dtype=np.int32)}
    weights |= {"b": integers(rng_of(10), "uint8", *((11, 33) if turn else (33, 11)))}
    names = ["a", "sa", "za", "b", "sb", "zb", "c", *([] if floats else ["sy", "zy"])]
    proto = small("QGemm", names, {"a": [5, 33]}, "uint8", weights, transB=turn)
    proto.graph.output[0].CopyFrom(value("y", None, TensorProto.FLOAT if floats else TensorProto.UINT8))
    equal_bits(proto, {"a": integers(rng_of(11), "uint8", 5, 33)})


@pytest.mark.parametrize("weight", BYTES)
def test_matmuls_to_floats(weight: str) -> None:
    rng = rng_of(12)
    weights = {"b": integers(rng, weight, 33, 11), "sb": np.float32(rng.random(11)), "zb": integers(rng, weight, 11)}
    weights |= {"c": np.float32(rng.normal(0, 1, 11)), "sa": np.float32(0.125), "za": np.array(120, np.uint8)}
    dynamic = contributed("DynamicQuantizeMatMul", ["x", "b", "sb", "zb", "c"])
    proto = model([dynamic], [value("x", [5, 33])], [value("y", None)], weights, domains=["com.microsoft"])
    x = np.float32(rng.normal(0, 1, (5, 33)))
    result, (wanted,) = (
        tvm_ext.compile(proto, cache=False).run({"x": x})["y"],
        onnxruntime_outputs(proto, {"x": x}).values(),
    )
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-4)
    known = contributed("MatMulIntegerToFloat", ["a", "b", "sa", "sb", "za", "zb", "c"])
    declared = [value("a", [5, 33], TensorProto.UINT8)]
    proto = model([known], declared, [value("y", None)], weights, domains=["com.microsoft"])
    a = integers(rng, "uint8", 5, 33)
    result, (wanted,) = (
        tvm_ext.compile(proto, cache=False).run({"a": a})["y"],
        onnxruntime_outputs(proto, {"a": a}).values(),
    )
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("dtype", BYTES)
def test_where(dtype: str) -> None:
    weights = scales(20, dtype, "a", "b", "y")
    names = ["c", "a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    proto = small("QLinearWhere", names, {"a": [3, 5, 7], "b": [5, 1]}, dtype, weights)
    proto.graph.input.append(value("c", [3, 1, 7], TensorProto.BOOL))
    feeds = {"a": integers(rng_of(21), dtype, 3, 5, 7), "b": integers(rng_of(22), dtype, 5, 1)}
    equal_bits(proto, feeds | {"c": rng_of(23).random((3, 1, 7)) < 0.5})


@pytest.mark.parametrize("keep", [0, 1])
def test_mean(keep: int) -> None:
    """onnxruntime has no kernel of it: dequantize, mean, quantize."""
    weights = scales(24, "uint8", "x", "y")
    proto = small("QLinearReduceMean", ["x", "sx", "zx", "sy", "zy"], {"x": [3, 4, 8]}, "uint8", weights, axes=[2],
                  keepdims=keep)  # fmt: skip
    x = integers(rng_of(25), "uint8", 3, 4, 8)
    real = ((x.astype(float) - weights["zx"]) * weights["sx"]).mean(2, keepdims=bool(keep))
    wanted = np.clip(np.round(real / weights["sy"]) + weights["zy"], 0, 255)
    np.testing.assert_array_equal(tvm_ext.compile(proto, cache=False).run({"x": x})["y"], wanted)


@pytest.mark.parametrize("last", [0, 1])
def test_convolution(last: int) -> None:
    rng = rng_of(26)
    weights = scales(27, "uint8", "x", "w", "y")
    weights |= {"sw": powers(rng, 7), "zw": np.zeros(7, np.int8), "w": integers(rng, "int8", 7, 5, 3, 3)}
    weights |= {"b": np.arange(-300, 400, 100, dtype=np.int32), "sy": np.float32(1)}
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    shape = [2, 9, 11, 5] if last else [2, 5, 9, 11]
    proto = small("QLinearConv", names, {"x": shape}, "uint8", weights, strides=[2, 1], pads=[1, 0, 1, 2],
                  channels_last=last)  # fmt: skip
    equal_bits(proto, {"x": integers(rng, "uint8", *shape)})


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int8", "uint8"])
def test_of_more_bits(dtype: str) -> None:
    rng = rng_of(28)
    weights = {"s": np.float32(2.0**-6), "z": np.array(7, dtype)}
    node = contributed("QuantizeLinear", ["x", "s", "z"])
    proto = model([node], [value("x", [3, 50])], [value("y", None, CODES[dtype])], weights, domains=["com.microsoft"])
    equal_bits(proto, {"x": np.float32(rng.normal(0, 1, (3, 50)))})
    node = contributed("DequantizeLinear", ["x", "s", "z"], axis=1)
    weights = {"s": powers(rng, 50), "z": integers(rng, dtype, 50)}
    proto = model([node], [value("x", [3, 50], CODES[dtype])], [value("y", None)], weights, domains=["com.microsoft"])
    equal_bits(proto, {"x": integers(rng, dtype, 3, 50)})


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_of_four_bits(dtype: str) -> None:
    rng = rng_of(29)
    low, high = (-8, 8) if dtype == "int4" else (0, 16)
    kind = np.dtype(getattr(ml_dtypes, dtype))
    weights = {"w": rng.integers(low, high, (9, 11)).astype(kind), "s": powers(rng, 11)}
    weights["z"] = rng.integers(low, high, 11).astype(kind)
    nodes = [contributed("DequantizeLinear", ["w", "s", "z"], axis=1)]
    nodes[0].output[0] = "r"
    nodes.append(helper.make_node("MatMul", ["x", "r"], ["y"], "product"))
    proto = model(nodes, [value("x", [3, 9])], [value("y", [3, 11])], weights, domains=["com.microsoft"])
    proto.ir_version = 10
    x = np.float32(rng.integers(-9, 9, (3, 9)))
    equal_bits(proto, {"x": x})
