"""A float32 model made ready for quantization, with its nodes' names kept: constants as weights, batch norms folded.

onnxruntime's own optimizer would fold batch norms too, and rename, merge and move nodes as it does; here a
convolution keeps its name, and its output takes the batch norm's, which is the value that the user's model had there.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper

from ..frontend.known_values import evaluated, known_outputs
from ..frontend.reading.walk import attribute, inner_graphs
from ..ops import Kind, Operator, of


def fold(model: onnx.ModelProto) -> list[str]:
    """Change a model in place: constants become initializers, batch norms go into the layer before them.

    Args:
        model: its nodes have names, each another one.

    Returns:
        What was done, as sentences.
    """
    constants = _fold_constants(model.graph, next(o.version for o in model.opset_import if not o.domain))
    folded, left = _fold_batch_norms(model.graph)
    drop_unused(model.graph)
    notes = [f"{folded} batch norms were folded into the layers before them"] if folded else []
    if left:
        notes.append(f"batch norms that no layer could take: {', '.join(left)}")
    return notes + ([f"{constants} weights were computed from others"] if constants else [])


def uses_of(graph: onnx.GraphProto) -> Counter[str]:
    """How often each value is read: by nodes, by graphs inside of nodes, and as an output."""
    uses = Counter(output.name for output in graph.output)
    for node in graph.node:
        uses.update(node.input)
        for inner in inner_graphs(node.attribute):
            uses.update(uses_of(inner))
    return uses


def _fold_constants(graph: onnx.GraphProto, opset: int) -> int:
    """Constant nodes, and what only reorders a weight, become initializers; returns how many of the latter."""
    known = {item.name: item for item in graph.initializer}
    outputs = {item.name for item in graph.output}
    kept, computed = [], 0
    for node in graph.node:
        value = None
        if len(node.output) == 1 and node.output[0] not in outputs and not node.domain:
            value = _known(node, known, opset)
        if value is None:
            kept.append(node)
            continue
        computed += node.op_type != "Constant"
        tensor = graph.initializer.add()
        tensor.CopyFrom(numpy_helper.from_array(value, node.output[0]))
        known[tensor.name] = tensor
    _set_nodes(graph, kept)
    return computed


def _known(node: onnx.NodeProto, known: dict[str, onnx.TensorProto], opset: int) -> np.ndarray | None:
    """The value of a constant, or of a weight in another order; None of sparse ones, strings, and anything else."""
    if node.op_type == "Constant":
        results = known_outputs(node, [], opset)
    elif _reorders(of(node.op_type)) and all(name in known for name in node.input if name):
        results = evaluated(node, [numpy_helper.to_array(known[name]) if name else None for name in node.input], opset)
    else:
        return None
    return results[0] if results else None


def _reorders(row: Operator) -> bool:
    """Whether an operator is what exporters put between a weight and its user; its result is no larger."""
    moves = row.kind in (Kind.VIEW, Kind.MOVE) and row.shape_arithmetic in ("elementwise", "not larger")
    return moves or row.types == "conversion"


def _fold_batch_norms(graph: onnx.GraphProto) -> tuple[int, list[str]]:
    makers = {name: node for node in graph.node for name in node.output}
    uses = uses_of(graph)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    kept, left, folded = [], [], 0
    for node in graph.node:
        if node.op_type != "BatchNormalization":
            kept.append(node)
            continue
        layer = makers.get(node.input[0])
        if layer is not None and uses[node.input[0]] == 1 and _takes(layer, node, weights):
            _fold_one(graph, layer, node, weights, uses)
            makers[node.output[0]] = layer
            folded += 1
        else:
            kept.append(node)
            left.append(node.name)
    _set_nodes(graph, kept)
    return folded, left


def _takes(layer: onnx.NodeProto, norm: onnx.NodeProto, weights: dict[str, onnx.TensorProto]) -> bool:
    """Whether all that decides the result is constant, and the norm has but the one output of inference."""
    constants = [*list(layer.input)[1:], *list(norm.input)[1:]]
    single = not any(list(norm.output)[1:]) and not attribute(norm, "training_mode", 0)
    known = layer.op_type in ("Conv", "ConvTranspose", "Gemm") and not layer.domain
    return known and single and all(not name or name in weights for name in constants)


def _fold_one(
    graph: onnx.GraphProto, layer: onnx.NodeProto, norm: onnx.NodeProto, weights: dict[str, onnx.TensorProto],
    uses: Counter[str],
) -> None:  # fmt: skip
    """layer, then (x - mean) * scale + bias -> layer with weight * scale and (its bias - mean) * scale + bias."""

    def of(name: str) -> np.ndarray:
        return np.asarray(numpy_helper.to_array(weights[name]), np.float64)

    gamma, beta, mean, variance = (of(name) for name in norm.input[1:5])
    scale = gamma / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
    weight = of(layer.input[1])
    old = of(layer.input[2]) if len(layer.input) > 2 and layer.input[2] else np.zeros_like(mean)
    factor = attribute(layer, "beta", 1.0) if layer.op_type == "Gemm" else 1.0
    bias = (factor * old - mean) * scale + beta
    folded = {"weight": weight * _along_outputs(layer, weight, scale), "bias": np.broadcast_to(bias, mean.shape)}
    dtype = numpy_helper.to_array(weights[layer.input[1]]).dtype
    names = []
    for index, (kind, array) in enumerate(folded.items(), start=1):
        operand = layer.input[index] if len(layer.input) > index else ""
        name = operand if operand and uses[operand] == 1 else f"{layer.name}.{kind}"
        if name not in weights:
            weights[name] = graph.initializer.add()
        weights[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        names.append(name)
    layer.input[:] = [layer.input[0], *names]
    layer.output[0] = norm.output[0]
    for stated in layer.attribute:
        if layer.op_type == "Gemm" and stated.name == "beta":
            stated.f = 1.0


def _along_outputs(layer: onnx.NodeProto, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The scale of each output channel, in a shape that broadcasts over the weight."""
    if layer.op_type == "Conv":  # O, I / groups, ...
        return scale.reshape(-1, *[1] * (weight.ndim - 1))
    if layer.op_type == "Gemm":
        return scale[:, None] if attribute(layer, "transB", 0) else scale[None, :]
    groups = attribute(layer, "group", 1)  # ConvTranspose: I, O / groups, ...
    rows = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (weight.ndim - 2))


def _set_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    nodes = list(nodes)
    if len(nodes) != len(graph.node):
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def drop_unused(graph: onnx.GraphProto) -> None:
    """Take out initializers that nothing reads, no graph inside a node either."""
    uses = uses_of(graph)
    for index in reversed(range(len(graph.initializer))):
        if not uses[graph.initializer[index].name]:
            del graph.initializer[index]
