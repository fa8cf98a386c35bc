"""Analyzes a model: reads it, surveys every node, and lets the passes say what they would do. No kernel is compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...core.errors import TvmExtError
from ...core.graph.relax_graph import dtype_of, shape_of
from ...core.options import CompileOptions
from ...frontend.reading.reader import Source, read_model
from .outcome import NOTHING, Outcome, outcome
from .redundancy import redundancies
from .result import Analysis
from .survey import Refused, Survey, survey
from .work import node_rows


def analyze(model: Any, **options: Any) -> Analysis:
    """What a model holds, and what would become of it; no kernel is compiled, and no inputs are needed.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        **options: compile options, as for `tvm_ext.compile`. A dimension that `shapes` leaves free is taken for 1 if it
            is the first of an input, else for 64.

    Returns:
        An analysis: a row a node (shapes, parameters, floating-point operations with two a multiply-add, bytes), totals
        by operator, what is redundant and what the passes do about it, every node that cannot be compiled with the
        reason, and what no recipe takes; `str()` prints it, `text(by="node")` its nodes.

    Raises:
        ModelError: the model cannot be read, is not valid, or an input does not state how many dimensions it has.
        OptionError: a bad option.
        UnsupportedError: its ONNX version, or the type of an input, is none that can be imported.
    """
    given = CompileOptions.of(**options)
    given = given.bound(given.sizes[0]) if given.symbol else given
    source = read_model(model)
    found = survey(source, given)
    refused, done = _outcome(found, source, given)
    rows = tuple(replace(row, becomes=done.becomes.get(row.node, "")) for row in node_rows(found))
    return Analysis(
        source.name, found.checked.opset, tuple((s.name, s.sizes, s.dtype) for s in found.checked.inputs),
        _outputs(found), found.free, sum(row.parameters for row in rows), sum(row.parameter_bytes for row in rows),
        rows, redundancies(found, done.action), refused, found.unseen if refused else (), done.generic, done.passes,
        found.checked.warnings,
    )  # fmt: skip


def _outcome(found: Survey, source: Source, options: CompileOptions) -> tuple[tuple[Refused, ...], Outcome]:
    """What cannot be compiled, and what the passes make of the rest: nothing, if there is such a node."""
    if found.refused and options.fallback == "error":
        return found.refused, NOTHING
    try:
        return (), outcome(found, source, options)
    except TvmExtError as error:  # of the outputs, or of a pass
        return (Refused("", "", error.message, error.fix),), NOTHING


def _outputs(found: Survey) -> tuple[tuple[str, tuple[int, ...] | None, str], ...]:
    values = found.trace.values
    made = []
    for output in found.checked.graph.output:
        value = values.get(output.name)
        known = getattr(value, "ty", None) is not None
        made.append((output.name, shape_of(value), dtype_of(value)) if known else (output.name, None, ""))
    return tuple(made)
