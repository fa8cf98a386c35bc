"""How many steps a Loop takes, where counters and shapes decide: they are computed for all steps before the loop is.

while i < n: s = f(s); i = i + 1   ->   i = 0, 1, ..., n: n steps, whatever f is
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ..checks.graph_order import reads_of
from ..checks.refusal import Refusal
from ..reading.walk import attribute, opset_imports
from .subgraph import Graph

#: Steps that are counted one by one.
_MOST = 20_000


def steps_of(node: onnx.NodeProto, graph: Graph) -> int | None:
    """How many steps a Loop takes; None where that is known at run time only.

    Raises:
        Refusal: it never ends.
    """
    body = attribute(node, "body")
    head = [graph.known(name) if name else None for name in [*node.input[:2], ""][:2]]
    if any(name and value is None for name, value in zip(node.input, head, strict=False)):
        return None
    limit, going = head
    most = None if limit is None else max(int(limit.reshape(-1)[0]), 0)
    if most == 0 or (going is not None and not going.all()):
        return 0
    if not passes_on(body):
        return _counted(node, graph, body, most)
    if most is None:
        raise Refusal("it never ends: it has no trip count, and a condition that stays true")
    return most


def passes_on(body: onnx.GraphProto) -> bool:
    """Whether the body of a Loop passes its condition on, or says that it always goes on."""
    name = behind_identities(body, body.output[0].name)
    maker = next((node for node in body.node if name in node.output), None)
    held = [numpy_helper.to_array(tensor) for tensor in body.initializer if tensor.name == name]
    if maker is not None and maker.op_type == "Constant" and maker.attribute[0].HasField("t"):
        held.append(numpy_helper.to_array(maker.attribute[0].t))
    return name == body.input[1].name or (bool(held) and bool(held[0].all()))


def behind_identities(body: onnx.GraphProto, name: str) -> str:
    """The value of a body that a name stands for: what its Identity nodes pass on is the same."""
    passed = {output: node.input[0] for node in body.node if node.op_type == "Identity" for output in node.output}
    while name in passed:
        name = passed[name]
    return name


def _counted(node: onnx.NodeProto, graph: Graph, body: onnx.GraphProto, most: int | None) -> int | None:
    """The steps of a body whose condition is computed: None if it looks at what is not known, or they are too many."""
    nodes, outputs, reads = _behind_condition(body)
    states = {value.name: name for value, name in zip(body.input[2:], node.input[2:], strict=True)}
    heads = [value.name for value in body.input[:2]]
    values = {name: graph.known(states.get(name, name)) for name in reads if name not in heads}
    if any(value is None for value in values.values()):
        return None
    evaluator = ReferenceEvaluator(_model(graph, body, nodes, [*heads, *values], outputs))
    for step in range(1, min(_MOST, most or _MOST) + 1):
        results = evaluator.run(None, {heads[0]: np.array(step - 1), heads[1]: np.array(True), **values})
        if not np.all(results[0]) or step == most:
            return step
        computed = dict(zip(outputs, results, strict=True))
        for inside, out in zip(body.input[2:], body.output[1:], strict=False):
            if inside.name in values:
                values[inside.name] = np.asarray(computed[out.name])
    return None


def _behind_condition(body: onnx.GraphProto) -> tuple[list[onnx.NodeProto], list[str], set[str]]:
    """Nodes of a step that decide on the condition of any later step, what they make of it, and what they read."""
    makers = {output: node for node in body.node for output in node.output if output}
    held = {tensor.name for tensor in body.initializer}
    next_of = {i.name: o.name for i, o in zip(body.input[2:], body.output[1:], strict=False)}
    outputs, reads, seen = [body.output[0].name], set[str](), set[str]()
    left = list(outputs)
    while left:
        if (name := left.pop()) in seen or name in held:
            continue
        seen.add(name)
        if name in makers:
            left += reads_of(makers[name])
            continue
        reads.add(name)
        if (out := next_of.get(name, "")) and out not in outputs:
            outputs.append(out)
            left.append(out)
    return [node for node in body.node if seen.intersection(node.output)], outputs, reads


def _model(
    graph: Graph, body: onnx.GraphProto, nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]
) -> onnx.ModelProto:
    """A model for the reference evaluator, which asks for no types."""
    ends = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names] for names in (inputs, outputs))
    inside = helper.make_graph(nodes, "condition", *ends, body.initializer)
    return helper.make_model(inside, opset_imports=opset_imports(graph.opsets), ir_version=8)
