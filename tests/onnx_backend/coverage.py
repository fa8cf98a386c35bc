"""docs/onnx_coverage.md: operator by operator, what stock TVM's importer does, what this library does, what is refused.

Written from the table of outcomes, the registry of converters and ONNX's schemas, so that it cannot say anything else;
`python -m tests.onnx_backend.refresh` writes it, and a test compares it with what is committed.
"""

import importlib
import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.oracles.outcome import KINDS, kind_of

from .cases import Case
from .table import Row

PATH = pathlib.Path(__file__).resolve().parents[2] / "docs" / "onnx_coverage.md"
_HEAD = """# ONNX coverage, operator by operator

Written by `python -m tests.onnx_backend.refresh`; do not edit. Counts are of ONNX's own node cases
(`onnx.backend.test`). {summary}

**Stock** is `tvm.relax.frontend.onnx.from_onnx` and `tvm.compile` of the pinned wheel; **frozen** is the same with the
inputs that decide a shape given as initializers, as `compile(freeze=...)` does here. *refused* says beforehand that a
case cannot be compiled, *failed* ends in an accident, *wrong* gives another answer.

Versions: a converter of stock TVM has an oldest version that it reads; for an older opset it silently takes that one.
This library compares both versions' schemas and refuses a node that means something else there
(`tvm_ext/frontend/checks/operators.py`).

float16 and bfloat16 are computed in float32 and rounded once an operator, or once a kernel, as onnxruntime does.
"""
_FOREIGN = """## Of the domain {domain}

| operator | how |
|---|---|"""
_REFUSED = """
## What is refused

Every refusal is an `UnsupportedError` that names the node, the reason and what to do. Where a value that is not known
decides a shape, it names the inputs to give to `compile(freeze=...)`. *onnxruntime* counts the cases that it passes.

| operator | cases | onnxruntime | reason |
|---|---|---|---|
"""


def coverage(rows: Mapping[str, Row], cases: Mapping[str, Case]) -> str:
    """The document.

    Args:
        rows: case -> contender -> outcome.
        cases: all cases, by name.
    """
    by_operator: dict[str, list[Row]] = {}
    for name, row in rows.items():
        if cases[name].plain:
            by_operator.setdefault(cases[name].operator, []).append(row)
    lines = [
        "| operator | opsets | stock | stock, frozen | here | how |",
        "|---|---|---|---|---|---|",
        *(_line(operator, by_operator.get(operator, [])) for operator in _operators(by_operator)),
    ]
    lines += _foreign()
    refused = _refusals({name: row for name, row in rows.items() if cases[name].plain}, cases)
    return _HEAD.format(summary=_summary(rows.values())) + "\n" + "\n".join(lines) + "\n" + _REFUSED + refused


def _operators(tested: Iterable[str]) -> list[str]:
    """Of the standard domain, and what else has cases."""
    from onnx import defs

    from tvm_ext.frontend.checks.operators import INTERNAL

    newest = {s.name for s in defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    return sorted(newest | set(tested) | set(INTERNAL))


def _line(operator: str, rows: list[Row]) -> str:
    from tvm_ext.frontend.converters.selection.bounds import INDICES

    cells = [_counts(rows, contender) for contender in ("stock", "stock frozen", "ours")]
    notes = [_how(operator)]
    notes += ["indices stay inside"] if operator in INDICES else []
    return f"| {operator} | {_versions(operator)} | {' | '.join(cells)} | {'; '.join(notes)} |"


def _foreign() -> list[str]:
    """A table for each domain beside the standard one."""
    from tvm_ext.frontend.converters import FOREIGN

    lines: list[str] = []
    for domain, converters in FOREIGN.items():
        lines += ["", _FOREIGN.format(domain=domain)]
        lines += [f"| {operator} | own: {_document(converter)} |" for operator, converter in sorted(converters.items())]
    return lines


def _counts(rows: Iterable[Row], contender: str) -> str:
    """ "3 pass, 1 wrong"; "" without a case."""
    counts = Counter(kind_of(row[contender]) for row in rows if contender in row)
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])


def _versions(operator: str) -> str:
    """The versions that ONNX has, and the oldest one that stock TVM reads."""
    from onnx import defs
    from tvm.relax.frontend.onnx import onnx_frontend

    versions = sorted({s.since_version for s in defs.get_all_schemas_with_history()
                       if s.name == operator and s.domain == ""})  # fmt: skip
    converter = onnx_frontend._get_convert_map().get(operator)
    known = [int(name[7:]) for name in dir(converter) if name.startswith("_impl_v")]
    listed = ", ".join(map(str, versions))
    return f"{listed}; stock reads {min(known)} and on" if known and len(versions) > 1 else listed


def _how(operator: str) -> str:
    """What this library does with an operator, from where it is done."""
    from onnx import defs

    from tvm_ext.frontend.checks import operators
    from tvm_ext.frontend.control_flow import branches, loops, sequences
    from tvm_ext.frontend.converters import FOREIGN, ML, own_converter

    if operator in operators.CONTROL_FLOW:
        return _first_line((branches if operator == "If" else loops).__doc__)
    if operator in operators.SEQUENCES:
        return _first_line(sequences.__doc__)
    if (own := own_converter(operator)) is not None and operator not in operators.BY_DEFINITION:
        return "own: " + _document(own)
    if operators.is_converted(operator) and operator not in operators.BY_DEFINITION:
        return "stock converter"
    if defs.has(operator):
        schema = defs.get_schema(operator)
        if schema.has_function or schema.has_context_dependent_function:
            return "ONNX's own definition by other operators"
    if operator in FOREIGN[ML]:
        return f"own, of {ML}: see below"
    return "refused" + operators.WHY.get(operator, ": no converter")


def _document(converter: Any) -> str:
    """What a converter says of itself, or its family."""
    return _first_line(converter.__doc__ or importlib.import_module(converter.__module__).__doc__)


def _first_line(text: str | None) -> str:
    """The first sentence of a docstring, as a cell of a table."""
    line = (text or "").strip().split("\n\n")[0].replace("\n", " ")
    return re.sub(r"\s+", " ", line).replace("|", "\\|")


def _summary(rows: Iterable[Row]) -> str:
    able = [row for row in rows if row.get("onnxruntime") == "pass"]
    parts = []
    for contender, words in (("ours", "this library"), ("stock", "stock TVM"), ("stock frozen", "stock TVM, frozen")):
        passed = sum(row.get(contender) == "pass" for row in able)
        parts.append(f"{words} {100 * passed / max(len(able), 1):.1f} %")
    return f"Of the {len(able)} cases that onnxruntime passes: {', '.join(parts)}."


def _refusals(rows: Mapping[str, Row], cases: Mapping[str, Case]) -> str:
    """A line for each operator and reason."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for name, row in rows.items():
        if kind_of(row["ours"]) != "pass":
            groups.setdefault((cases[name].operator, _reason(row["ours"])), []).append(row)
    return "".join(
        f"| {operator} | {len(result)} | {sum(row.get('onnxruntime') == 'pass' for row in result)} | {reason} |\n"
        for (operator, reason), result in sorted(groups.items())
    )


def _reason(outcome: str) -> str:
    """The reason without the names of the case's own values."""
    text = outcome.partition(": ")[2]
    text = re.sub(r"^node '[^']*'( \([^)]*\))?:? (cannot be (compiled|converted): )?", "", text)
    text = re.sub(r"'[^']*'( of node '[^']*')?", "...", text).replace("|", "\\|")
    return text.strip()


def write_coverage(rows: Mapping[str, Row], cases: Mapping[str, Case]) -> None:
    """Write the document."""
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(coverage(rows, cases))
