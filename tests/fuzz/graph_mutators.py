"""Mutations of a graph: its nodes, edges, names, inputs and outputs, versions. Each changes a ModelProto in place."""

import functools
from collections.abc import Callable, Iterator
from random import Random

import onnx
from onnx import TensorProto, helper

from .numbers import SIZES, TYPES

Mutator = Callable[[onnx.ModelProto, Random], None]
_NAMES = (
    "", " ", "a" * 100_000, "x\0y", "x\ny", "../x", "/", 'a"b', "a'b", "{0}", "%s", "class", "é", "\u202e", "_", "0",
    "main", "lv", "input", "relax", "__import__('os')", "x" * 300,
)  # fmt: skip


class NothingToChange(Exception):
    """The model has nothing that a mutator looks for."""


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph and all within it."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            pending += [a.g for a in node.attribute if a.HasField("g")]


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """All nodes, also of graphs within and of functions."""
    return [n for g in graphs(model) for n in g.node] + [n for f in model.functions for n in f.node]


def some(rng: Random, values: object) -> object:
    """One of some values.

    Raises:
        NothingToChange: there is none.
    """
    listed = list(values)  # type: ignore[call-overload]
    if not listed:
        raise NothingToChange
    return rng.choice(listed)


@functools.cache
def _operators() -> tuple[str, ...]:
    return tuple(sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}))


def operator(model: onnx.ModelProto, rng: Random) -> None:
    """A node is another operator, or none that exists, or of another domain."""
    node = some(rng, nodes(model))
    if rng.random() < 0.7:
        node.op_type = rng.choice(_operators())
    elif rng.random() < 0.5:
        node.op_type = rng.choice(("NoSuch", "", "relu", "If", "Loop", "a" * 5000, "__class__"))
    else:
        node.domain = rng.choice(("com.microsoft", "ai.onnx.ml", "ai.onnx", "nowhere", "own"))


def edges(model: onnx.ModelProto, rng: Random) -> None:
    """A node reads another value, none, one too many or one too few."""
    node = some(rng, nodes(model))
    values = [name for n in nodes(model) for name in (*n.input, *n.output)] or ["x"]
    inputs = list(node.input)
    how = rng.randrange(6)
    if how == 0 or not inputs:
        inputs.append(rng.choice(values))
    elif how == 1:
        inputs.pop(rng.randrange(len(inputs)))
    elif how == 2:
        rng.shuffle(inputs)
    else:
        new = rng.choice(values) if how < 5 else rng.choice(("", "nothing makes me"))
        inputs[rng.randrange(len(inputs))] = new
    del node.input[:]
    node.input.extend(inputs)


def cycle(model: onnx.ModelProto, rng: Random) -> None:
    """A node reads what is made of its own result."""
    graph = some(rng, graphs(model))
    first, last = sorted((rng.randrange(len(graph.node) or 1), rng.randrange(len(graph.node) or 1)))
    if not graph.node or not graph.node[last].output:
        raise NothingToChange
    value = graph.node[last].output[0]
    node = graph.node[first]
    if node.input:
        node.input[rng.randrange(len(node.input))] = value
    else:
        node.input.append(value)


def outputs_of_a_node(model: onnx.ModelProto, rng: Random) -> None:
    """A node makes one value more or less, or one that another makes too."""
    node = some(rng, nodes(model))
    values = [name for n in nodes(model) for name in (*n.input, *n.output)]
    outputs = list(node.output)
    how = rng.randrange(4)
    if how == 0 or not outputs:
        outputs.append(rng.choice(("more", "", *values)))
    elif how == 1:
        outputs.pop()
    else:
        outputs[rng.randrange(len(outputs))] = rng.choice(("", "other", *values))
    del node.output[:]
    node.output.extend(outputs)


def drop_or_copy_node(model: onnx.ModelProto, rng: Random) -> None:
    """A node is missing, stands there twice, or many times in a row."""
    graph = some(rng, graphs(model))
    if not graph.node:
        raise NothingToChange
    at = rng.randrange(len(graph.node))
    how = rng.randrange(4)
    if how == 0:
        del graph.node[at]
    elif how == 1:
        graph.node.append(graph.node[at])
    elif how == 2:
        moved = onnx.NodeProto()
        moved.CopyFrom(graph.node[at])
        del graph.node[at]
        graph.node.insert(rng.randrange(len(graph.node) + 1), moved)
    else:
        _chain(graph, graph.node[at], rng.choice((3, 10, 60)))


def _chain(graph: onnx.GraphProto, node: onnx.NodeProto, count: int) -> None:
    """The node again and again, each on the result of the one before it."""
    if not node.input or not node.output:
        raise NothingToChange
    value = node.output[0]
    for step in range(count):
        new = graph.node.add()
        new.CopyFrom(node)
        new.name = f"again{step}"
        new.input[0], new.output[0] = value, f"again{step}"
        value = f"again{step}"
    graph.output[0].name = value


