"""Small models that go through all of the pipeline: Winograd, residuals, attention, quantization, recurrence."""

import numpy as np
import onnx
from onnx import TensorProto

from tests.onnx_graphs import model, node, random, value


def tiny() -> onnx.ModelProto:
    """A dense layer with an epilogue, a scalar, and an operator that no recipe takes."""
    nodes = [
        node("Gemm", "x w b", "h"), node("Relu", "h", "r"), node("Mul", "r half", "m"), node("CumSum", "m axis", "y"),
    ]  # fmt: skip
    weights = {"w": random(6, 10), "b": random(10), "half": np.array(0.1, np.float32), "axis": np.array(1)}
    return model(nodes, [value("x", (3, 6))], [value("y", (3, 10))], weights)


def convolutions() -> onnx.ModelProto:
    """As ResNet-18: a stem, pooling, a residual block by Winograd, global pooling, a dense layer."""
    nodes = [
        node("Conv", "x w0 b0", "c0", pads=[1, 1, 1, 1]), node("Relu", "c0", "r0"),
        node("MaxPool", "r0", "p0", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p0 w1 b1", "c1", pads=[1, 1, 1, 1]), node("Relu", "c1", "r1"),
        node("Conv", "r1 w2 b2", "c2", pads=[1, 1, 1, 1]), node("Add", "c2 p0", "a2"), node("Relu", "a2", "r2"),
        node("GlobalAveragePool", "r2", "g"), node("Flatten", "g", "f"), node("Gemm", "f wd bd", "y", transB=1),
    ]  # fmt: skip
    weights = {
        "w0": random(32, 3, 3, 3, scale=0.2), "b0": random(32), "w1": random(32, 32, 3, 3, scale=0.1),
        "b1": random(32, seed=1), "w2": random(32, 32, 3, 3, scale=0.1, seed=2), "b2": random(32, seed=3),
        "wd": random(10, 32), "bd": random(10),
    }  # fmt: skip
    return model(nodes, [value("x", (1, 3, 15, 17))], [value("y", (1, 10))], weights)


def depthwise() -> onnx.ModelProto:
    """Depthwise and 1x1 convolutions, a gate, softmax over a transpose, infinities in a mask, outputs of two dtypes."""
    nodes = [
        node("Conv", "x wdw bdw", "c0", pads=[1, 1, 1, 1], group=13), node("Clip", "c0 lo hi", "r0"),
        node("Conv", "r0 wpw", "c1"), node("HardSigmoid", "c1", "hs"), node("Mul", "c1 hs", "m"),
        node("ReduceMean", "m", "rm", axes=[2, 3], keepdims=1), node("Mul", "m rm", "mm"),
        node("AveragePool", "mm", "ap", kernel_shape=[3, 3], strides=[2, 2]),
        node("Transpose", "ap", "t", perm=[0, 2, 3, 1]), node("Softmax", "t", "s", axis=-1),
        node("Where", "cond s ninf", "wh"), node("Reshape", "wh shp", "rs"), node("Split", "rs", "s1 s2", axis=1),
        node("Concat", "s2 s1", "cc", axis=1), node("TopK", "cc k", "y ti", axis=1), node("Cast", "ti", "z", to=6),
    ]  # fmt: skip
    weights = {
        "wdw": random(13, 1, 3, 3), "bdw": random(13), "lo": np.float32(0), "hi": np.float32(6),
        "wpw": random(22, 13, 1, 1), "cond": random(22) > 0, "ninf": np.float32(-np.inf), "shp": np.array([1, -1]),
        "k": np.array([5]),
    }  # fmt: skip
    outputs = [value("y", (1, 5)), value("z", (1, 5), TensorProto.INT32)]
    return model(nodes, [value("x", (1, 13, 9, 9))], outputs, weights)


def recurrent() -> onnx.ModelProto:
    """An LSTM with all its outputs."""
    nodes = [node("LSTM", "x W R B", "h hn cn", hidden_size=5), node("Squeeze", "h ax", "y")]
    weights = {"W": random(1, 20, 3), "R": random(1, 20, 5), "B": random(1, 40), "ax": np.array([1])}
    return model(nodes, [value("x", (3, 1, 3))], [value("y", (3, 1, 5)), value("hn", (1, 1, 5))], weights)


def quantized() -> onnx.ModelProto:
    """QDQ around a convolution, per channel, and an integer matmul."""
    nodes = [
        node("QuantizeLinear", "x sx zx", "qx"), node("DequantizeLinear", "qx sx zx", "dx"),
        node("DequantizeLinear", "qw sw zw", "dw", axis=0), node("Conv", "dx dw b", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"), node("QuantizeLinear", "r sy zy", "qy"), node("Flatten", "qy", "qf"),
        node("MatMulInteger", "qf qm zy", "mi"), node("Cast", "mi", "y", to=1),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    weights = {
        "sx": np.float32(0.02), "zx": np.uint8(128), "qw": rng.integers(-127, 127, (8, 3, 3, 3)).astype(np.int8),
        "sw": np.full(8, 0.01, np.float32), "zw": np.zeros(8, np.int8), "b": random(8), "sy": np.float32(0.05),
        "zy": np.uint8(3), "qm": rng.integers(-127, 127, (8 * 35, 7)).astype(np.int8),
    }  # fmt: skip
    return model(nodes, [value("x", (1, 3, 5, 7))], [value("y", (1, 7))], weights)


def encoder() -> onnx.ModelProto:
    """One layer of BERT, small."""
    from tvm_ext.frontend.zoo import bert

    return bert(layers=1, hidden=24, heads=2, sequence=5, intermediate=40, mask=True)
