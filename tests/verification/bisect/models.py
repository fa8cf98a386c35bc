"""Tiny models, each with one thing that can go wrong, and their weights."""

import numpy as np
import onnx

from tests.onnx_graphs import model, node, random, value


def conv_bn() -> onnx.ModelProto:
    """Convolution, batch norm, ReLU: what `fold-batch-norm` takes."""
    nodes = [
        node("Conv", "x w", "c", "conv"), node("BatchNormalization", "c g b m v", "n", "bn"),
        node("Relu", "n", "y", "relu"),
    ]  # fmt: skip
    weights = {"w": random(4, 3, 1, 1), "g": random(4), "b": random(4, seed=1), "m": random(4, seed=2),
               "v": np.abs(random(4, seed=3)) + np.float32(0.5)}  # fmt: skip
    return model(nodes, [value("x", (1, 3, 5, 7))], [value("y", (1, 4, 5, 7))], weights)


def two_branches() -> onnx.ModelProto:
    """relu(x w1) + sigmoid(x w2), of equal shapes."""
    nodes = [
        node("MatMul", "x w1", "a", "left"), node("MatMul", "x w2", "b", "right"), node("Relu", "a", "ra", "relu"),
        node("Sigmoid", "b", "sb", "sigmoid"), node("Add", "ra sb", "y", "add"),
    ]  # fmt: skip
    weights = {"w1": random(7, 5), "w2": random(7, 5, seed=1)}
    return model(nodes, [value("x", (3, 7))], [value("y", (3, 5))], weights)


def attention() -> onnx.ModelProto:
    """softmax(q kt / 2) v of two heads."""
    nodes = [
        node("MatMul", "q k", "s", "scores"), node("Div", "s two", "d", "scale"),
        node("Softmax", "d", "p", "softmax", axis=-1), node("MatMul", "p v", "y", "values"),
    ]  # fmt: skip
    inputs = [value("q", (1, 2, 5, 3)), value("k", (1, 2, 3, 7)), value("v", (1, 2, 7, 4))]
    return model(nodes, inputs, [value("y", (1, 2, 5, 4))], {"two": np.float32(2.0)})


def convolutions(groups: int = 1, channels: int = 32, size: int = 14) -> onnx.ModelProto:
    """A 3x3 convolution with padding, and ReLU."""
    nodes = [node("Conv", "x w", "c", "conv", pads=[1, 1, 1, 1], group=groups), node("Relu", "c", "r", "relu")]
    weights = {"w": random(channels, channels // groups, 3, 3, scale=0.2)}
    shape = (1, channels, size, size)
    return model(nodes, [value("x", shape)], [value("r", shape)], weights)


def pooled(size: int = 14) -> onnx.ModelProto:
    """ReLU and the mean of each channel."""
    nodes = [node("Relu", "x", "r", "relu"), node("GlobalAveragePool", "r", "y", "pool")]
    return model(nodes, [value("x", (1, 5, size, size))], [value("y", (1, 5, 1, 1))])


def softmax() -> onnx.ModelProto:
    """A dense layer and a softmax over its 11 columns."""
    nodes = [node("MatMul", "x w", "m", "fc"), node("Softmax", "m", "y", "softmax", axis=-1)]
    return model(nodes, [value("x", (3, 7))], [value("y", (3, 11))], {"w": random(7, 11)})


def two_dense(gelu: bool = False) -> onnx.ModelProto:
    """Two dense layers of different widths, ReLU or a gelu that is written out between them."""
    between = [node("Relu", "h", "a", "act")]
    if gelu:
        between = [
            node("Div", "h r", "d", "div"), node("Erf", "d", "e", "erf"), node("Add", "e one", "f", "plus"),
            node("Mul", "h f", "g", "times"), node("Mul", "g half", "a", "act"),
        ]  # fmt: skip
    nodes = [node("Gemm", "x w1 b1", "h", "fc1", transB=1), *between, node("Gemm", "a w2 b2", "y", "fc2", transB=1)]
    weights = {"w1": random(13, 7), "b1": random(13), "w2": random(5, 13), "b2": random(5)}
    if gelu:
        weights |= {"r": np.float32(2**0.5), "one": np.float32(1.0), "half": np.float32(0.5)}
    return model(nodes, [value("x", (3, 7))], [value("y", (3, 5))], weights)


def two_convolutions() -> onnx.ModelProto:
    """Two convolutions of different shapes that no Winograd recipe takes."""
    nodes = [
        node("Conv", "x w1 b1", "a", "first", pads=[1, 0, 1, 0]), node("Relu", "a", "r", "relu"),
        node("Conv", "r w2 b2", "y", "second", strides=[2, 1]),
    ]  # fmt: skip
    weights = {
        "w1": random(12, 5, 3, 1, scale=0.3), "b1": random(12), "w2": random(8, 12, 1, 3, scale=0.3), "b2": random(8),
    }  # fmt: skip
    return model(nodes, [value("x", (1, 5, 13, 11))], [value("y", (1, 8, 7, 9))], weights)
