"""Quantized models against onnxruntime without its graph optimizations: bit by bit where all arithmetic is exact.

Scales that are powers of two make the float arithmetic between integers exact, in any order of its sums.
"""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests import onnx_graphs
from tests.onnx_graphs import node, value
from tests.oracles.reference import onnxruntime_outputs

CODES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16, "uint16": TensorProto.UINT16}
BYTES = ["uint8", pytest.param("int8", marks=pytest.mark.long)]
#: Types of data and weights.
PAIRS = [("uint8", "int8"), *(pytest.param(*p, marks=pytest.mark.long) for p in (("int8", "int8"), ("uint8", "uint8")))]


def model(*parts: Any, opset: int = 17) -> onnx.ModelProto:
    proto = onnx_graphs.model(*parts)
    proto.opset_import[0].version, proto.ir_version = opset, 10
    return proto


def rng_of(*seed: int) -> np.random.Generator:
    return np.random.default_rng(list(seed))


def integers(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(info.min, int(info.max) + 1, shape), dtype)


def powers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.float32(2.0) ** rng.integers(-7, -3, shape).astype(np.float32)


def equal_bits(proto: onnx.ModelProto, *each: dict[str, np.ndarray], varied: int = 10) -> None:
    """Every output for each of the feeds, with its dtype; the first of them must not be trivial."""
    compiled = tvm_ext.compile(proto, cache=False, threads=2)
    for feeds in each:
        wanted = [*onnxruntime_outputs(proto, feeds).values()]
        assert len(np.unique(wanted[0])) >= varied
        outputs = compiled.run(feeds)
        for spec, want in zip(compiled.outputs, wanted, strict=True):
            assert outputs[spec.name].dtype == want.dtype
            np.testing.assert_array_equal(outputs[spec.name], want, err_msg=spec.name)


class Quantized:
    """Builds a graph of QuantizeLinear and DequantizeLinear around operators."""

    def __init__(self, seed: int) -> None:
        self.rng, self.nodes, self.weights = rng_of(seed), [], {}

    def parameters(self, name: str, dtype: str, channels: int = 0) -> list[str]:
        """Scale and zero point: one, or one a channel."""
        shape = (channels,) if channels else ()
        self.weights[f"s{name}"] = np.asarray(powers(self.rng, *shape), np.float32)
        self.weights[f"z{name}"] = np.asarray(
            self.rng.integers(*((-9, 9) if dtype == "int8" else (110, 140)), shape), dtype
        )
        return [f"s{name}", f"z{name}"]

    def weight(self, name: str, dtype: str, shape: tuple[int, ...], axis: int | None) -> str:
        self.weights[f"q{name}"] = integers(self.rng, dtype, *shape)
        more = {} if axis is None else {"axis": axis}
        inputs = [f"q{name}", *self.parameters(name, dtype, 0 if axis is None else shape[axis])]
        self.nodes.append(node("DequantizeLinear", " ".join(inputs), name, **more))
        return name

    def around(self, x: str, name: str, dtype: str) -> str:
        """x as it is after quantization."""
        names = " ".join(self.parameters(name, dtype))
        self.nodes += [
            node("QuantizeLinear", f"{x} {names}", f"q{name}"),
            node("DequantizeLinear", f"q{name} {names}", name),
        ]
        return name

    def quantized(self, x: str, dtype: str) -> str:
        names = " ".join(self.parameters("y", dtype))
        self.nodes.append(node("QuantizeLinear", f"{x} {names}", "y"))
        return "y"


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize(("data", "weight"), PAIRS)
def test_convolution(data: str, weight: str, axis: int | None) -> None:
    make = Quantized(1)
    x = make.around("x", "a", data)
    w = make.weight("w", weight, (7, 3, 3, 3), axis)
    make.nodes += [node("Conv", f"{x} {w}", "c", pads=[1, 0, 1, 2], strides=[1, 2]), node("Relu", "c", "r")]
    make.quantized("r", data)
    proto = model(make.nodes, [value("x", (1, 3, 11, 13))], [value("y", None, CODES[data])], make.weights)
    equal_bits(proto, {"x": np.float32(make.rng.normal(0, 3, (1, 3, 11, 13)))})


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize(("data", "weight"), PAIRS)
def test_matmul_add_and_residual(data: str, weight: str, axis: int | None) -> None:
    make = Quantized(2)
    x = make.around("x", "a", data)
    w = make.weight("w", weight, (17, 17), axis)
    make.nodes += [node("MatMul", f"{x} {w}", "m")]
    m = make.around("m", "b", data)
    make.nodes += [node("Add", f"{m} {x}", "t")]
    make.quantized("t", data)
    proto = model(make.nodes, [value("x", (5, 17))], [value("y", None, CODES[data])], make.weights)
    equal_bits(proto, {"x": np.float32(make.rng.normal(0, 3, (5, 17)))})


