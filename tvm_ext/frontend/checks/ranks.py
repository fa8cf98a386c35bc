"""Which converter made a value of another number of dimensions than ONNX infers for its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from ..known_values import value_of
from ..naming import node_label
from ..types import type_of
from .inference import dims_known, types_of_outputs


def wrong_rank(nodes: Sequence[onnx.NodeProto], values: Mapping[str, Any], opset: int) -> str:
    """The first node whose output has another number of dimensions than ONNX infers from the node's own operands.

    Args:
        nodes: of the graph, in order.
        values: name -> Relax expression, of every value of the graph.
        opset: version of the standard operators.

    Returns:
        A sentence; "" if there is no such node. Nodes that inference knows nothing of are passed over.
    """
    for node in nodes:
        for name, rank in _inferred_ranks(node, values, opset).items():
            shape = dims_known(type_of(values.get(name)))
            if shape is not None and len(shape) != rank:
                return f"node {node_label(node)!r} ({node.op_type}) makes {name!r} with shape {shape}, not {rank}-D"
    return ""


def _inferred_ranks(node: onnx.NodeProto, values: Mapping[str, Any], opset: int) -> dict[str, int]:
    """Output -> its number of dimensions, as far as ONNX infers it."""
    inputs = {name: values[name] for name in node.input if name in values}
    types = {name: type_of(value) for name, value in inputs.items()}
    known = {name: array for name, value in inputs.items() if (array := value_of(value)) is not None}
    inferred = types_of_outputs(node, {"": opset}, types, known)
    return {name: len(dims) for name, kind in inferred.items() if (dims := dims_known(kind)) is not None}
