"""A model that rounds activations to 8 bits (DynamicQuantizeLinear), in two parts that can be compared exactly.

    y = f(x); q, s, z = DynamicQuantizeLinear(y); w = g(q, s, z)
    ->  roundings: y -> q, s, z           everything else: x, q, s, z -> y, w

Both get onnxruntime's own values, so that no difference of a rounding reaches the next one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

_ROUNDING = "DynamicQuantizeLinear"
#: Operators whose outputs are integers, of the same bits everywhere.
_INTEGERS = ("MatMulInteger", "ConvInteger")


@dataclass(frozen=True)
class Pieces:
    """The parts.

    Attributes:
        watched: the whole model, with every value that stands at a cut, and every sum of integers, as an output.
        roundings: DynamicQuantizeLinear alone, all of them.
        rest: everything else.
    """

    watched: onnx.ModelProto
    roundings: onnx.ModelProto
    rest: onnx.ModelProto


def pieces_of(model: onnx.ModelProto, values: Mapping[str, np.ndarray] | None = None) -> Pieces:
    """Cut a model.

    Args:
        model: the model; it stays as it is.
        values: of what is watched, by name: with them the parts have static shapes.
    """
    graph = model.graph
    roundings = [node for node in graph.node if node.op_type == _ROUNDING]
    others = [node for node in graph.node if node.op_type != _ROUNDING]
    before = _unique(node.input[0] for node in roundings)
    after = {
        name: kind
        for node in roundings
        for name, kind in zip(node.output, (TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8), strict=True)
    }
    sums = [node.output[0] for node in others if node.op_type in _INTEGERS]
    known = values or {}
    floats = [_value(name, TensorProto.FLOAT, known) for name in before]
    rounded = [_value(name, kind, known) for name, kind in after.items()]
    integers = [_value(name, TensorProto.INT32, known) for name in sums]
    return Pieces(
        _like(model, graph.node, graph.input, [*graph.output, *floats, *rounded, *integers]),
        _like(model, roundings, floats, rounded),
        _like(model, others, [*graph.input, *rounded], [*graph.output, *floats, *integers]),
    )  # fmt: skip


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _value(name: str, kind: int, known: Mapping[str, np.ndarray]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, known[name].shape if name in known else None)


def _like(
    model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[onnx.ValueInfoProto],
) -> onnx.ModelProto:  # fmt: skip
    """A model of other nodes, inputs and outputs, with those of the weights that its nodes read."""
    nodes = list(nodes)
    read = {name for node in nodes for name in node.input}
    weights = [tensor for tensor in model.graph.initializer if tensor.name in read]
    graph = helper.make_graph(nodes, "pieces", list(inputs), list(outputs), weights)
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
