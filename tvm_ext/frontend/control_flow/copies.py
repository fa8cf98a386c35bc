"""Copies of nodes out of a body (a function's, a loop's) into a graph, in names of the graph."""

from collections.abc import Iterable, Mapping, Set

import onnx

from ..naming import Names
from ..reading.walk import inner_graphs


class Copies:
    """Copies nodes of one body.

    Args:
        label: name of every copy, and prefix of the values that they make: what users see is the node that they
            stand for. None: copies keep their names.
        names: of the whole graph; gives names that nothing has yet.
        renamed: value of the body -> value of the graph, for inputs and outputs; further ones are added.
        local: values that the body makes; any other name is one of the graph already. None: all are the body's.
        attributes: of the node, for attributes of the body that refer to them.
    """

    def __init__(
        self, label: str | None, names: Names, renamed: Mapping[str, str], local: Set[str] | None = None,
        attributes: Mapping[str, onnx.AttributeProto] | None = None,
    ) -> None:  # fmt: skip
        self._label, self._names, self._local = label, names, local
        self._attributes = attributes or {}
        self.renamed = {"": "", **renamed}

    def nodes(self, body: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The copies, in order."""
        return [self._copy(node, self.renamed) for node in body]

    def name(self, value: str) -> str:
        """The graph's name of a value of the body."""
        return self._name(value, self.renamed)

    def _copy(self, inner: onnx.NodeProto, renamed: dict[str, str]) -> onnx.NodeProto:
        new = type(inner)()
        new.CopyFrom(inner)
        new.name = inner.name if self._label is None else self._label
        del new.input[:], new.output[:], new.attribute[:]
        new.input.extend(self._name(name, renamed) for name in inner.input)
        new.output.extend(self._name(name, renamed) for name in inner.output)
        for attribute in inner.attribute:
            if not attribute.ref_attr_name:
                new.attribute.append(attribute)
                for graph in inner_graphs([new.attribute[-1]]):
                    self._rename_graph(graph, dict(renamed))
            elif attribute.ref_attr_name in self._attributes:  # a graph of the node has the graph's names already
                new.attribute.append(self._attributes[attribute.ref_attr_name])
                new.attribute[-1].name = attribute.name
        return new

    def _rename_graph(self, graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
        for value in (*graph.input, *graph.initializer):
            renamed[value.name] = value.name = self._names.fresh(value.name)
        for node in graph.node:
            renamed.update({name: self._names.fresh(name) for name in node.output if name})
        new = [self._copy(node, renamed) for node in graph.node]
        del graph.node[:]
        graph.node.extend(new)
        for value in graph.output:
            value.name = self._name(value.name, renamed)

    def _name(self, name: str, renamed: dict[str, str]) -> str:
        if name not in renamed:
            if self._local is not None and name not in self._local:
                return name
            renamed[name] = self._names.fresh(name if self._label is None else f"{self._label}/{name}")
        return renamed[name]
