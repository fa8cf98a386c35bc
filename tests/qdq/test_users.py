"""Quantized models as other tools write them: quantization-aware training, TensorRT's placement, pairs left out."""

from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs
from tests.qdq.exactness import Judge, exposed
from tvm_ext.runtime.model import CompiledModel

IMAGE = (1, 3, 14, 14)


class User:
    """Builds a graph of nodes; every scale is any number."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def pair(self, x: str, y: str, scale: Any, zero: int = 128, dtype: str = "uint8", **more: Any) -> str:
        """y is x, rounded to 8 bits."""
        scale = np.asarray(scale, np.float32)
        self.weights |= {f"{y}_s": scale, f"{y}_z": np.full(scale.shape, zero, dtype)}
        self.nodes.append(node("QuantizeLinear", f"{x} {y}_s {y}_z", f"{y}_q", **more))
        self.nodes.append(node("DequantizeLinear", f"{y}_q {y}_s {y}_z", y, **more))
        return y

    def trained_weight(self, name: str, shape: tuple[int, ...], axis: int = 0) -> str:
        """A float weight with a pair of nodes behind it, as torch.onnx writes a fake quantization by channel."""
        w = self.rng.normal(0, 0.2, shape).astype(np.float32)
        self.weights[name] = w
        rest = tuple(i for i in range(w.ndim) if i != axis)
        return self.pair(name, f"{name}_d", np.abs(w).max(rest) / 127, 0, "int8", axis=axis)

    def conv(self, x: str, filters: int, channels: int, name: str, **more: Any) -> str:
        weight = self.trained_weight(f"{name}_w", (filters, channels, 3, 3))
        self.weights[f"{name}_b"] = self.rng.normal(0, 0.5, filters).astype(np.float32)
        self.nodes.append(node("Conv", f"{x} {weight} {name}_b", name, pads=[1] * 4, **more))
        return name

    def add(self, op_type: str, inputs: str, output: str, **more: Any) -> str:
        self.nodes.append(node(op_type, inputs, output, **more))
        return output

    def model(self, output: str, shape: tuple[int, ...] = IMAGE) -> onnx.ModelProto:
        self.nodes.append(node("Identity", output, "y"))
        return model(self.nodes, [value("x", shape)], [value("y", None)], self.weights)


def holds(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> CompiledModel:
    """Every stored value is the nearest one, or one of two in a tie; the model as it is gives what it then gives."""
    whole = exposed(proto)
    compiled = tvm_ext.compile(whole, cache=False, threads=2)
    outputs = compiled.run(feeds)
    Judge(proto, feeds)(outputs)
    plain = tvm_ext.compile(proto, cache=False, threads=2)
    want = onnxruntime_outputs(proto, feeds)["y"]
    out = plain.run(feeds)["y"]
    assert out.shape == want.shape and out.dtype == want.dtype
    assert float(np.abs(out - want).max()) <= 0.05 * float(np.abs(want).max())
    return plain


def image(seed: int = 0, shape: tuple[int, ...] = IMAGE) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)}


def recipes(compiled: CompiledModel) -> set[str]:
    return {k["recipe"] for k in compiled.report["kernels"]}


def test_trained_with_quantization() -> None:
    """Float weights with pairs behind them; every activation stored once more behind its Relu or Clip."""
    u = User(1)
    a = u.pair(u.conv(u.pair("x", "x_d", 0.031), 16, 3, "c1"), "a", 0.043)
    b = u.pair(u.add("Relu", a, "r1"), "b", 0.021, 0)
    c = u.pair(u.conv(b, 16, 16, "c2"), "c", 0.037)
    d = u.pair(u.add("Clip", f"{c} low high", "k"), "d", 0.0235, 0)
    u.weights |= {"low": np.float32(0), "high": np.float32(6)}
    e = u.pair(u.add("Add", f"{d} {b}", "s"), "e", 0.044, 0)
    pooled = u.add("GlobalAveragePool", e, "g")
    flat = u.pair(u.add("Flatten", u.pair(pooled, "g_d", 0.011, 0), "f"), "f_d", 0.011, 0)
    weight = u.trained_weight("fc", (10, 16))
    u.weights["fc_b"] = u.rng.normal(0, 1, 10).astype(np.float32)
    proto = u.model(u.add("Gemm", f"{flat} {weight} fc_b", "out", transB=1))
    assert "generic" not in recipes(holds(proto, image()))


def test_pairs_at_the_inputs_of_convolutions_only() -> None:
    """As for TensorRT: the residual branch and the pooling in front of it stay float."""
    u = User(2)
    stem = u.add("Relu", u.conv(u.pair("x", "x_d", 0.03, 0, "int8"), 16, 3, "c1"), "r1")
    pooled = u.add("MaxPool", stem, "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    first = u.add("Relu", u.conv(u.pair(pooled, "a", 0.02, 0, "int8"), 16, 16, "c2"), "r2")
    second = u.conv(u.pair(first, "b", 0.018, 0, "int8"), 16, 16, "c3")
    joined = u.add("Relu", u.add("Add", f"{second} {pooled}", "s"), "r3")
    assert "generic" not in recipes(holds(u.model(joined), image()))


def test_pairs_missing_on_some_edges() -> None:
    u = User(3)
    a = u.conv(u.pair("x", "x_d", 0.03), 8, 3, "c1")
    b = u.conv(a, 8, 8, "c2")  # reads floats
    c = u.pair(u.add("Concat", f"{u.pair(a, 'a_d', 0.05)} {b}", "j", axis=1), "c", 0.04)
    d = u.add("Transpose", u.add("MaxPool", c, "m", kernel_shape=[2, 2], strides=[2, 2]), "t", perm=[0, 2, 3, 1])
    assert "generic" not in recipes(holds(u.model(d), image()))


@pytest.mark.parametrize("operator", ["Conv", "MatMul"])
def test_activations_by_channel(operator: str) -> None:
    """No integer product takes scales that differ along what it sums; a float one decodes them."""
    u = User(4)
    shape: tuple[int, ...] = (1, 8, 9, 7) if operator == "Conv" else (5, 8)
    x = u.pair("x", "x_d", np.linspace(0.02, 0.05, 8), 100, axis=1)
    if operator == "Conv":
        last = u.conv(x, 12, 8, "c")
    else:
        last = u.add("MatMul", f"{x} {u.trained_weight('w', (8, 12), 1)}", "m")
    holds(u.model(u.pair(last, "out", 0.03), shape), image(1, shape))


def test_around_softmax_and_layer_normalization() -> None:
    u = User(5)
    x = u.pair("x", "x_d", 0.03)
    q, k = (u.pair(u.add("MatMul", f"{x} {u.trained_weight(n, (24, 24), 1)}", f"{n}m"), f"{n}d", 0.02) for n in "qk")
    turned = u.add("Transpose", k, "kt", perm=[0, 2, 1])
    scores = u.pair(u.add("MatMul", f"{q} {turned}", "sc"), "sd", 0.1)
    probabilities = u.pair(u.add("Softmax", scores, "sm", axis=-1), "pd", 1 / 255, 0)
    mixed = u.pair(u.add("MatMul", f"{probabilities} {x}", "mx"), "md", 0.015)
    u.weights |= {"gain": np.linspace(0.5, 1.5, 24, dtype=np.float32), "shift": np.zeros(24, np.float32)}
    normed = u.add("LayerNormalization", f"{mixed} gain shift", "ln", axis=-1)
    holds(u.model(u.pair(normed, "out", 0.02), (2, 7, 24)), image(2, (2, 7, 24)))


def test_a_quantized_table_of_embeddings() -> None:
    u = User(6)
    u.weights |= {"table": u.rng.integers(-128, 128, (30, 16)).astype(np.int8), "ts": np.float32(0.013)}
    u.weights |= {"tz": np.array(4, np.int8), "ids": np.array([[3, 29, 0, 3]])}
    u.nodes.append(node("DequantizeLinear", "table ts tz", "t"))
    rows = u.add("Gather", "t ids", "rows", axis=0)
    proto = u.model(u.pair(u.add("Add", f"{rows} x", "s"), "out", 0.03), (1, 4, 16))
    compiled = holds(proto, image(3, (1, 4, 16)))
    assert "generic" not in recipes(compiled)
