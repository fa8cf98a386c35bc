"""What the import of a graph leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm import relax
from tvm.ir import IRModule

if TYPE_CHECKING:
    from ..core.graph.offload_plan import OffloadedRegion
    from .importer import Imported


@dataclass
class Trace:
    """What an import left behind.

    Attributes:
        mod: the module, markers still inside.
        segments: marker variable -> labels of the nodes whose bindings it closes.
        inputs: the variables of the graph's inputs.
        results: bound variable that is a node's output -> ONNX name to call it by, and labels of the nodes behind it.
        outputs: the variables of the graph's outputs, in order.
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
    outputs: list[relax.Var] = field(default_factory=list)
    makers: dict[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    wide: Mapping[relax.Var, relax.Var] = field(default_factory=dict)
    regions: list[OffloadedRegion] = field(default_factory=list)
    bodies: dict[str, Imported] = field(default_factory=dict)
