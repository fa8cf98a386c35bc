"""Who runs against whom in `precision.py`, and the bars."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from _common import Row, say
from _contest import Contender, Standing, contest
from _precision_models import MODELS, Model, outputs_of, quantized
from _reasons import explained

from tvm_ext.benchmarking.benchmark import REFERENCE
from tvm_ext.benchmarking.noise import RATIO_SPREAD, spread


@dataclass(frozen=True)
class Bar:
    """A ratio of two contenders' times, and the most it may be.

    Attributes:
        what: how it is called.
        ours, others: keys of contenders; of several others the fastest one counts.
        at_most: the bar; None where the figure is only told.
    """

    what: str
    ours: str
    others: tuple[str, ...]
    at_most: float | None = None

    def row(self, title: str, standing: Standing) -> Row:
        """The row of the table."""
        other = standing.fastest(self.others)
        ratios = standing.ratios(self.ours, other)
        bar = "(told)" if self.at_most is None else f"{self.at_most:g} or less"
        what = f"{title}: {self.what}"
        if not ratios:
            why = [f"{key}: {standing.rows[key].reason}" for key in (self.ours, other) if not standing.rows[key].ok]
            return Row(what, bar, "; ".join(why), None if self.at_most is None else False)
        ratio = statistics.median(ratios)
        met = None if self.at_most is None else ratio <= self.at_most
        return Row(what, bar, _text(standing, self.ours, other, ratios), met,
                   {"ratio": ratio, "rounds": ratios, "ours": self.ours, "other": other})  # fmt: skip


@dataclass(frozen=True)
class RaceOf:
    """The contenders, made in a folder, and the bars."""

    contenders: Callable[[pathlib.Path], Sequence[Contender]]
    bars: tuple[Bar, ...]

    def run(
        self, model: Model, folder: pathlib.Path, threads: int, rounds: int, seconds: float
    ) -> tuple[list[Contender], Standing]:
        """The contenders and what the contest found.

        Args:
            model: whose inputs all take.
            folder: for inputs and outputs of this race; models are kept in its parent.
            threads, rounds, seconds: as for :func:`_contest.contest`.
        """
        contenders = list(self.contenders(folder.parent))
        names = outputs_of(model.write(folder.parent))
        return contenders, contest(contenders, model.inputs(0), names, folder, threads, rounds, seconds)


def add_reasons(
    rows: Sequence[Row], contenders: Sequence[Contender], inputs: Mapping[str, np.ndarray], threads: int
) -> None:
    """Put what the profile of our program says into the details of each row of :meth:`Bar.row` that misses its bar."""
    programs = {contender.key: contender for contender in contenders}
    for row in rows:
        if row.met is False and "ratio" in row.details:
            ours = programs[row.details["ours"]]
            shapes = {name: array.shape for name, array in inputs.items()}
            say(f"  profiling {ours.title}")
            row.details["reason"] = explained(ours.model, threads, {"shapes": shapes, **ours.options}, inputs)


def float32(key: str) -> Callable[[pathlib.Path], list[Contender]]:
    """Ours and onnxruntime, both in float32."""

    def contenders(folder: pathlib.Path) -> list[Contender]:
        path = MODELS[key].write(folder)
        return [
            Contender("f32", "ours, f32", "tvm_ext", path, "f32"),
            Contender(REFERENCE, "onnxruntime, f32", "onnxruntime", path, "f32"),
        ]

    return contenders


def floats(key: str) -> Callable[[pathlib.Path], list[Contender]]:
    """A float32 model: ours in float32 and bf16, onnxruntime, OpenVINO as it comes."""

    def contenders(folder: pathlib.Path) -> list[Contender]:
        path = MODELS[key].write(folder)
        return [
            Contender("bf16", "ours, bf16", "tvm_ext", path, "bf16", {"precision": "bf16"}),
            *float32(key)(folder),
            Contender("openvino", "OpenVINO, default", "openvino", path, "bf16"),
        ]

    return contenders


def all_precisions(key: str, types: Sequence[str] = ("uint8", "int8")) -> Callable[[pathlib.Path], list[Contender]]:
    """The same, and the model quantized with each type of activations: every program gets the same files."""
    names = (("tvm_ext", "ours"), ("onnxruntime", "onnxruntime"), ("openvino", "OpenVINO"))

    def contenders(folder: pathlib.Path) -> list[Contender]:
        return floats(key)(folder) + [
            Contender(f"{runtime}-{activations}", f"{name}, int8 ({activations} activations)", runtime,
                      quantized(key, folder, activations), "int8")
            for activations in types for runtime, name in names
        ]  # fmt: skip

    return contenders


_OPENVINO_INT8 = ("openvino-uint8", "openvino-int8")
RACES: dict[str, RaceOf] = {
    "resnet18": RaceOf(all_precisions("resnet18"), (
        Bar("bf16 / OpenVINO default", "bf16", ("openvino",), 0.9),
        Bar("int8 / OpenVINO int8, the faster of the two", "tvm_ext-uint8", _OPENVINO_INT8, 1.0),
        Bar("int8 / onnxruntime int8, uint8 activations", "tvm_ext-uint8", ("onnxruntime-uint8",), 0.5),
        Bar("int8 / onnxruntime int8, int8 activations", "tvm_ext-int8", ("onnxruntime-int8",), 0.5),
        Bar("int8 / f32, ours", "tvm_ext-uint8", ("f32",), 0.5),
    )),
    **{key: RaceOf(floats(key), (Bar("bf16 / OpenVINO default", "bf16", ("openvino",), at_most),))
       for key, at_most in {"open-nsfw": 1.0, "minilm": 1.0, "pp-ocr-rec": 1.0, "matmul": 0.9}.items()},
}  # fmt: skip


def _text(standing: Standing, ours: str, other: str, ratios: Sequence[float]) -> str:
    times = [
        " / ".join(f"{1e3 * standing.rows[key].statistics()[name]:.3g}" for key in (ours, other))
        for name in ("min", "median")
    ]
    noisy = "; too noisy to tell" if spread(ratios) > RATIO_SPREAD else ""
    rounds = f"rounds {min(ratios):.2f} to {max(ratios):.2f}"
    return f"{statistics.median(ratios):.3f} ({rounds}; least {times[0]} ms, medians {times[1]} ms){noisy}"
