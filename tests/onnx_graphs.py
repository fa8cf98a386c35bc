"""Small ONNX models, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def random(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers, the same each time."""
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)
