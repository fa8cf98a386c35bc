"""Trials: a model compiled with some things off, run, and compared with the reference; each set of switches once."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.errors import InputError, essence
from ...core.instruments import Instruments, Switches
from ...core.options import CompileOptions
from ...core.passes import CompileContext
from ...core.sample_inputs import seeded_inputs
from ...driver.compile import compile_model
from ...runtime.memory.arrays import NamedArrays
from ...runtime.model import CompiledModel
from ..metrics import OutputMetrics
from ..reference import run_reference
from ..verify import VerifyReport, model_inputs, report_of, tolerance_of
from .result import Trial
from .suspects import Seen, Suspect, switches

Event = Callable[[Mapping[str, Any]], None]


class Bench:
    """Runs trials of one model.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        options: of every compile.
        inputs: name -> array; None draws them.
        seed: of the drawn inputs.
        tolerance: see :func:`tvm_ext.verify`.
        tell: is told what happens.

    Attributes:
        trials: so far.
        programs: of the compile with everything on, one a size of a symbolic batch.
        reference: name and version of the reference.
        name: of the model.
    """

    def __init__(
        self, model: Any, options: CompileOptions, inputs: NamedArrays | None, seed: int,
        tolerance: float | None, tell: Event,
    ) -> None:  # fmt: skip
        self._model, self._options, self._inputs, self._seed = model, options, inputs, seed
        self._tolerance, self._tell = tolerance, tell
        self._known: dict[Switches, Trial] = {}
        self._expected: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.trials: list[Trial] = []
        self.programs: list[Seen] = []
        self.reference, self.name = "the reference", "model"

    def everything_on(self) -> Trial:
        """The compile of a user, looked at; later trials are compared with the same reference."""
        return self._run("", (), 0, Instruments(watch=self._watch))

    def helps(self, kind: str, off: Sequence[Suspect], of: int) -> bool:
        """Whether outputs agree with some suspects off; a set that was tried is not tried again.

        Args:
            of: number of all suspects of the kind.
        """
        wanted = switches(kind, off)
        if wanted not in self._known:
            names = tuple(suspect.culprit.name for suspect in off)
            self._known[wanted] = self._run(kind, names, of - len(off), Instruments(switches=wanted))
        return self._known[wanted].ok

    def error_of(self, kind: str, off: Sequence[Suspect]) -> float:
        """The error of a trial that was made; NaN if the compile or the run failed."""
        return self._known[switches(kind, off)].error

    def _watch(self, step: str, mod: Any, ctx: CompileContext) -> None:
        if step == "import":
            self.programs.append(Seen(ctx))
        self.programs[-1].see(step, mod)

    def _run(self, kind: str, off: tuple[str, ...], on: int, instruments: Instruments) -> Trial:
        self._tell({"kind": "start", "number": len(self.trials), "of": kind, "off": list(off), "on": on})
        start, error, detail = time.perf_counter(), math.nan, ""
        try:
            compiled = compile_model(self._model, self._options, instruments)
            worst, detail = self._judged(compiled)
            error = worst.of_range if worst else math.nan
        except Exception as failure:  # a culprit may as well break the compile or the run
            if isinstance(failure, InputError) or not (self.trials or self.programs):
                raise  # inputs that do not fit, or the import: nothing that can be switched off
            detail = essence(failure)
        seconds = time.perf_counter() - start
        self.trials.append(Trial(len(self.trials), kind, off, on, not detail, error, detail, seconds))
        self._tell({**self.trials[-1].as_dict(), "of": kind, "kind": "trial", "text": str(self.trials[-1])})
        return self.trials[-1]

    def _judged(self, compiled: CompiledModel) -> tuple[OutputMetrics | None, str]:
        """The worst output, and what is wrong with it; "" if every output agrees."""
        self.name = str(compiled.metadata.model["name"])
        tolerance = tolerance_of(compiled, self._tolerance)
        worst, details = [], []
        for feeds, expected in self._expected or self._make_expected(compiled):
            report = report_of(compiled.run(feeds), expected, self.reference, tolerance=tolerance)
            worst += [report.worst] if report.worst else []
            details += [] if report.ok else [_wrong(report)]
        return max(worst, key=lambda output: output.severity, default=None), "; ".join(details[:1])

    def _make_expected(self, compiled: CompiledModel) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Inputs and what onnxruntime makes of them: one, or one a size of the batch and a composed one."""
        sizes = (*compiled.batches, sum(compiled.batches) + 1) if compiled.batches and self._inputs is None else (1,)
        for size in sizes:
            feeds = dict(self._inputs) if self._inputs is not None else seeded_inputs(compiled.inputs, self._seed, size)
            expected, self.reference = run_reference(self._model, model_inputs(compiled, feeds), compiled.threads)
            self._expected.append((feeds, expected))
        return self._expected


def _wrong(report: VerifyReport) -> str:
    worst = report.worst
    named = f"{worst.name}: {worst.reason}" if worst is not None and worst.reason else ""
    return named or (report.problems[0] if report.problems else "an output disagrees")
