"""Nodes of which the import leaves no work, and why: their values are known, or they hand on what they get."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from tvm import relax

from ..core.graph.provenance import Provenance
from .trace import Trace


def folded_nodes(nodes: Iterable[onnx.NodeProto], trace: Trace, provenance: Provenance) -> dict[str, str]:
    """Label of each node that no variable computes -> the reason.

    Args:
        nodes: of the graph.
        trace: of their import.
        provenance: of the imported module's variables.
    """
    computed = {label for labels in provenance.as_dict().values() for label in labels}
    folded = {}
    for node in nodes:
        outputs = [name for name in node.output if name]
        label = trace.makers.get(outputs[0], "") if outputs else ""
        if label and label not in computed:
            folded[label] = _reason(node, outputs, trace)
    return folded


def _reason(node: onnx.NodeProto, outputs: Iterable[str], trace: Trace) -> str:
    if node.op_type == "Constant":
        return "a constant of the model"
    for name in outputs:
        value = trace.values.get(name)
        if isinstance(value, relax.Var):
            return f"hands on {value.name} as it is"
        if isinstance(value, relax.expr.ShapeExpr):
            return "a shape, which is known"
    return "its value is known"
