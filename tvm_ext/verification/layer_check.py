"""Comparing a compiled model with onnxruntime layer by layer, on the very program that runs.

The program runs twice. In a plain run each kernel reads what the ones before it made, so differences add up. In the
second run every result is replaced, once it has been looked at, by the reference's: so each kernel is judged by what it
makes of right operands, and the first one that is wrong is the culprit, whatever the ones behind it do.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.errors import InputError, OptionError, ToolError, UnsupportedError
from ..core.graph.call_site import Written
from ..core.sample_inputs import seeded_inputs
from ..frontend.reading.reader import read_model
from ..runtime.memory.arrays import Arrays, NamedArrays
from ..runtime.model import CompiledModel
from ..runtime.values import as_array, named, spread
from .counterparts import Counterpart, counterparts, wanted_values
from .kernel_calls import Graph, KernelCalls
from .layers import BAD, SKIPPED, LayerReport, LayerRow
from .magnitude import largest
from .metrics import Difference, OutputMetrics, difference
from .reference import run_intermediates
from .tolerance import Tolerance
from .verify import model_inputs, report_of, tolerance_of

#: Share of elements that a jump may have tipped; more of them are no roundings.
_TIPPED = 0.01


@dataclass(frozen=True)
class _Target:
    """What one ONNX value says of a tensor."""

    value: str
    expected: np.ndarray
    tolerance: Tolerance


def check_layers(
    compiled: CompiledModel, model: Any, inputs: NamedArrays | None = None, *, seed: int = 0,
    reference: NamedArrays | None = None, tolerance: float | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
) -> LayerReport:  # fmt: skip
    """Compare every kernel's value with onnxruntime's; see :func:`tvm_ext.verify`.

    Raises:
        OptionError: no model was given, or a reference or sizes, or the artifact says nothing of its kernels.
        InputError: the inputs do not fit.
        UnsupportedError: onnxruntime cannot run the model, or it is compiled for any size.
    """
    if model is None:
        raise OptionError("layers=True compares with values of the model", fix="give model=, the ONNX file it was of")
    if reference is not None:
        raise OptionError("layers=True takes values within the model from onnxruntime", fix="leave reference out")
    if sizes is not None:
        raise OptionError(
            "layers=True compares arrays of one size", fix="leave sizes out; inputs may be of another one"
        )
    if compiled.symbols:
        wrong = "layers=True compares arrays of one size, and a program of any size works on those of its bounds"
        raise UnsupportedError(wrong, fix="compile the model with numbers for its dimensions: shapes=")
    tensors = None if inputs is None else _arrays(compiled.tensors_of(named(inputs, "inputs")))
    batch = _batch_of(compiled, tensors)
    feeds = seeded_inputs(compiled.inputs, seed, batch or 1) if tensors is None else tensors
    program, graph = KernelCalls(compiled, batch), Graph(read_model(model).proto.graph)
    judged = counterparts(program, graph)
    names = [*wanted_values(judged, graph), *(value.name for value in compiled.results if value.name in graph.written)]
    fed, names = model_inputs(compiled, feeds), list(dict.fromkeys(names))
    values, label = run_intermediates(model, fed, names, compiled.threads)
    values = {**spread(fed), **values}
    known = {**graph.constants, **values}
    targets = {_key(counterpart): _targets(counterpart, values, known) for counterpart in judged}
    totals, alone = _Differences(), _Differences()
    plain = spread(_run(compiled, program, feeds, _noting(targets, totals)))
    _run(compiled, program, feeds, _noting(targets, alone, right=True))
    keyed = [(tensor, _key(tensor)) for tensor in judged]
    rows = tuple(_row(tensor, targets[key], alone.get(key), totals.get(key, ())) for tensor, key in keyed)
    expected = {spec.name: known[spec.name] for spec in compiled.outputs if spec.name in known}
    drawn = None if inputs is not None else seed
    compared = report_of({n: plain[n] for n in expected}, expected, label, drawn, tolerance_of(compiled, tolerance))
    if tolerance is None:
        compared = replace(compared, outputs=tuple(_within_rows(output, rows) for output in compared.outputs))
    return LayerReport(str(compiled.metadata.model["name"]), rows, compared, label, drawn, batch)


def _arrays(inputs: NamedArrays) -> dict[str, np.ndarray]:
    """Inputs by name, as arrays."""
    return {name: as_array(value, name) for name, value in inputs.items()}


def _within_rows(output: OutputMetrics, rows: Sequence[LayerRow]) -> OutputMetrics:
    """An output beyond the usual part of its range agrees if its kernel's own tolerance allows that: what cancels."""
    mine = [row for row in rows if row.value == output.name and row.total is not None]
    finite = not (output.nan_mismatch or output.inf_mismatch)
    allowed = mine and all(row.total is not None and row.total <= row.tolerance for row in mine)
    return replace(output, reason="") if allowed and finite and output.reason else output


