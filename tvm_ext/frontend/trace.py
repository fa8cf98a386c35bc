"""What the import of a graph leaves behind.

And nodes of which it leaves no work, and why: their values are known, or they hand on what they get.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx
from tvm import relax
from tvm.ir import IRModule

from ..core.graph.offload_plan import OffloadedRegion
from ..core.graph.provenance import Provenance
from ..runtime.interface import Count
from ..runtime.values import Value

if TYPE_CHECKING:
    from .importer import Imported


@dataclass
class Trace:
    """What an import left behind.

    Attributes:
        mod: the module, markers still inside.
        segments: marker variable -> labels of the nodes whose bindings it closes.
        inputs: the variables of the graph's inputs.
        results: bound variable that is a node's output -> ONNX name to call it by, and labels of the nodes behind it.
        returned: outputs of the graph that are tensors, and elements of those that are sequences.
        signature: its outputs as callers have them, where some are sequences or optionals.
        outputs: the variables of `returned`, in order, and behind them those of counts.
        counts: output -> what says how much of it there is, where values decide that; sizes: names of the counts.
        makers: ONNX value -> label of the node that makes it.
        values: ONNX value -> what stands for it.
        wide: variable of a narrow float -> the float32 one that it was rounded from.
        regions: of nodes that no converter takes, and of control flow.
        bodies: of loops, by name.
    """

    mod: IRModule | None = None
    segments: dict[relax.Var, list[str]] = field(default_factory=dict)
    results: dict[relax.Var, tuple[str, list[str]]] = field(default_factory=dict)
    inputs: set[relax.Var] = field(default_factory=set)
    returned: list[onnx.ValueInfoProto] = field(default_factory=list)
    signature: tuple[Value, ...] = ()
    outputs: list[relax.Var] = field(default_factory=list)
    counts: dict[str, Count] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    makers: dict[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    wide: Mapping[relax.Var, relax.Var] = field(default_factory=dict)
    regions: list[OffloadedRegion] = field(default_factory=list)
    bodies: dict[str, Imported] = field(default_factory=dict)


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
