"""Small ONNX models, written by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def value(name: str, shape: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op_type: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    """A node; inputs and outputs are names with spaces between, its own name is by default that of its first output."""
    outs = outputs.split(" ")
    return helper.make_node(op_type, inputs.split(" "), outs, name or f"{op_type.lower()}_{outs[0]}", **attributes)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, Any] | None = None, opset: int = 17, domains: Mapping[str, int] | Sequence[str] = (),
) -> onnx.ModelProto:  # fmt: skip
    """A model of a graph named "small"; of other domains by their versions, or of version 1."""
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, initializers)
    versions = {"": opset, **(domains if isinstance(domains, Mapping) else dict.fromkeys(domains, 1))}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def saved(proto: onnx.ModelProto, path: Path) -> str:
    """The path of a file that holds the model."""
    onnx.save(proto, path)
    return str(path)


def random(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers, the same each time."""
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)


def two_products(rows: int, *sizes: int, seed: int = 0) -> onnx.ModelProto:
    """relu(x w) v: x of so many rows, and three sizes, those of its columns, between and of the result's columns."""
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "y")]
    weights = {"w": random(*sizes[:2], seed=seed), "v": random(*sizes[1:], seed=seed)}
    return model(nodes, [value("x", (rows, sizes[0]))], [value("y", (rows, sizes[2]))], weights)


def residual_network(size: int = 56, width: int = 64) -> onnx.ModelProto:
    """As ResNet-18: a stem, a pool, a block, one with a convolution as its shortcut, global pooling and a matmul.

    Args:
        size: of the image "x" [1, 3, size, size].
        width: channels of the first block; the second has twice as many.
    """
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}

    def conv(x: str, y: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        weights[f"{y}_w"] = random(outputs, inputs, kernel, kernel, scale=(inputs * kernel**2) ** -0.5, seed=len(nodes))
        weights[f"{y}_b"] = random(outputs, seed=len(nodes))
        nodes.append(node("Conv", f"{x} {y}_w {y}_b", y, strides=[stride] * 2, pads=[kernel // 2] * 4))

    conv("x", "stem", 3, width, 7, 2)
    nodes.append(node("Relu", "stem", "r0"))
    nodes.append(node("MaxPool", "r0", "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    conv("pool", "c1", width, width, 3)
    nodes.append(node("Relu", "c1", "r1"))
    conv("r1", "c2", width, width, 3)
    nodes += [node("Add", "c2 pool", "a1"), node("Relu", "a1", "r2")]
    conv("r2", "c3", width, 2 * width, 3, 2)
    nodes.append(node("Relu", "c3", "r3"))
    conv("r3", "c4", 2 * width, 2 * width, 3)
    conv("r2", "shortcut", width, 2 * width, 1, 2)
    nodes += [
        node("Add", "c4 shortcut", "a2"), node("Relu", "a2", "r4"), node("GlobalAveragePool", "r4", "mean"),
        node("Flatten", "mean", "flat"), node("Gemm", "flat fc fc_b", "y"),
    ]  # fmt: skip
    weights |= {"fc": random(2 * width, 50, scale=(2 * width) ** -0.5), "fc_b": random(50)}
    return model(nodes, [value("x", [1, 3, size, size])], [value("y", [1, 50])], weights)


def text_model(text: str, weights: Mapping[str, Any] | None = None, opset: int = 17) -> onnx.ModelProto:
    """A model in ONNX's own text, of an opset if it names none, with the values of names that it does not define."""
    head = "" if text.lstrip().startswith("<") else f'<ir_version: 8, opset_import: ["": {opset}]>\n'
    proto = onnx.parser.parse_model(head + text)
    arrays = (weights or {}).items()
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays)
    onnx.checker.check_model(proto)
    return proto
