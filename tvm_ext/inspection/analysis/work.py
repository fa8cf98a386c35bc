"""Shapes, parameters, operations and bytes of every node of a survey."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...core.cost.size import bytes_of
from ...core.graph.relax_graph import bindings_of, dtype_of, op_name, shape_of
from ...ops import Kind, of
from ..work import work_of_call
from .result import NodeRow, Shape
from .survey import Survey

if TYPE_CHECKING:
    import onnx


def node_rows(survey: Survey) -> tuple[NodeRow, ...]:
    """A row a node, in order."""
    calls, seen = _calls(survey), set[str]()
    rows = []
    for node, label in zip(survey.checked.nodes, survey.labels, strict=True):
        weights = [name for name in node.input if name in survey.checked.weights and name not in seen]
        seen.update(weights)
        rows.append(_row(node, label, calls.get(label, []), weights, survey))
    return tuple(rows)


def _calls(survey: Survey) -> dict[str, list[Any]]:
    """Label -> the calls the import made of the node."""
    found: dict[str, list[Any]] = {}
    assert survey.trace.mod is not None
    segment: list[Any] = []
    for binding in bindings_of(survey.trace.mod["main"]):
        labels = survey.trace.segments.get(binding.var)
        if labels is None:
            segment.append(binding.value)
            continue
        for label in labels[:1]:
            found.setdefault(label, []).extend(segment)
        segment = []
    return found


def _row(node: onnx.NodeProto, label: str, calls: list[Any], weights: Iterable[str], survey: Survey) -> NodeRow:
    values = survey.trace.values
    inputs = [values.get(name) for name in node.input if name]
    outputs = [values.get(name) for name in node.output if name]
    sizes = [(survey.checked.weights[name].size, survey.checked.weights[name].nbytes) for name in weights]
    if node.op_type == "Constant":
        sizes = [(math.prod(shape_of(value) or ()), bytes_of(value)) for value in outputs if _tensor(value)]
    operations = [call for call in calls if op_name(call) and op_name(call) != "relax.call_tir"]
    unknown = label in survey.unseen or any(label == one.node for one in survey.refused)
    flops = None if unknown else float(sum(work_of_call(call).flops or 0.0 for call in operations))
    return NodeRow(
        label, node.op_type, tuple(map(_shape, inputs)), tuple(map(_shape, outputs)),
        next((dtype_of(value) for value in outputs if _tensor(value)), ""),
        sum(size for size, _ in sizes), sum(size for _, size in sizes), flops,
        None if unknown else _bytes(operations, inputs, outputs),
    )  # fmt: skip


def _bytes(operations: list[Any], inputs: list[Any], outputs: list[Any]) -> int:
    """What a node reads and writes; nothing where no operation is left, or only other readings of the same memory."""
    rows = [of(op_name(call)) for call in operations]
    if all(row.kind is Kind.VIEW for row in rows):
        return 0
    made = sum(bytes_of(value) for value in outputs if _tensor(value))
    read = [bytes_of(value) for value in inputs if _tensor(value)]
    if read and any(row.part_read for row in rows):
        read[0] = min(read[0], made)
    return sum(read) + made


def _tensor(value: Any) -> bool:
    return getattr(value, "ty", None) is not None and shape_of(value) is not None


def _shape(value: Any) -> Shape:
    return shape_of(value) if _tensor(value) else None
