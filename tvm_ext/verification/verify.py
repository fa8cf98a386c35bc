"""verify: a compiled model against onnxruntime on the same inputs, output by output."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.errors import OptionError, check_whole, is_number
from ..core.pages.page import Note, Part, Shown
from ..core.sample_inputs import seeded_inputs
from ..core.settings.frozen import FrozenInput
from ..driver.compile import compile_model
from ..ops.table import of
from ..runtime.memory.arrays import NamedArrays
from ..runtime.model import CompiledModel
from ..runtime.plain import read, reading
from ..runtime.table import Cell, Column, Table, Value, plain_fields
from ..runtime.values import named, spread
from .metrics import OutputMetrics, compare
from .reference import run_reference
from .sizes import sizes_to_check

#: Steps of 8 bits that outputs of quantized models may be apart. Of ResNet-18, onnxruntime with and without its own
#: optimizations differs by one; more layers inherit more.
_QUANTIZED_STEPS = 4


@dataclass(frozen=True)
class VerifyReport(Shown):
    """One comparison: a row an output, and what it was compared with.

    Attributes:
        outputs: metrics of each output, in the model's order.
        reference: name and version of the reference.
        seed: seed of the inputs; None if they were given.
        problems: what no row can say: outputs that are missing or that the reference does not have.
    """

    outputs: tuple[OutputMetrics, ...]
    reference: str
    seed: int | None
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every output agrees; a report without outputs proves nothing and is not ok."""
        return bool(self.outputs) and not self.problems and all(o.ok for o in self.outputs)

    @property
    def wrong(self) -> tuple[str, ...]:
        """What disagrees, a text each; none if it is ok."""
        rows = (f"{o.name}: {o.reason}" for o in self.outputs if not o.ok)
        return (*self.problems, *rows, *(() if self.outputs else ("there are no outputs",)))

    @property
    def of_range(self) -> float:
        """The largest error, as a part of its output's range."""
        return max((o.of_range for o in self.outputs), default=0.0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Outputs whose agreement proves little: both sides have no finite value there."""
        return tuple(
            f"{o.name}: no element is finite, here and in the reference, so the numbers of the model are not compared; "
            "give inputs that make sense to it"
            for o in self.outputs
            if o.ok and not o.finite and 0 not in o.shape
        )

    @property
    def worst(self) -> OutputMetrics | None:
        """The output farthest from its reference, measured in its own tolerance."""
        return max(self.outputs, key=lambda o: o.severity, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        worst = self.worst
        return {**plain_fields(self, "ok", "warnings"), "worst": worst.name if worst else None}

    def parts(self) -> list[Part]:
        """What it was compared with, a row an output, and what is to be said of them."""
        return [Note(f"against {self.reference}, {self.source}"), self.table(), *map(Note, self._verdict())]

    @property
    def source(self) -> str:
        """What the inputs were."""
        return "given inputs" if self.seed is None else f"inputs of seed {self.seed}"

    def table(self) -> Table:
        """A row an output."""
        columns = (
            "output", "dtype", "shape", Column("max abs", form=".3g"), Column("of range", form=".2e"), Column("ULP"),
            Column("cosine", form=".9f"), Column("NaN", right=True), Column("Inf", right=True), "result",
        )  # fmt: skip
        return Table(columns, map(_row, self.outputs))

    def _verdict(self) -> list[str]:
        worst = self.worst
        lines = [f"problem: {p}" for p in self.problems]
        if worst is not None and worst.worst_index is not None:
            at = ", ".join(map(str, worst.worst_index))
            lines.append(f"worst: {worst.name}[{at}] is {worst.actual}, reference {worst.expected}")
        lines += [f"failed: {o.name}: {o.reason}" for o in self.outputs if not o.ok]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return [*lines, "ok: every output agrees" if self.ok else "NOT OK"]


def compiled_of(compiled: Any, model: Any, *, needs_model: bool = True) -> tuple[CompiledModel, Any]:
    """A compiled model and the ONNX model it is of: a model that is given alone is compiled."""
    onnx = sys.modules.get("onnx")  # a ModelProto cannot exist without it
    is_proto = onnx is not None and isinstance(compiled, onnx.ModelProto)
    if not (is_proto or isinstance(compiled, str | bytes | bytearray | os.PathLike)):
        if not hasattr(compiled, "run"):
            fix = "give what compile or load returned, or an ONNX model"
            raise OptionError(f"compiled={compiled!r:.100}: no compiled model", fix=fix)
        return compiled, model
    return compile_model(compiled), compiled if model is None and needs_model else model


def verify(
    compiled: CompiledModel, model: Any = None, inputs: NamedArrays | None = None, *, seed: int = 0,
    reference: NamedArrays | None = None, tolerance: float | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
) -> VerifyReport:  # fmt: skip
    """Compare a compiled model with onnxruntime; see :func:`tvm_ext.verify`."""
    if model is None and reference is None:
        fix = "give model=, the ONNX file this program was compiled from, or reference=, the expected outputs"
        raise OptionError("verify needs something to compare with", fix=fix)
    seed = check_whole("seed", seed)
    if sizes is not None and (inputs is not None or reference is not None):
        raise OptionError("sizes and given inputs or outputs, which have sizes of their own", fix="give one of both")
    checked = sizes_to_check(compiled, sizes, seed)
    if inputs is None and reference is None and any(spec.batch_axis is not None for spec in compiled.inputs):
        return _verify_sizes(compiled, model, seed, tolerance, checked)
    tolerance = tolerance_of(compiled, tolerance)
    feeds = seeded_inputs(compiled.inputs, seed) if inputs is None else dict(named(inputs, "inputs"))
    outputs = compiled.run(feeds)  # first: it says more clearly than onnxruntime what is wrong with an input
    label = "the given reference"
    if reference is None:
        reference, label = run_reference(model, model_inputs(compiled, feeds), compiled.threads)
    return report_of(outputs, named(reference, "reference"), label, None if inputs is not None else seed, tolerance)


def _verify_sizes(
    compiled: CompiledModel, model: Any, seed: int, tolerance: float | None, sizes: Sequence[Mapping[str, int]]
) -> VerifyReport:
    """Each of the sizes; of a batch of rows, those that have a program, and one that is composed of them.

    A row an output and size.
    """
    batches = [] if sizes else [*compiled.batches, sum(compiled.batches) + 1]
    at = [({"batch": batch}, seeded_inputs(compiled.inputs, seed, batch)) for batch in batches]
    at += [(dict(point), seeded_inputs(compiled.inputs, seed, sizes=point)) for point in sizes]
    reports = []
    for stated, feeds in at:
        outputs = compiled.run(feeds)
        reference, label = run_reference(model, model_inputs(compiled, feeds), compiled.threads)
        report = report_of(outputs, reference, label, seed, tolerance_of(compiled, tolerance))
        where = ", ".join(f"{name} {size}" for name, size in stated.items())
        rows = tuple(replace(row, name=f"{row.name} ({where})") for row in report.outputs)
        reports.append(replace(report, outputs=rows))
    rows = tuple(row for report in reports for row in report.outputs)
    problems = tuple(dict.fromkeys(p for report in reports for p in report.problems))
    return replace(reports[0], outputs=rows, problems=problems)


def check_tolerance(stated: Any) -> float:
    """The value of an option `tolerance`.

    Raises:
        OptionError: it is no number of 0 or more.
    """
    if not is_number(stated) or stated < 0:
        raise OptionError(f"tolerance={stated!r:.200}: a part of the output's range, 0 or more, is needed")
    return float(stated)


def tolerance_of(compiled: CompiledModel, stated: float | None = None) -> float | None:
    """The part of an output's range that is allowed: what is given, else what reduced precision explains, else None.

    Where a model rounds to 8 bits as it goes, two right computations come to different steps when a number lies at a
    tie within their error, and steps behind inherit that: a few steps of 1/255 of the range, as onnxruntime's own
    optimization levels differ too.

    Raises:
        OptionError: what is stated is no number of 0 or more.
    """
    plan = compiled.report.get("precision")
    if stated is not None:
        return check_tolerance(stated)
    if plan is not None:
        with reading("precision"):
            return None if plan["tolerance"] is None else read(float, plan["tolerance"])
    with reading("nodes"):
        operators = [str(node.get("op", "")) for node in compiled.report.get("nodes", {}).values()]
    return _QUANTIZED_STEPS / 255 if any(of(operator).jump == "quantized" for operator in operators) else None


def frozen_inputs(compiled: CompiledModel) -> dict[str, np.ndarray]:
    """Inputs of the ONNX model that were frozen when it was compiled.

    Raises:
        ArtifactError: its report is damaged.
    """
    with reading("frozen"):
        frozen = read(tuple[FrozenInput, ...], compiled.report.get("frozen", ()))
        return {frozen_input.name: frozen_input.array() for frozen_input in frozen}


def model_inputs(compiled: CompiledModel, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of the ONNX model in a run: those that were frozen when it was compiled too, and sequences whole."""
    return {**frozen_inputs(compiled), **compiled.nested(feeds)}


def report_of(
    actual: Mapping[str, Any], expected: Mapping[str, Any], reference: str, seed: int | None = None,
    tolerance: float | None = None,
) -> VerifyReport:  # fmt: skip
    """Compare two sets of outputs by name.

    Args:
        actual: outputs to judge, by name: arrays, or lists of them.
        expected: those of the reference.
        reference: what made `expected`, for the report.
        seed: seed of the inputs, for the report.
        tolerance: see :func:`tvm_ext.verification.metrics.compare`.
    """
    kinds = {n: (_kind(actual[n]), _kind(expected[n])) for n in expected if n in actual}
    unlike = [f"output {n!r} is {a}, in the reference {b}" for n, (a, b) in kinds.items() if a != b]
    actual, expected = spread(actual), spread(expected)
    problems = [*unlike, *_missing(actual, expected)]
    rows = tuple(compare(n, np.asarray(actual[n]), expected[n], tolerance) for n in expected if n in actual)
    return VerifyReport(rows, reference, seed, tuple(problems))


def _kind(value: Any) -> str:
    return "a sequence" if isinstance(value, list) else "None" if value is None else "a tensor"


def _missing(actual: NamedArrays, expected: NamedArrays) -> list[str]:
    missing = [f"output {n!r} of the reference is missing" for n in expected if n not in actual]
    return [*missing, *(f"output {n!r} is not one of the reference" for n in actual if n not in expected)]


def _row(o: OutputMetrics) -> tuple[Value, ...]:
    shape = "x".join(map(str, o.shape)) or "scalar"
    result = Cell("ok" if o.ok else "FAIL", tone="good" if o.ok else "bad", title=o.reason)
    return (
        o.name, o.dtype, shape, o.max_abs, o.of_range, o.max_ulp, o.cosine, _count(o.nan, o.nan_mismatch),
        _count(o.inf, o.inf_mismatch), result,
    )  # fmt: skip


def _count(total: int, mismatched: int) -> str:
    return f"{total} ({mismatched} differ)" if mismatched else str(total)
