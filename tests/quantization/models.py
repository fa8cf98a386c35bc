"""Small models to quantize, and what they are given."""

import numpy as np
import onnx

from tests import onnx_graphs as graphs


def norm_weights(name: str, channels: int, seed: int) -> dict[str, np.ndarray]:
    """Scale, bias, mean and variance of a batch norm, none of them trivial."""
    rng = np.random.default_rng(seed)
    return {
        f"{name}.scale": rng.uniform(0.5, 1.5, channels).astype(np.float32),
        f"{name}.bias": rng.normal(0, 0.3, channels).astype(np.float32),
        f"{name}.mean": rng.normal(0, 0.3, channels).astype(np.float32),
        f"{name}.variance": rng.uniform(0.5, 2, channels).astype(np.float32),
    }


def norm(name: str, source: str, target: str) -> onnx.NodeProto:
    inputs = f"{source} {name}.scale {name}.bias {name}.mean {name}.variance"
    return graphs.node("BatchNormalization", inputs, target, name, epsilon=1e-4)


def residual(batch: int | str = 1) -> onnx.ModelProto:
    """conv, bn, relu, conv, bn, add, relu, pool, dense, softmax; 5 and 7 channels, 9x11 pixels."""
    nodes = [
        graphs.node("Conv", "x w1", "c1", "first", pads=[1, 1, 1, 1]), norm("bn1", "c1", "n1"),
        graphs.node("Relu", "n1", "r1", "relu1"),
        graphs.node("Conv", "r1 w2 b2", "c2", "second", pads=[1, 1, 1, 1]), norm("bn2", "c2", "n2"),
        graphs.node("Add", "n2 r1", "s", "sum"), graphs.node("Relu", "s", "r2", "relu2"),
        graphs.node("GlobalAveragePool", "r2", "p", "pool"), graphs.node("Flatten", "p", "f", "flat"),
        graphs.node("Gemm", "f w3 b3", "logits", "dense", transB=1), graphs.node("Softmax", "logits", "y", "soft"),
    ]  # fmt: skip
    weights = {
        "w1": graphs.random(7, 5, 3, 3, scale=0.3), "w2": graphs.random(7, 7, 3, 3, scale=0.2),
        "b2": graphs.random(7, scale=0.2), "w3": graphs.random(3, 7), "b3": graphs.random(3),
        **norm_weights("bn1", 7, 1), **norm_weights("bn2", 7, 2),
    }  # fmt: skip
    return graphs.model(
        nodes, [graphs.value("x", (batch, 5, 9, 11))], [graphs.value("y", (batch, 3))], weights
    )  # fmt: skip


def mlp() -> onnx.ModelProto:
    """matmul, bias, relu, matmul: 13, 17 and 3 wide."""
    nodes = [
        graphs.node("MatMul", "x w1", "m1", "up"), graphs.node("Add", "m1 b1", "a1", "bias"),
        graphs.node("Relu", "a1", "r1", "relu"), graphs.node("MatMul", "r1 w2", "y", "down"),
    ]  # fmt: skip
    weights = {"w1": graphs.random(13, 17), "b1": graphs.random(17), "w2": graphs.random(17, 3)}
    return graphs.model(nodes, [graphs.value("x", (5, 13))], [graphs.value("y", (5, 3))], weights)


def samples(model: onnx.ModelProto, count: int = 5) -> list[np.ndarray]:
    """Random inputs of a model with one input and fixed sizes (a free one is 1)."""
    sizes = [size.dim_value or 1 for size in model.graph.input[0].type.tensor_type.shape.dim]
    return [graphs.random(*sizes, seed=seed) for seed in range(count)]


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The first output, by onnxruntime without optimizations."""
    from tvm_ext.verification.reference import onnxruntime_session

    session = onnxruntime_session(model, 1, optimized=False)
    return np.asarray(session.run(None, {model.graph.input[0].name: x})[0])
