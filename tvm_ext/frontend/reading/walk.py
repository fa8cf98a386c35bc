"""Walks over a model: attributes and the graphs inside nodes, all nodes, all tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..naming import node_label

if TYPE_CHECKING:
    import onnx

Opsets = Mapping[str, int]
Types = Mapping[str, "onnx.TypeProto"]


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute of a node as a Python value."""
    from onnx import helper

    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def opset_imports(versions: Opsets) -> list[onnx.OperatorSetIdProto]:
    """Domain -> version, as a model states it."""
    from onnx import helper

    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def inner_graphs(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs that attributes hold: branches of an If, the body of a Loop."""
    for attribute in attributes:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Every node, and every one of the graphs inside them."""
    for node in nodes:
        yield node
        for graph in inner_graphs(node.attribute):
            yield from with_inner(graph.node)


def with_branches(nodes: Iterable[onnx.NodeProto], always: bool = True) -> Iterator[tuple[onnx.NodeProto, bool]]:
    """Every node, and every one of the graphs inside them; whether it always runs: in no branch of an If."""
    for node in nodes:
        yield node, always
        for graph in inner_graphs(node.attribute):
            yield from with_branches(graph.node, always and node.op_type != "If")


def value_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Names of all values that nodes read or make, those of graphs inside them too."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input, node.output)
        for graph in inner_graphs(node.attribute):
            names |= value_names(graph.node) | {value.name for value in (*graph.input, *graph.initializer)}
    return names


def model_tensors(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Every tensor that the model holds, with words that say whose it is."""
    yield from graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _attribute_tensors(function.attribute_proto, f"function {function.name!r}")
        for node in function.node:
            yield from _attribute_tensors(node.attribute, f"node {node_label(node)!r}")


def graph_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Every tensor of a graph: initializers first, then sparse ones, then attributes, also of the graphs inside."""
    for tensor in graph.initializer:
        yield f"initializer {tensor.name!r}", tensor
    for sparse in graph.sparse_initializer:
        yield f"sparse initializer {sparse.values.name!r}", sparse.values
        yield f"indices of sparse initializer {sparse.values.name!r}", sparse.indices
    for node in graph.node:
        yield from _attribute_tensors(node.attribute, f"node {node_label(node)!r}")


def _attribute_tensors(
    attributes: Iterable[onnx.AttributeProto], holder: str
) -> Iterator[tuple[str, onnx.TensorProto]]:
    for attribute in attributes:
        for tensor in _own_tensors(attribute):
            yield f"attribute {attribute.name!r} of {holder}", tensor
        for graph in inner_graphs([attribute]):
            yield from graph_tensors(graph)


def _own_tensors(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for both in (*sparse, *attribute.sparse_tensors):
        yield from (both.values, both.indices)
