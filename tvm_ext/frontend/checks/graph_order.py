"""Checks that a graph holds together: names made once, every value made by somebody, nodes in an order that works."""

import graphlib
import heapq
from collections.abc import Iterable, Iterator

import onnx

from ...core.errors import ModelError
from ..naming import node_label
from ..reading.walk import inner_graphs

_REPAIR = "export the model again; onnx.checker.check_model(path) lists what else is wrong"


def check_names(graph: onnx.GraphProto, model: str) -> None:
    """Every value has one maker: an input, an initializer, or one node.

    Raises:
        ModelError: names the value and who makes it twice.
    """
    makers: dict[str, str] = {}
    for name, maker in _makers(graph):
        if not name:
            raise ModelError(f"{model}: {maker} has no name", fix=_REPAIR)
        # up to IR version 3 every initializer was listed as an input too: its default value
        if name in makers and {makers[name], maker} != {"an input", "an initializer"}:
            both = f"both {makers[name]} and {maker}" if makers[name] != maker else f"{maker} twice"
            raise ModelError(f"{model}: value {name!r} is made by {both}", fix=_REPAIR)
        makers[name] = maker
    for output in graph.output:
        if output.name not in makers:
            last = ", ".join(map(repr, [*makers][-3:]))
            known = f"the last values made are {last}" if makers else "it makes no values at all"
            wrong = f"{model}: no node makes output {output.name!r}; {known}"
            raise ModelError(wrong, fix="the graph is incomplete: " + _REPAIR)


def _makers(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    yield from ((value.name, "an input") for value in graph.input)
    yield from ((tensor.name, "an initializer") for tensor in graph.initializer)
    for node in graph.node:
        yield from ((output, f"node {node_label(node)!r}") for output in node.output if output)


def sorted_nodes(graph: onnx.GraphProto, model: str) -> list[onnx.NodeProto]:
    """The nodes in an order that works: as they stand if that does, else sorted, nodes moved only where needed.

    Raises:
        ModelError: a node reads a value that nothing makes, or the nodes of a cycle, by name.
    """
    maker = {output: i for i, node in enumerate(graph.node) for output in node.output if output}
    held = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    held |= {s.values.name for s in graph.sparse_initializer}
    needs: list[set[int]] = []
    for node in graph.node:
        reads = list(dict.fromkeys(reads_of(node)))
        if lost := [name for name in reads if name not in maker and name not in held]:
            wrong = f"reads {lost[0]!r}, which no node, input or initializer makes"
            raise ModelError(f"{model}: node {node_label(node)!r} {wrong}", fix=_REPAIR)
        needs.append({maker[name] for name in reads if name in maker})
    sorter = graphlib.TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        labels = [node_label(graph.node[i]) for i in error.args[1]]
        if len(labels) > 8:
            labels = [*labels[:4], f"({len(labels) - 8} more)", *labels[-4:]]
        raise ModelError(f"{model}: nodes form a cycle: {' -> '.join(labels)}", fix=_REPAIR) from error
    ready, order = list(sorter.get_ready()), []
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
        for user in sorter.get_ready():
            heapq.heappush(ready, user)
    return [graph.node[i] for i in order]


def reads_of(node: onnx.NodeProto) -> Iterator[str]:
    """Names a node reads: its inputs, and what the graphs inside it (branches of If) take from outside."""
    yield from (name for name in node.input if name)
    for graph in inner_graphs(node.attribute):
        own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
        own |= {output for inner in graph.node for output in inner.output}
        for inner in graph.node:
            yield from (name for name in reads_of(inner) if name not in own)
        yield from (v.name for v in graph.output if v.name not in own)


def inputs_behind(values: Iterable[str], nodes: Iterable[onnx.NodeProto], inputs: Iterable[str]) -> list[str]:
    """Those of the graph's inputs from which values are computed, in graph order.

    Args:
        values: names in the graph.
        nodes: all of the graph.
        inputs: names of the graph's inputs.
    """
    makers = {output: maker for maker in nodes for output in maker.output if output}
    seen: set[str] = set()
    left = list(values)
    while left:
        if (name := left.pop()) not in seen:
            seen.add(name)
            left += reads_of(makers[name]) if name in makers else []
    return [name for name in inputs if name in seen]
