"""Sensitivity: what each convolution and matmul costs in accuracy when it alone is computed in bf16 or fp16, measured.

onnxruntime runs the model on the same inputs with the operands of one product after another rounded, then of all, and
of all but the most sensitive, until the error of the outputs is within a bound. :func:`sensitivity` is told the inputs;
:func:`measured` decides which layers of a compile keep float32, once in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..byoc.onnxruntime.driver import session_of
from ..core.errors import ArtifactError, InputError, OptionError, ProgramError, UnsupportedError, listener
from ..core.machine import available_cores
from ..core.numbers.accuracy import largest_error
from ..core.numbers.precision import STORED_IN
from ..core.options import CompileOptions
from ..core.pages.page import Note, Part, Shown
from ..core.sample_inputs import seeded_inputs
from ..frontend.checks.checker import Checked, check_model
from ..frontend.reading.freezing import frozen_source
from ..frontend.reading.reader import LIMIT, Source
from ..frontend.reading.signature import read_with
from ..runtime.table import Column, Table, plain_fields
from ..runtime.values import named, spread, tensors_of
from .switched import SWITCHES, Switched, switched_model

#: Random inputs that a compile measures on.
SEEDS = (0, 1)

Inputs = Mapping[str, np.ndarray]
Tell = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Sensitivity(Shown):
    """What a sensitivity run found. Errors are the largest of any output and input, of the output's range.

    Attributes:
        model: its name.
        precision: "bf16" or "fp16".
        alone: product -> error when it alone is rounded, the largest first.
        kept: products that must keep float32 for the bound, the most sensitive first.
        together: error when all others are rounded.
        all_lowered: error when all are.
        max_error: the bound; None if there was none.
        seeds: of the inputs; none if they were given.
    """

    model: str
    precision: str
    alone: Mapping[str, float]
    kept: tuple[str, ...]
    together: float
    all_lowered: float
    max_error: float | None = None
    seeds: tuple[int, ...] = ()

    @property
    def reasons(self) -> dict[str, str]:
        """The products to keep, and why: as `compile(keep_float32=...)` takes them."""
        return {
            name: f"named by the sensitivity run: alone it costs {percent(self.alone[name])} of the range"
            for name in self.kept
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**plain_fields(self), "kept": self.reasons}

    def parts(self) -> list[Part]:
        """A row a product, the error of all of them, and of those that are lowered."""
        rows = [(name, percent(error), "float32" if name in self.kept else self.precision)
                for name, error in self.alone.items()]  # fmt: skip
        source = f"random inputs of seeds {', '.join(map(str, self.seeds))}" if self.seeds else "given inputs"
        bound = "" if self.max_error is None else f", at most {percent(self.max_error)} wanted"
        last = (
            f"all in {self.precision}: {percent(self.all_lowered)}; "
            f"{len(self.kept)} of {len(self.alone)} kept: {percent(self.together)}{bound}"
        )
        head = f"{self.model}: error of the range when one layer is in {self.precision}, {source}"
        return [Note(head), Table(("layer", Column("error", right=True), "computed in"), rows), Note(last)]


def percent(share: float) -> str:
    """A share in per cent, of two digits."""
    return f"{100 * share:.2g} %"


def sensitivity(
    model: Any,
    inputs: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]] | None = None,
    *,
    precision: str = "bf16",
    max_error: float | None = None,
    seeds: Sequence[int] = (0, 1),
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
    **options: Any,
) -> Sensitivity:
    """Measure what each convolution and matmul costs in accuracy when it alone is computed in bf16 or fp16.

    onnxruntime runs the model with operands rounded: the same result for the same model and inputs.
    `compile(precision="bf16", max_error=...)` does it by itself, on random inputs; here inputs can be typical ones, and
    `compile(precision="bf16", keep_float32=result.reasons)` uses what was found.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        inputs: arrays by input name, or several sets of them; None draws one for each seed.
        precision: "bf16" or "fp16".
        max_error: largest error of the outputs, of their range: how many layers must keep float32 for it?
        seeds: of the drawn inputs.
        on_event: is told of progress, as plain values: "done" and "of", the most runs there will be.
        **options: `shapes`, `freeze` and `keep_float32`, as for :func:`tvm_ext.compile`.

    Returns:
        A result: `alone` (node -> error), `kept`, `together`, `reasons`; `str()` prints a table.

    Raises:
        OptionError: a bad option, or `max_error` leaves no layer to round: the message has the figures.
        InputError: `inputs` do not fit the model.
        ModelError, UnsupportedError: the model cannot be read, or onnxruntime cannot run it.
    """
    several = isinstance(inputs, Iterable) and not isinstance(inputs, Mapping | str | bytes)
    samples = [] if inputs is None else [named(each, "inputs") for each in (inputs if several else [inputs])]
    chosen = CompileOptions.of(precision=precision, max_error=max_error, **options)
    if chosen.precision == "float32":
        raise OptionError("precision='float32' rounds nothing that could be measured", fix="choose 'bf16' or 'fp16'")
    source, chosen = read_with(model, chosen)
    samples = [tensors_of(sample, source.arguments) for sample in samples] if source.arguments else samples
    return sensitivity_of(source, chosen, samples, seeds=seeds, on_event=on_event)


def sensitivity_of(
    source: Source, options: CompileOptions, samples: Sequence[Inputs] = (), *, seeds: Sequence[int] = SEEDS,
    on_event: Tell | None = None,
) -> Sensitivity:  # fmt: skip
    """Measure a model, and find the fewest products to keep, the most sensitive first.

    Args:
        source: the model.
        options: `shapes`, `freeze`, `precision`, `keep_float32` (kept anyway, and not measured) and `max_error` count.
        samples: inputs to measure on; none for random ones of `seeds`.
        seeds: of the random inputs.
        on_event: is told before each run: "done" and "of", the most there will be.

    Raises:
        OptionError: no product is left to round within `max_error`; the message has the figures.
        InputError: the samples do not fit the model.
        UnsupportedError: onnxruntime cannot run the model.
    """
    checked = _checked(source, options)
    switched = switched_model(checked, source.proto.ir_version, STORED_IN[options.precision])
    if isinstance(seeds, str | bytes) or not (isinstance(seeds, Iterable) and (seeds := tuple(seeds))):
        raise OptionError(f"seeds={seeds!r:.200}: whole numbers are needed", fix=f"for example seeds={SEEDS}")
    inputs = list(samples) or [seeded_inputs(checked.inputs, seed) for seed in seeds]
    by_hand = dict(options.keep_float32)
    candidates = [label for label in switched.layers if label not in by_hand]
    run = _Runs(source.name, switched, inputs, 2 * len(candidates) + 1, listener(on_event))
    alone = {label: run.error([label]) for label in candidates}
    ranked = sorted(alone, key=lambda label: -alone[label])
    kept, together, everything = _fewest(ranked, run, options.max_error)
    drawn = () if samples else tuple(seeds)
    result = Sensitivity(
        source.name, options.precision, {label: alone[label] for label in ranked}, kept, together, everything,
        options.max_error, drawn,
    )  # fmt: skip
    if ranked and len(kept) == len(ranked):
        raise OptionError(
            _out_of_reach(result), fix=f"allow {max(alone[ranked[-1]], 1e-6):.1e}, or leave precision out"
        )
    return result


def _checked(source: Source, options: CompileOptions) -> Checked:
    """The model, all of whose layers can be told.

    Raises:
        UnsupportedError: ONNX does not know an operator of it, so that nobody knows the types behind this.
    """
    try:
        return check_model(frozen_source(source, options.freeze), dict(options.shapes))
    except UnsupportedError as error:
        if options.fallback == "error":
            raise
        fix = "name layers yourself: keep_float32=[...], without max_error"
        raise UnsupportedError(f"{error.message}: its layers cannot be measured", fix=fix) from error


def _fewest(ranked: Sequence[str], run: _Runs, max_error: float | None) -> tuple[tuple[str, ...], float, float]:
    """How many of the products, from the first one, have to be kept; the error then, and with none kept."""
    everything = error = run.error(ranked)
    count = 0
    while max_error is not None and not error <= max_error and count < len(ranked):
        count += 1
        error = run.error(ranked[count:])
    return tuple(ranked[:count]), error, everything


def _out_of_reach(result: Sensitivity) -> str:
    """Why `max_error` leaves no layer to round: the cost of all of them, and of the least sensitive one."""
    least, kind = list(result.alone)[-1], result.precision
    return (
        f"{result.model}: max_error={result.max_error:g} leaves nothing to {kind}: all {len(result.alone)} layers "
        f"in {kind} cost {percent(result.all_lowered)} of the range, and {least!r}, the least sensitive one, alone "
        f"{percent(result.alone[least])}"
    )


class _Runs:
    """Runs of one model with switches on the same inputs, compared with the run in which all are off."""

    def __init__(self, model: str, switched: Switched, inputs: Sequence[Inputs], total: int, tell: Tell) -> None:
        self._switched, self._inputs = switched, inputs
        self._tell, self._done, self._total = tell, 0, (total + 1) * len(inputs)
        self._session = _session(model, switched)
        self._names = [output.name for output in self._session.get_outputs()]
        self._expected = [self._outputs((), sample) for sample in inputs]

    def error(self, lowered: Iterable[str]) -> float:
        """The largest error of the outputs when these products are rounded."""
        pairs = zip(self._inputs, self._expected, strict=True)
        return max(largest_error(self._outputs(lowered, sample), expected) for sample, expected in pairs)

    def _outputs(self, lowered: Iterable[str], inputs: Inputs) -> dict[str, np.ndarray]:
        self._done += 1
        self._tell({"kind": "run", "done": self._done, "of": self._total})
        switches = np.array(self._switched.switches(lowered), np.float32)
        try:
            values = self._session.run(self._names, {**inputs, SWITCHES: switches})
        except Exception as error:
            failed = InputError if type(error).__name__ in ("InvalidArgument", "ValueError") else UnsupportedError
            raise failed(f"onnxruntime cannot run the model to measure its layers: {error}") from error
        tensors = spread(dict(zip(self._names, values, strict=True)))
        return {name: value for name, value in tensors.items() if isinstance(value, np.ndarray)}


def _session(model: str, switched: Switched) -> Any:
    """An onnxruntime session of the model with switches.

    Raises:
        UnsupportedError: there is none.
    """
    fix = "name the layers yourself: keep_float32=[...], without max_error"
    if switched.proto.ByteSize() > LIMIT:
        raise UnsupportedError(f"{model}: more than 2 GiB, which onnxruntime cannot be given to measure", fix=fix)
    try:
        return session_of(switched.proto.SerializeToString(), available_cores())
    except (ArtifactError, ProgramError) as error:
        raise UnsupportedError(f"{model}: its layers cannot be measured: {error.message}", fix=fix) from error


# ------------------------------------------------------------ once in a process
#: (model, what of the options counts) -> what was measured in this process: a model is read again for its check and for
#: each look inside.
_known: dict[tuple[object, ...], Sensitivity] = {}


def measured(source: Source, options: CompileOptions) -> Sensitivity | None:
    """The sensitivity run that `max_error` asks for; None without one.

    Raises:
        OptionError: the bound leaves no layer to round.
        UnsupportedError: onnxruntime cannot run the model.
    """
    if options.max_error is None:
        return None
    bound = options.bound(min(options.sizes)) if options.sizes else options
    key = (source.sha256, bound.shapes, bound.freeze, bound.max_error, bound.keep_float32, bound.precision)
    if key not in _known:
        _known[key] = sensitivity_of(source, bound)
    return _known[key]


def with_kept(options: CompileOptions, result: Sensitivity | None) -> CompileOptions:
    """Options that name the layers which a sensitivity run keeps, beside those kept by hand."""
    if result is None:
        return options
    return replace(options, keep_float32=tuple({**result.reasons, **dict(options.keep_float32)}.items()))