def names(model: onnx.ModelProto, rng: Random) -> None:
    """A value, node, dimension, input, output or graph has an odd name, everywhere or in one place."""
    new = rng.choice(_NAMES)
    values = sorted({name for n in nodes(model) for name in (*n.input, *n.output)})
    how = rng.randrange(4)
    if how == 0 and values:
        _rename(model, rng.choice(values), new)
    elif how == 1:
        some(rng, nodes(model)).name = new
    elif how == 2:
        some(rng, [v for g in graphs(model) for v in (*g.input, *g.output, *g.initializer)]).name = new
    else:
        holder = rng.choice(("graph", "domain", "attribute"))
        if holder == "graph":
            model.graph.name = new
        elif holder == "domain":
            model.opset_import.add(domain=new, version=1)
        else:
            some(rng, [a for n in nodes(model) for a in n.attribute]).name = new


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for node in nodes(model):
        for side in (node.input, node.output):
            for i, name in enumerate(side):
                side[i] = new if name == old else name
    for graph in graphs(model):
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = new if value.name == old else value.name


def interface(model: onnx.ModelProto, rng: Random) -> None:
    """Inputs and outputs of the graph: dropped, doubled, or another value stands there."""
    graph = some(rng, graphs(model))
    how, side = rng.randrange(5), rng.choice((graph.input, graph.output))
    values = [name for n in graph.node for name in (*n.input, *n.output)] or ["x"]
    if how == 0 and side:
        del side[rng.randrange(len(side))]
    elif how == 1 and side:
        side.append(rng.choice(side))
    elif how == 2 and side:
        side[rng.randrange(len(side))].name = rng.choice(values)
    elif how == 3:
        side.append(helper.make_tensor_value_info(rng.choice(values), rng.choice(TYPES), [rng.choice(SIZES)]))
    else:
        new = rng.choice(values)
        graph.initializer.append(helper.make_tensor(new, TensorProto.FLOAT, [2], [1.0, 2.0]))


def dimensions(model: onnx.ModelProto, rng: Random) -> None:
    """Some dimension of an input or output is negative, 0, huge, free or missing."""
    kept = [v for g in graphs(model) for v in (*g.input, *g.input, *g.output) if v.type.HasField("tensor_type")]
    shape = some(rng, kept).type.tensor_type.shape
    how = rng.randrange(8)
    if how < 4 and shape.dim:
        rng.choice(shape.dim).dim_value = rng.choice(SIZES)
    elif how == 4 and shape.dim:
        rng.choice(shape.dim).dim_param = rng.choice(("N", "", "?", "a" * 1000, "N*2", "-1", "0"))
    elif how == 5 and shape.dim:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif how == 6:
        shape.dim.add(dim_value=rng.choice((1, 2, *SIZES)))
    else:
        for _ in range(rng.choice((5, 9, 70))):
            shape.dim.add(dim_value=1)


def types(model: onnx.ModelProto, rng: Random) -> None:
    """An input or output has another element type, or is no tensor."""
    value = some(rng, [v for g in graphs(model) for v in (*g.input, *g.output)])
    if rng.random() < 0.75:
        value.type.tensor_type.elem_type = rng.choice((*TYPES, 0, 99, -1))
        return
    inner = onnx.TypeProto()
    inner.CopyFrom(value.type)
    new = rng.choice(
        (helper.make_sequence_type_proto(inner), helper.make_optional_type_proto(inner), onnx.TypeProto(),
         helper.make_map_type_proto(TensorProto.INT64, inner), helper.make_sparse_tensor_type_proto(1, [2]))
    )  # fmt: skip
    value.type.CopyFrom(new)


def versions(model: onnx.ModelProto, rng: Random) -> None:
    """IR version, opsets and their domains."""
    how = rng.randrange(4)
    if how == 0:
        model.ir_version = rng.choice((0, 1, 2, 3, 4, 8, 12, 13, 14, 99, -1, (1 << 63) - 1))
    elif how == 1 and model.opset_import:
        one = rng.choice(model.opset_import)
        one.version = rng.choice((0, -1, 1, 6, 7, 8, 11, 12, 13, 18, 22, 26, 27, 28, 1 << 40))
    elif how == 2:
        domain = rng.choice(("", "ai.onnx", "own", "com.microsoft"))
        model.opset_import.add(domain=domain, version=rng.randrange(-1, 30))
    elif model.opset_import:
        del model.opset_import[rng.randrange(len(model.opset_import))]


MUTATORS: tuple[Mutator, ...] = (
    operator, edges, edges, cycle, outputs_of_a_node, drop_or_copy_node, names, interface, dimensions, dimensions,
    types, versions,
)  # fmt: skip
