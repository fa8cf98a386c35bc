"""Analyzes a model: reads it, surveys every node, and lets the passes say what they would do. No kernel is compiled."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import onnx

from ...core.cost.work import bytes_of, flops_of_call
from ...core.errors import TvmExtError
from ...core.graph.relax_graph import bindings_of, dtype_of, op_name, shape_of
from ...core.options import CompileOptions
from ...frontend.reading.reader import Source
from ...frontend.reading.signature import read_with
from ...ops import Kind, of
from .outcome import NOTHING, Outcome, outcome
from .redundancy import redundancies
from .result import Analysis, NodeRow, Shape
from .survey import Refused, Survey, survey


def analyze(model: Any, **options: Any) -> Analysis:
    """What a model holds, and what would become of it; no kernel is compiled, and no inputs are needed.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        **options: compile options, as for `tvm_ext.compile`. A dimension that `shapes` leaves free has the last size
            that `specialize` names, else the largest of `dims`; else it is taken for 1 if it is the first of an input,
            and for 64 elsewhere.

    Returns:
        An analysis: a row a node (shapes, parameters, floating-point operations with two a multiply-add, bytes), totals
        by operator, what is redundant and what the passes do about it, every node that cannot be compiled with the
        reason, and what no recipe takes; `str()` prints it, `text(by="node")` its nodes.

    Raises:
        ModelError: the model cannot be read, is not valid, or an input does not state how many dimensions it has.
        OptionError: a bad option.
        UnsupportedError: its ONNX version, or the type of an input, is none that can be imported.
    """
    compile_options = CompileOptions.of(**options)
    compile_options = compile_options.bound(compile_options.sizes[0]) if compile_options.symbol else compile_options
    source, compile_options = read_with(model, compile_options)
    known = survey(source, compile_options)
    refused, done = _outcome(known, source, compile_options)
    rows = tuple(replace(row, becomes=done.becomes.get(row.node, "")) for row in node_rows(known))
    return Analysis(
        source.name, known.checked.opset, tuple((s.name, s.sizes, s.dtype) for s in known.checked.inputs),
        _outputs(known), known.free, sum(row.parameters for row in rows), sum(row.parameter_bytes for row in rows),
        rows, redundancies(known, done.action), refused, known.unseen if refused else (), done.generic, done.passes,
        known.checked.warnings,
    )  # fmt: skip


def _outcome(known: Survey, source: Source, options: CompileOptions) -> tuple[tuple[Refused, ...], Outcome]:
    """What cannot be compiled, and what the passes make of the rest: nothing, if there is such a node."""
    if known.refused and options.fallback == "error":
        return known.refused, NOTHING
    try:
        return (), outcome(known, source, options)
    except TvmExtError as error:  # of the outputs, or of a pass
        return (Refused("", "", error.message, error.fix),), NOTHING


def _outputs(known: Survey) -> tuple[tuple[str, tuple[int, ...] | None, str], ...]:
    values = known.trace.values
    rows = []
    for output in known.trace.returned:
        value = values.get(output.name)
        typed = getattr(value, "ty", None) is not None
        rows.append((output.name, shape_of(value), dtype_of(value)) if typed else (output.name, None, ""))
    return tuple(rows)


# ------------------------------------------------------------ a row a node
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
    calls: dict[str, list[Any]] = {}
    assert survey.trace.mod is not None
    segment: list[Any] = []
    for binding in bindings_of(survey.trace.mod["main"]):
        labels = survey.trace.segments.get(binding.var)
        if labels is None:
            segment.append(binding.value)
            continue
        for label in labels[:1]:
            calls.setdefault(label, []).extend(segment)
        segment = []
    return calls


def _row(node: onnx.NodeProto, label: str, calls: list[Any], weights: Iterable[str], survey: Survey) -> NodeRow:
    values = survey.trace.values
    inputs = [values.get(name) for name in node.input if name]
    outputs = [values.get(name) for name in node.output if name]
    sizes = [(survey.checked.weights[name].size, survey.checked.weights[name].nbytes) for name in weights]
    if node.op_type == "Constant":
        sizes = [(math.prod(shape_of(value) or ()), bytes_of(value)) for value in outputs if _tensor(value)]
    operations = [call for call in calls if op_name(call) and op_name(call) != "relax.call_tir"]
    unknown = label in survey.unseen or label in {refused.node for refused in survey.refused}
    flops = None if unknown else float(sum(map(flops_of_call, operations)))
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
    written = sum(bytes_of(value) for value in outputs if _tensor(value))
    read = [bytes_of(value) for value in inputs if _tensor(value)]
    if read and any(row.part_read for row in rows):
        read[0] = min(read[0], written)
    return sum(read) + written


def _tensor(value: Any) -> bool:
    return getattr(value, "ty", None) is not None and shape_of(value) is not None


def _shape(value: Any) -> Shape:
    return shape_of(value) if _tensor(value) else None