@pytest.mark.parametrize("data", BYTES)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
     ("AveragePool", {"kernel_shape": [2, 2]}), ("GlobalAveragePool", {}), ("Clip", {}), ("Concat", {"axis": 1}),
     ("Transpose", {"perm": [0, 2, 3, 1]})],
)  # fmt: skip
def test_pooling_and_what_moves(operator: str, attributes: dict[str, Any], data: str) -> None:
    make = Quantized(3)
    x = make.around("x", "a", data)
    make.nodes += [node(operator, f"{x} {x}" if operator == "Concat" else x, "p", **attributes)]
    make.quantized("p", data)
    shape = (1, 5, 4, 8)  # means of a power of two of elements are exact
    proto = model(make.nodes, [value("x", shape)], [value("y", None, CODES[data])], make.weights)
    equal_bits(proto, {"x": np.float32(make.rng.normal(0, 3, shape))}, varied=4)


@pytest.mark.parametrize("dtype", [*BYTES, "int16", pytest.param("uint16", marks=pytest.mark.long)])
def test_quantization_by_any_scale(dtype: str) -> None:
    """Rounding, halves to even, and saturation, elementwise, so that any scale must give the same bits."""
    rng, info = rng_of(4), np.iinfo(dtype)
    nodes, outputs, weights = [], [], {"s": np.float32(0.5)}
    for i, axis in enumerate((None, 0, 1, -1)):
        shape = () if axis is None else ((3, 7)[axis],)
        weights[f"s{i}"] = np.asarray(rng.random(shape) * 0.1 + 0.01, np.float32)
        weights[f"z{i}"] = integers(rng, dtype, *shape)
        more = {} if axis is None else {"axis": axis}
        nodes += [node("QuantizeLinear", f"x s{i} z{i}", f"q{i}", **more),
                  node("DequantizeLinear", f"q{i} s{i} z{i}", f"y{i}", **more)]  # fmt: skip
        outputs += [value(f"y{i}", (3, 7)), value(f"q{i}", (3, 7), CODES[dtype])]
    nodes.append(node("QuantizeLinear", "h s z0", "halves"))
    outputs.append(value("halves", (64,), CODES[dtype]))
    proto = model(nodes, [value("x", (3, 7)), value("h", (64,))], outputs, weights, opset=21)
    x = np.float32(rng.normal(0, 0.02 * (int(info.max) - int(info.min)), (3, 7)))
    equal_bits(proto, {"x": x, "h": np.arange(-32, 32, dtype=np.float32) / 4})


@pytest.mark.parametrize("shape", [(1,), (13,), (3, 5, 7)])
def test_dynamic_quantization(shape: tuple[int, ...]) -> None:
    outputs = [value("q", shape, TensorProto.UINT8), value("s", ()), value("z", (), TensorProto.UINT8)]
    proto = model([node("DynamicQuantizeLinear", "x", "q s z")], [value("x", shape)], outputs)
    rng = rng_of(5)
    draws = rng.normal(0, 3, shape), rng.random(shape), -rng.random(shape), np.zeros(shape)
    equal_bits(proto, *({"x": np.float32(x)} for x in draws), varied=1)


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("weight", BYTES)
def test_a_dynamically_quantized_matmul(weight: str, channel: bool) -> None:
    """As onnxruntime's dynamic quantization writes a layer."""
    rng = rng_of(6)
    shape = (11,) if channel else ()
    weights = {"w": integers(rng, weight, 33, 11), "zw": integers(rng, weight, *shape)}
    weights |= {"sw": np.asarray(rng.random(shape) * 0.1, np.float32), "b": np.float32(rng.normal(0, 1, 11))}
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z zw", "m")]
    nodes += [node("Cast", "m", "f", to=1), node("Mul", "s sw", "t"), node("Mul", "f t", "g"), node("Add", "g b", "y")]
    outputs = [value("m", (3, 5, 11), TensorProto.INT32), value("s", ()), value("y", (3, 5, 11))]
    feeds = {"x": np.float32(rng.normal(0, 3, (3, 5, 33)))}
    proto = model(nodes, [value("x", (3, 5, 33))], outputs, weights)
    equal_bits(model(nodes, [value("x", (3, 5, 33))], outputs[:2], weights), feeds)
    result, wanted = tvm_ext.compile(proto, cache=False).run(feeds)["y"], onnxruntime_outputs(proto, feeds)["y"]
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)  # floats: here a product and a sum are fused


