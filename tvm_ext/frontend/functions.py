"""Operators without a converter that ONNX itself defines by other operators: their nodes become that definition.

    y = Celu(x)   ->   a = Elu(x / alpha); y = a * alpha

ONNX keeps the definitions beside its schemas; some depend on the types of a node's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .copies import Copies
from .known_values import computed, known_outputs
from .loops import LOOPS, Known, unrolled
from .naming import Names, node_label
from .walk import inner_graphs

if TYPE_CHECKING:
    import onnx

#: Definitions inside definitions: as deep as ONNX nests them, and more.
_DEPTH = 8

Types = Callable[[Sequence["onnx.NodeProto"]], Mapping[str, "onnx.TypeProto"]]
"""Nodes -> type of each value that is known."""


def expanded(
    nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int], wanted: Callable[[onnx.NodeProto], bool], types: Types,
    initializers: Mapping[str, onnx.TensorProto],
) -> list[onnx.NodeProto]:  # fmt: skip
    """Nodes with definitions in the place of those that are `wanted` so, as deep as definitions go, and loops unrolled.

    Args:
        nodes: in order; never changed.
        opsets: domain -> version that the model states.
        wanted: whether a node is to be replaced, if it has a definition.
        types: finds types; asked only where a definition depends on them.
        initializers: of the model, by name.
    """
    current = list(nodes)
    for _ in range(_DEPTH):
        found = [node for node in current if _is_replaceable(node, opsets, wanted)]
        if not found:
            break
        names = Names()
        for value in _values(current):
            names.fresh(value)
        known = types(current) if any(_by_types(node, opsets) for node in found) else {}
        constants = _Constants(current, initializers, opsets.get("", 1))
        replaced = {id(node): _replacement(node, opsets, known, constants, names) for node in found}
        if all(body is None for body in replaced.values()):
            break
        current = [new for node in current for new in (replaced.get(id(node)) or [node])]
    return current


def _is_replaceable(node: onnx.NodeProto, opsets: Mapping[str, int], wanted: Callable[[onnx.NodeProto], bool]) -> bool:
    return node.op_type in LOOPS or (wanted(node) and _schema(node, opsets) is not None)


def _replacement(
    node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, onnx.TypeProto], known: Known, names: Names
) -> list[onnx.NodeProto] | None:
    if node.op_type in LOOPS:
        return unrolled(node, opsets.get("", 1), types, known, names)
    return _definition(node, opsets, types, names)


class _Constants:
    """Value -> what it is, for initializers, constants, and what is computed of them."""

    def __init__(
        self, nodes: Iterable[onnx.NodeProto], initializers: Mapping[str, onnx.TensorProto], opset: int
    ) -> None:
        self._opset = opset
        self._makers = {output: node for node in nodes for output in node.output}
        self._initializers = initializers

    def __call__(self, name: str) -> np.ndarray | None:
        from onnx import numpy_helper

        if (tensor := self._initializers.get(name)) is not None:
            return np.asarray(numpy_helper.to_array(tensor))
        if (maker := self._makers.get(name)) is None:
            return None
        if maker.op_type == "Constant":
            made = known_outputs(maker, [], self._opset)
        else:
            values = [self(given) if given else None for given in maker.input]
            there = [value is not None for value, given in zip(values, maker.input, strict=True) if given]
            made = computed(maker, values, self._opset) if there and all(there) else None
        return made[list(maker.output).index(name)] if made else None


def _schema(node: onnx.NodeProto, opsets: Mapping[str, int]) -> Any:
    """The node's schema, if it has a definition."""
    from onnx import defs

    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in opsets or not defs.has(node.op_type, opsets[domain], domain):
        return None
    schema = defs.get_schema(node.op_type, opsets[domain], domain)
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _by_types(node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    schema = _schema(node, opsets)
    return node.op_type in LOOPS or bool(schema is not None and schema.has_context_dependent_function)


def _definition(
    node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, onnx.TypeProto], names: Names
) -> list[onnx.NodeProto] | None:
    """The nodes that define a node; None if the definition does not fit it (a type is not known)."""
    import onnx

    schema = _schema(node, opsets)
    whole = onnx.NodeProto()
    whole.CopyFrom(node)
    given = {attribute.name for attribute in node.attribute}
    whole.attribute.extend(a.default_value for name, a in schema.attributes.items()
                           if name not in given and a.default_value.name)  # fmt: skip
    data = _function(schema, whole, opsets, types)
    if not data:
        return None
    function = onnx.FunctionProto.FromString(data)
    inputs = [*node.input, *[""] * len(function.input)]
    renamed = dict(zip(function.input, inputs, strict=False))
    renamed |= {inner: outer for inner, outer in zip(function.output, node.output, strict=False) if outer}
    attributes = {attribute.name: attribute for attribute in whole.attribute}
    return Copies(node_label(node), names, renamed, attributes=attributes).nodes(function.node)


def _function(
    schema: Any, node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, onnx.TypeProto]
) -> bytes:
    """The serialized definition for the version nearest to the model's; empty if there is none."""
    standard = opsets.get("", schema.since_version)
    if schema.has_function:
        version = _nearest(schema.function_opset_versions, standard)
        return bytes(schema.get_function_with_opset_version(version)) if version else b""
    version = _nearest(schema.context_dependent_function_opset_versions, standard)
    if not version or any(name and name not in types for name in node.input):
        return b""
    import onnx

    blank = onnx.TypeProto()
    kinds = [types.get(name, blank).SerializeToString() for name in node.input]
    made = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), kinds)
    return bytes(made)


def _nearest(versions: Iterable[int], stated: int) -> int:
    """The newest version that is not newer than what the model states; else the oldest one."""
    listed = sorted(versions)
    return max((v for v in listed if v <= stated), default=listed[0] if listed else 0)


def _values(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Names of all values that nodes read or make, those of graphs inside them too."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input, node.output)
        for graph in inner_graphs(node.attribute):
            found |= _values(graph.node) | {value.name for value in (*graph.input, *graph.initializer)}
    return found