def _batch_of(compiled: CompiledModel, inputs: Mapping[str, Any] | None) -> int:
    """The size of the batch whose program is looked at; 0 if it is not symbolic.

    Raises:
        InputError: the inputs have a size that is composed of several programs.
    """
    if not compiled.batches or inputs is None:
        return min(compiled.batches, default=0)
    spec = next(spec for spec in compiled.inputs if spec.batch_axis is not None)
    shape = np.shape(inputs.get(spec.name, ()))
    rows = shape[spec.batch_axis] if len(shape) == len(spec.shape) and spec.batch_axis is not None else 0
    if rows not in compiled.batches:
        fix = f"give one of {', '.join(map(str, compiled.batches))} rows, which have programs of their own"
        raise InputError(f"layers=True looks at one program, and input {spec.name!r} has {rows} rows", fix=fix)
    return int(rows)


def _key(counterpart: Counterpart) -> tuple[int, str]:
    return counterpart.call.site.order, counterpart.written.variable


_Targets = Mapping[tuple[int, str], "tuple[_Target, ...] | str"]
_Differences = dict[tuple[int, str], list[Difference]]
"""Of each result, one for each of its targets."""


def _targets(counterpart: Counterpart, values: NamedArrays, known: NamedArrays) -> tuple[_Target, ...] | str:
    expected = counterpart.expected(values)
    if isinstance(expected, str):
        return expected
    return tuple(_Target(value, array, counterpart.tolerance(value, known)) for value, array in expected.items())


# ------------------------------------------------------------ runs
_Look = Callable[["tuple[int, str]", np.ndarray, np.ndarray, Written], None]
"""Called with the key of a result, its logical array, its memory, and what is known of it."""


def _run(compiled: CompiledModel, program: KernelCalls, feeds: Mapping[str, Any], look: _Look) -> dict[str, Any]:
    """Run once, with a look at every result.

    Raises:
        ToolError: what runs is not what the report says.
    """
    done: Counter[str] = Counter()
    wrong: list[str] = []

    def inspect(name: str, before: bool, arrays: Arrays) -> None:
        if before or wrong:
            return
        calls, at = program.by_kernel.get(name, []), done[name]
        done[name] += 1
        if at >= len(calls):
            wrong.append(f"{name} is called more often than the {len(calls)} times that its report says")
            return
        writes = calls[at].site.writes
        for written, memory in zip(writes, arrays[len(arrays) - len(writes) :], strict=True):
            if memory.shape != written.memory_shape:
                wrong.append(f"{name} writes {memory.shape}; its report says {written.memory_shape}")
                return
            logical = written.layout.unpack(memory, written.shape) if written.layout else memory.copy()
            look((calls[at].site.order, written.variable), logical, memory, written)

    outputs = compiled.run_inspected(feeds, inspect)
    if wrong:
        raise ToolError(f"{compiled.metadata.model['name']}: {wrong[0]}", fix="compile the model again")
    return outputs


def _noting(targets: _Targets, into: _Differences, right: bool = False) -> _Look:
    """A look that notes how far each result is from each value that it must equal.

    Args:
        targets: what each result must equal, or why nobody knows.
        into: gets the differences.
        right: whether a result becomes what it must equal, for the kernels behind it.
    """

    def look(key: tuple[int, str], logical: np.ndarray, memory: np.ndarray, written: Written) -> None:
        wanted = targets[key]
        if isinstance(wanted, str):
            return
        into[key] = [difference(logical, target.expected, target.tolerance.absolute) for target in wanted]
        if right:
            expected = wanted[0].expected
            np.copyto(memory, written.layout.pack(expected) if written.layout else expected)

    return look


# ------------------------------------------------------------ rows
def _row(
    tensor: Counterpart, targets: tuple[_Target, ...] | str, alone: list[Difference] | None,
    totals: Sequence[Difference],
) -> LayerRow:  # fmt: skip
    kernel, site = tensor.call.kernel, tensor.call.site
    row = LayerRow(
        site.order, kernel["name"], kernel["recipe"], kernel["config"], site.nodes, behind=tensor.behind,
        layout=str(tensor.written.layout or ""), record=kernel.get("record", ""),
    )  # fmt: skip
    if isinstance(targets, str) or alone is None:
        return replace(row, status=SKIPPED, reason=targets if isinstance(targets, str) else "it did not run")
    target, apart = max(zip(targets, alone, strict=True), key=lambda pair: pair[1].ratio)
    row = replace(
        row, value=target.value, alone=apart, total=max(d.largest for d in totals), tolerance=target.tolerance.absolute,
        tolerance_text=str(target.tolerance), scale=largest(target.expected),
    )  # fmt: skip
    if apart.ok:
        return row
    if tensor.jump and apart.mismatched <= max(1, _TIPPED * target.expected.size):
        tipped = f"{apart.mismatched} elements differ: a rounding before {tensor.jump} can tip its result"
        return replace(row, status=SKIPPED, reason=tipped)
    return replace(row, status=BAD)
