"""Checks a model before it is imported, so that what is wrong is named in the model's own words."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from ...core.errors import ModelError, UnsupportedError
from ...runtime.spec import TensorSpec
from ..naming import node_label
from ..reading.reader import Source
from ..reading.shapes import NO_NUMBERS, input_specs, type_name
from ..reading.tensors import array_of, count_nonfinite
from ..reading.walk import Opsets, Types, graph_tensors, with_inner
from .attributes import check_attributes
from .calls import check_calls, completed
from .graph_order import check_names, sorted_nodes
from .inference import inferred_types
from .operators import INTERNAL, check_operators, check_versions, is_withdrawn, opsets_of

#: A domain that ONNX's checker knows nothing of.
_UNCHECKED = "com.microsoft"


@dataclass(frozen=True)
class Shared:
    """Constants in Relax that imports at several sizes have in common: equal ones are then the same object.

    Attributes:
        weights: initializer name -> its constant.
        derived: what a converter makes of initializers alone, by operator, their names and what else it depends on.
    """

    weights: dict[str, Any] = field(default_factory=dict)
    derived: dict[Hashable, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """A model that is ready to be imported.

    Attributes:
        graph: the graph; functions of the model are inlined. Never change it: it may be the caller's.
        nodes: its nodes in an order in which every value is made before it is read.
        opset: version of the standard operators.
        opsets: domain -> version; the standard domain is "".
        inputs: name, static shape and dtype of every input, in graph order, initializers left out.
        weights: initializer name -> value.
        warnings: what is odd but allowed.
        types: value -> type, of every value that ONNX's inference knows.
        shared: of a model that is imported at several sizes: imports put constants here, and take them from here; None
            of any other.
    """

    graph: onnx.GraphProto
    nodes: tuple[onnx.NodeProto, ...]
    opset: int
    opsets: Opsets
    inputs: tuple[TensorSpec, ...]
    weights: Mapping[str, np.ndarray]
    warnings: tuple[str, ...]
    types: Types
    shared: Shared | None = None


def check_model(source: Source, shapes: Mapping[str, tuple[int | str, ...]], *, operators: bool = True) -> Checked:
    """Check a model and bind its input shapes; `source.proto` is left as it is.

    Args:
        operators: whether every node must be one that can be imported; without it nothing is asked of nodes, no
            types are inferred (ONNX's own checks know no operators but its own), and tensors without numbers, such
            as strings, are left out of the weights.

    Raises:
        ModelError: the model is not valid ONNX: a value nothing makes, a cycle, names made twice, tensors with too
            much or too little data, attributes that do not fit, free dimensions that `shapes` does not bind.
        OptionError: `shapes` contradicts the model.
        UnsupportedError: versions, operators or kinds of inputs that cannot be imported.
    """
    name = source.name
    proto, opset, nodes = source.once("nodes", lambda: _nodes(source))
    graph = proto.graph
    inputs = input_specs(graph, shapes, name)
    opsets = {"": opset, **opsets_of(proto)}
    weights, warnings = source.once(("weights", operators), lambda: _contents(proto, nodes, opsets, name, operators))
    known = Checked(graph, tuple(nodes), opset, opsets, inputs, weights, tuple(warnings), {})
    if not operators:
        return known
    shared = source.once("shared", Shared) if source.shared is not None else None
    return replace(known, types=inferred_types(proto, nodes, inputs, name), shared=shared)


def _nodes(source: Source) -> tuple[onnx.ModelProto, int, list[onnx.NodeProto]]:
    """The model without functions of its own, its opset, and its nodes in order."""
    proto, name = inlined(source.proto, source.name), source.name
    opset = check_versions(proto, name)
    if proto.graph.sparse_initializer:
        first = proto.graph.sparse_initializer[0].values.name
        raise UnsupportedError(f"{name}: sparse initializer {first!r}", fix="store it as a dense initializer")
    check_names(proto.graph, name)
    return proto, opset, sorted_nodes(proto.graph, name)


def _contents(
    proto: onnx.ModelProto, nodes: list[onnx.NodeProto], opsets: Opsets, name: str, operators: bool
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The weights, and warnings, of a model whose operators and attributes are checked, unless `operators` is False."""
    if operators:
        check_operators(nodes, opsets, name)
    weights, warnings = _weights(proto.graph, name, numbers=operators)
    if operators:
        _check_with_onnx(proto, nodes, name)
        check_attributes(nodes, name)
        if any(a is not b for a, b in zip(nodes, proto.graph.node, strict=True)):
            warnings = ["the nodes were not in topological order and have been sorted", *warnings]
    return weights, warnings


def inlined(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with calls of its own functions replaced by their bodies.

    Raises:
        ModelError: they cannot be.
        UnsupportedError: they would become too many nodes, or are written in another opset that means other things.
    """
    if not proto.functions:
        return proto
    check_calls(proto, name)
    proto = completed(proto, name)
    try:
        return onnx.inliner.inline_local_functions(proto)
    except Exception as error:  # the C++ side raises bare RuntimeError and more
        functions = ", ".join(f.name for f in proto.functions[:3])
        raise ModelError(f"{name}: its functions ({functions}) cannot be inlined: {error}") from error


def _weights(graph: onnx.GraphProto, name: str, numbers: bool) -> tuple[dict[str, np.ndarray], list[str]]:
    """The initializers, and what is odd about tensors; `numbers`: whether all have to hold some."""
    weights, warnings = {}, []
    top = len(graph.initializer)
    for i, (owner, tensor) in enumerate(graph_tensors(graph)):
        if not numbers and type_name(tensor.data_type) in NO_NUMBERS:
            continue
        array = array_of(tensor, owner, name)
        if count := count_nonfinite(array):
            warnings.append(f"{owner} holds {count}")
        if i < top:
            weights[tensor.name] = array
    return weights, warnings


def _check_with_onnx(proto: onnx.ModelProto, nodes: list[onnx.NodeProto], name: str) -> None:
    """onnx.checker over the model without its weights, which are checked already and would only be copied."""
    graph, opset, imports = proto.graph, opsets_of(proto).get("", 0), list(proto.opset_import)
    if all(o.domain != _UNCHECKED for o in imports):
        imports.append(onnx.helper.make_opsetid(_UNCHECKED, 1))
    listed = {value.name for value in graph.input}
    alone = (tensor for tensor in graph.initializer if tensor.name not in listed)
    weights = [onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in alone]
    known = [
        _foreign(node, opset) if any(_is_refused(n, opset) for n in with_inner([node])) else node for node in nodes
    ]
    bare = onnx.helper.make_graph(known, graph.name or "graph", [*graph.input, *weights], graph.output)
    skeleton = onnx.helper.make_model(bare, opset_imports=imports, ir_version=proto.ir_version)
    for value in (*skeleton.graph.input, *skeleton.graph.output):  # a rank may be unknown, the checker wants one
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(skeleton)
    except onnx.checker.ValidationError as error:
        where = _culprit(skeleton)
        reason = " ".join(str(error).split("\n\n==> Context")[0].split())
        raise ModelError(f"{name}: {where}not valid ONNX: {reason}", fix="export the model again") from error


def _is_refused(node: onnx.NodeProto, opset: int) -> bool:
    """Whether onnx.checker refuses an operator that can be imported: of its own domain what was withdrawn."""
    return node.op_type in INTERNAL or is_withdrawn(node, opset)


def _foreign(node: onnx.NodeProto, opset: int) -> onnx.NodeProto:
    """The node; what is refused, in graphs inside too, is of a domain that onnx.checker has no schemas of."""
    new = type(node)()
    new.CopyFrom(node)
    for inner in with_inner([new]):
        inner.domain = _UNCHECKED if _is_refused(inner, opset) else inner.domain
    return new


def _culprit(model: onnx.ModelProto) -> str:
    """The node that does not pass; onnx.checker names it only if it has a name."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {o.domain: o.version for o in model.opset_import}
    for node in model.graph.node:
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError:
            return f"node {node_label(node)!r} ({node.op_type}): "
    return ""
