"""A contest of programs that may differ in everything, the model's precision too; timed as
`tvm_ext.benchmark` does.

Each contender has a runtime, a model file, options and the error it may make; the rounds, their
order, what is dropped and why are those of :class:`tvm_ext.benchmarking.benchmark.Race`.
"""

import contextlib
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm_ext.benchmarking.benchmark import Race
from tvm_ext.benchmarking.table import BenchmarkRow
from tvm_ext.verification.arrays import save_npz
from tvm_ext.verification.verify import VerifyReport

from benchmarks.asked.settings import Settings
from benchmarks.common.results import say
from benchmarks.common.rows import Unavailable
from benchmarks.measuring import openvino

Arrays = Mapping[str, np.ndarray]
#: What a program's outputs must be like to count as the model's: in float32 the largest error, of
#: the range; in reduced precision the cosine with those of float32. There single values may be far
#: off, behind a softmax for one, where two answers are about as likely; a wrong kernel is far off
#: everywhere.
WITHIN, COSINE = 1e-5, 0.98
#: Seconds that preparing or a round may take.
TIMEOUT = 300.0


@dataclass(frozen=True)
class Contender:
    """One program.

    Attributes:
        key: its name in the contest; outputs are compared with those of :data:`REFERENCE`.
        title: for the table.
        runtime: "tvm_ext", "onnxruntime" or "openvino".
        model: an ONNX file.
        precision: "f32", "f16", "bf16" or "int8".
        options: more compile options, of ours.
    """

    key: str
    title: str
    runtime: str
    model: pathlib.Path
    precision: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """What a contest found: rows by the contenders' keys, what to say of the machine, and when it
    was not quiet."""

    rows: Mapping[str, BenchmarkRow]
    machine: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    def ratios(self, ours: str, other: str) -> list[float]:
        """Our round's minimum over the other's, of each round; empty where one of them has no
        time."""
        a, b = self.rows[ours], self.rows[other]
        return [x / y for x, y in zip(a.minima, b.minima, strict=True)] if a.ok and b.ok else []

    def fastest(self, keys: Sequence[str]) -> str:
        """The contender with the least median of its rounds' minima; the first one where none has a
        time."""
        timed = [key for key in keys if self.rows[key].ok]
        medians = {key: statistics.median(self.rows[key].minima) for key in timed}
        return min(timed, key=medians.__getitem__, default=keys[0])


class Contest(Race):
    """The contenders of one contest.

    Args:
        contenders: in the order of the table; :data:`REFERENCE` among them.
        inputs: of the models, all of which take the same.
        names: of the outputs.
        settings: threads of every contender, and a folder for inputs and outputs.
        stack: closes the processes.
    """

    def __init__(
        self, contenders: Sequence[Contender], inputs: Arrays, names: Sequence[str],
        settings: Settings, stack: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        super().__init__("", settings.folder, settings.threads, {}, TIMEOUT, told, stack)
        self.contenders = {contender.key: contender for contender in contenders}
        self.foreign = openvino.options(inputs, names)
        self.folder.mkdir(parents=True, exist_ok=True)
        save_npz(self.folder / "inputs.npz", inputs)

    def standing(self) -> Standing:
        """Rows by contender, the machine, and warnings; each ratio has its own of noise."""
        table = self.table("", list(self.contenders))
        # that it is too noisy is told of each ratio
        warnings = tuple(text for text in table.warnings if not text.startswith("too noisy"))
        return Standing({row.name: row for row in table.rows}, table.machine, warnings)

    def _prepare_one(self, name: str) -> None:
        if self.contenders[name].runtime == "openvino":
            try:
                self.pythons[name] = openvino.python()
            except Unavailable as error:
                return self._drop(name, str(error))
        super()._prepare_one(name)

    def _message(self, name: str) -> dict[str, Any]:
        contender = self.contenders[name]
        options: dict[str, Any] = {"shapes": self.foreign["shapes"]}
        if contender.runtime == "tvm_ext":
            options |= {"records": None, **contender.options}
        elif contender.runtime == "openvino":
            options = self.foreign
        own = {"contender": contender.runtime, "model": str(contender.model), "options": options}
        return {**super()._message(name), **own}

    def _tolerance(self, name: str) -> float:
        return WITHIN if self.contenders[name].precision == "f32" else math.inf

    def _wrong(self, name: str, report: VerifyReport) -> Sequence[str]:
        reduced = self.contenders[name].precision != "f32"
        far = [o for o in report.outputs if reduced and not o.cosine >= COSINE]
        below = (f"{o.name}: cosine {o.cosine:.3f}, less than {COSINE}" for o in far)
        return [*report.wrong, *below]


def contest(
    contenders: Sequence[Contender], inputs: Arrays, names: Sequence[str], settings: Settings
) -> Standing:
    """Prepare the contenders, compare their outputs, run the rounds; see :class:`Contest`."""
    with contextlib.ExitStack() as stack:
        race = Contest(contenders, inputs, names, settings, stack)
        race.prepare(list(race.contenders))
        race.run(settings.rounds, settings.seconds)
        return race.standing()


def told(text: str) -> None:
    """Progress, without a line for each round."""
    if not text.startswith("round"):
        say(f"  {text}")