@pytest.mark.parametrize("zero", ["none", "one", "rows"])
@pytest.mark.parametrize(("left", "right"), [*PAIRS, pytest.param("int8", "uint8", marks=pytest.mark.long)])
def test_matmul_integer(left: str, right: str, zero: str) -> None:
    rng = rng_of(7)
    inputs, weights = "a b", {}
    if zero != "none":
        inputs = "a b za zb"
        weights["za"] = integers(rng, left, *((5,) if zero == "rows" else ()))
        weights["zb"] = integers(rng, right, *((3,) if zero == "rows" else ()))
    if zero == "rows":  # a row of a's own is not in onnxruntime
        weights["za"] = weights["za"][:1].reshape(())
    declared = [value("a", (5, 67), CODES[left]), value("b", (67, 3), CODES[right])]
    proto = model([node("MatMulInteger", inputs, "y")], declared, [value("y", (5, 3), TensorProto.INT32)], weights)
    a, b = integers(rng, left, 5, 67), integers(rng, right, 67, 3)
    wide = [x.astype(np.int32) - weights.get(z, np.int32(0)).astype(np.int32) for x, z in ((a, "za"), (b, "zb"))]
    outputs = tvm_ext.compile(proto, cache=False, threads=2).run({"a": a, "b": b})
    np.testing.assert_array_equal(outputs["y"], wide[0] @ wide[1])  # onnxruntime's sums saturate without VNNI


# ------------------------------------------------------------ few bits, and blocks of scales
def of_float64(q: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, axis: int, block: int) -> np.ndarray:
    """What DequantizeLinear means, in float64."""

    def each(x: np.ndarray) -> np.ndarray:
        wide = np.asarray(x, np.float64)
        return np.repeat(wide, block, axis).take(range(q.shape[axis]), axis) if block else wide

    return (q.astype(np.float64) - (0 if zero is None else each(zero))) * each(scale)


@pytest.mark.parametrize("size", [8, 11])
@pytest.mark.parametrize("dtype", [*BYTES, "int4", pytest.param("uint4", marks=pytest.mark.long)])
def test_blocks_of_a_quantized_weight(dtype: str, size: int) -> None:
    """MatMul(x, Dequantize(w)) with a scale for every 4 rows, of which the last may be fewer."""
    rng = rng_of(8)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low, high = (
        (-8, 8) if dtype == "int4" else (0, 16) if dtype == "uint4" else (-100, 100) if dtype == "int8" else (0, 255)
    )
    q, z = rng.integers(low, high, (size, 5)).astype(kind), rng.integers(low, high, (-(-size // 4), 5)).astype(kind)
    s = np.float32(rng.random((-(-size // 4), 5)))
    nodes = [node("DequantizeLinear", "q s z", "w", axis=0, block_size=4), node("MatMul", "x w", "y")]
    proto = model(nodes, [value("x", (3, size))], [value("y", (3, 5))], {"s": s}, opset=21)
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (("q", q), ("z", z)))
    x = np.float32(rng.normal(0, 1, (3, size)))
    result = tvm_ext.compile(proto, cache=False).run({"x": x})["y"]
    np.testing.assert_allclose(result, x @ of_float64(q, s, z, 0, 4), rtol=1e-4, atol=1e-4)
    if dtype in ("int4", "uint4") and size == 8:
        np.testing.assert_allclose(result, onnxruntime_outputs(proto, {"x": x})["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_quantization_to_few_bits(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype))
    code = helper.np_dtype_to_tensor_dtype(kind)
    proto = model([node("QuantizeLinear", "x s", "y", output_dtype=code)], [value("x", (19,))],
                  [value("y", (19,), code)], {"s": np.float32(0.5)}, opset=25)  # fmt: skip
    x = np.linspace(-6, 10, 19, dtype=np.float32)
    result = tvm_ext.compile(proto, cache=False).run({"x": x})["y"]
    info = ml_dtypes.iinfo(kind)
    assert result.dtype == kind
    np.testing.assert_array_equal(result.astype(int), np.clip(np.round(x / 0.5), info.min, info.max).astype(int))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_scales_along_an_axis_that_are_fed(dtype: str, axis: int) -> None:
    """One group or several: a scale is that of its index along the axis, in whatever type it comes."""
    kind, rng = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), rng_of(7, axis)
    x, scale = (30 * rng.standard_normal((3, 3))).astype(dtype), np.array([0.5, 1, 2], dtype)
    nodes = [
        node("QuantizeLinear", "x s z", "q", axis=axis),
        node("DequantizeLinear", "q s z", "d", axis=axis), node("Relu", "d", "y"),
    ]  # fmt: skip
    outputs = [value("q", [3, 3], TensorProto.INT8), value("y", [3, 3], kind)]
    inputs = [value("x", [3, 3], kind), value("s", [3], kind)]
    proto = model(nodes, inputs, outputs, {"z": np.int8([0, -5, 7])}, opset=21)
    equal_bits(proto, {"x": x, "s": scale}, varied=5)
