"""What a compiled program says of itself: its calls of kernels in order, and the ONNX nodes behind them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import numpy_helper

from ..core.errors import OptionError
from ..core.graph.call_site import CallSite
from ..core.numbers.precision import STORED_IN
from ..frontend.naming import node_labels
from ..runtime.model import CompiledModel
from ..runtime.plain import read, reading


@dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Attributes:
        site: what it reads and writes.
        kernel: the row of the kernel in the report.
    """

    site: CallSite
    kernel: Mapping[str, Any]


class KernelCalls:
    """The calls of a program, of one size of the batch if that is symbolic.

    Args:
        compiled: whose program it is.
        batch: size of the batch; 0 if it is not symbolic.

    Attributes:
        calls: in the order they run; by_kernel: by the kernel's name.
        lowered_layers: ONNX nodes of each product that is rounded; None of a program in float32.
        narrow: dtype that their operands are rounded to; "" of a program in float32.

    Raises:
        OptionError: the model was compiled by a release that did not keep what is needed.
        ArtifactError: its report is damaged.
    """

    def __init__(self, compiled: CompiledModel, batch: int = 0) -> None:
        with reading("kernels"):
            rows = [k for k in compiled.report.get("kernels", ()) if k.get("batch", 0) == batch]
            whole = all("sites" in row for row in rows)
        if not whole:
            wrong = f"{compiled.metadata.model['name']}: this artifact does not say which ONNX value each kernel writes"
            raise OptionError(wrong, fix="compile the model again with this release")
        with reading("kernels"):
            self.by_kernel = {read(str, row["name"]): _calls(row) for row in rows}
        every = [call for calls in self.by_kernel.values() for call in calls]
        self.calls: tuple[Call, ...] = tuple(sorted(every, key=lambda call: call.site.order))
        plan = compiled.report.get("precision")
        with reading("precision"):
            self.lowered_layers = None if plan is None else lowered_layers(plan)
            self.narrow = "" if plan is None else STORED_IN[plan["precision"]]


def _calls(row: Mapping[str, Any]) -> list[Call]:
    """The calls of a kernel, from its row in the report."""
    sites = zip(row["sites"], row["call_sites"], strict=True)
    return [Call(read(CallSite, {**site, "nodes": nodes}), row) for site, nodes in sites]


def lowered_layers(plan: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
    """The ONNX nodes of each product that is rounded, from what a report says of precision."""
    return tuple(frozenset(row["nodes"]) for row in plan["layers"] if row["precision"] != "float32")


class Graph:
    """Nodes of an ONNX graph by the labels that reports have.

    Args:
        graph: of the model.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        labels = node_labels(graph.node)
        self.nodes = dict(zip(labels, graph.node, strict=True))
        self._position = {label: at for at, label in enumerate(labels)}
        self.written = {name for node in graph.node for name in node.output if name}
        self.inputs = {value.name for value in graph.input}
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def ordered(self, labels: set[str]) -> list[onnx.NodeProto]:
        """The nodes of some labels in the order of the graph; labels that it does not have are left out."""
        return [self.nodes[label] for label in sorted(labels & self.nodes.keys(), key=self._position.__getitem__)]
