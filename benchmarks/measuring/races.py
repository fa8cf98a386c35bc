"""Who runs against whom in `precision.py` and `questions.py`, and the bars."""

import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from tvm_ext.benchmarking.benchmark import REFERENCE
from tvm_ext.benchmarking.noise import RATIO_SPREAD, spread

from benchmarks.asked.settings import Settings
from benchmarks.common.results import say
from benchmarks.common.rows import Row
from benchmarks.measuring.contest import Contender, Standing, contest
from benchmarks.measuring.reasons import explained
from benchmarks.models.models import MODELS, outputs_of
from benchmarks.models.narrow import half, quantized
from benchmarks.pages.answers import Answer, contenders_table, details

#: (Key of a model, a folder for models) -> the contenders.
Contenders = Callable[[str, pathlib.Path], list[Contender]]


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
        ratios, told = standing.ratios(self.ours, other), self.at_most is None
        what, bar = f"{title}: {self.what}", "(told)" if told else f"{self.at_most:g} or less"
        if not ratios:
            sides = {key: standing.rows[key] for key in (self.ours, other)}
            why = [f"{key}: {row.reason}" for key, row in sides.items() if not row.ok]
            return Row(what, bar, "; ".join(why), None if told else False)
        ratio = statistics.median(ratios)
        met = None if self.at_most is None else ratio <= self.at_most
        details = {"ratio": ratio, "rounds": ratios, "ours": self.ours, "other": other}
        return Row(what, bar, _text(standing, self.ours, other, ratios), met, details)


@dataclass(frozen=True)
class RaceOf:
    """The race of a model: the contenders, made in a folder, and the bars."""

    model: str
    contenders: Contenders
    bars: tuple[Bar, ...]

    def answer(self, settings: Settings) -> Answer:
        """The bars' rows, and the table of contenders, whose models lie in the folder of the
        settings; reasons of missed bars take a profile each."""
        model, folder = MODELS[self.model], settings.folder
        contenders, inputs = self.contenders(self.model, folder), model.inputs(folder)
        own = replace(settings, folder=folder / f"{self.model}-{len(self.bars)}")
        standing = contest(contenders, inputs, outputs_of(model.write(folder)), own)
        rows = [bar.row(model.title, standing) for bar in self.bars]
        explain = partial(add_reasons, rows, contenders, inputs, settings.threads)
        return Answer(rows, contenders_table(contenders, standing), details(standing), explain)


def add_reasons(
    rows: Sequence[Row],
    contenders: Sequence[Contender],
    inputs: Mapping[str, np.ndarray],
    threads: int,
) -> None:
    """Put what the profile of our program says into the details of each row of :meth:`Bar.row` that
    misses its bar."""
    programs = {contender.key: contender for contender in contenders}
    for row in rows:
        if row.met is False and "ratio" in row.details:
            ours = programs[row.details["ours"]]
            options = {"shapes": {name: array.shape for name, array in inputs.items()}}
            say(f"  profiling {ours.title}")
            reason = explained(ours.model, threads, {**options, **ours.options}, inputs)
            row.details["reason"] = reason


def float32(key: str, folder: pathlib.Path) -> list[Contender]:
    """Ours and onnxruntime, both in float32."""
    path = MODELS[key].write(folder)
    return [
        Contender("f32", "ours, f32", "tvm_ext", path, "f32"),
        Contender(REFERENCE, "onnxruntime, f32", "onnxruntime", path, "f32"),
    ]


def floats(key: str, folder: pathlib.Path) -> list[Contender]:
    """A float32 model: ours in float32 and bf16, onnxruntime, OpenVINO as it comes."""
    path = MODELS[key].write(folder)
    return [
        Contender("bf16", "ours, bf16", "tvm_ext", path, "bf16", {"precision": "bf16"}),
        *float32(key, folder),
        Contender("openvino", "OpenVINO, default", "openvino", path, "bf16"),
    ]


def quantized_too(
    key: str, folder: pathlib.Path, types: Sequence[str] = ("uint8", "int8")
) -> list[Contender]:
    """The same, and the model quantized with each type of activations: every program gets the same
    files. What quantization leaves in float32 OpenVINO computes in bf16 by itself, and ours if it
    is told to ("mixed")."""
    names = {"tvm_ext": "ours", "onnxruntime": "onnxruntime", "openvino": "OpenVINO"}
    contenders = floats(key, folder)
    for dtype in types:
        path, text = quantized(key, folder, dtype), f"int8 ({dtype} activations)"
        contenders += [
            Contender(f"{runtime}-{dtype}", f"{name}, {text}", runtime, path, "int8")
            for runtime, name in names.items()
        ]
        beside, title = {"precision": "bf16"}, f"ours, {text}, floats in bf16"
        contenders.append(Contender(f"mixed-{dtype}", title, "tvm_ext", path, "int8", beside))
    return contenders


def half_too(key: str, folder: pathlib.Path) -> list[Contender]:
    """A float32 model, and the same in float16: ours and onnxruntime, each in both."""
    path = half(key, folder)
    return [
        Contender("f16", "ours, float16", "tvm_ext", path, "f16"),
        Contender("onnxruntime-f16", "onnxruntime, float16", "onnxruntime", path, "f16"),
        *float32(key, folder),
    ]


_OPENVINO = ("openvino-uint8", "openvino-int8")
_INT8 = (
    Bar("int8 / OpenVINO int8, the faster of the two", "tvm_ext-uint8", _OPENVINO, 1.0),
    Bar("int8 / onnxruntime int8, uint8 activations", "tvm_ext-uint8", ("onnxruntime-uint8",), 0.5),
    Bar("int8 / onnxruntime int8, int8 activations", "tvm_ext-int8", ("onnxruntime-int8",), 0.5),
    Bar("int8 / f32, ours", "tvm_ext-uint8", ("f32",), 0.5),
)


def _bf16(at_most: float) -> Bar:
    return Bar("bf16 / OpenVINO default", "bf16", ("openvino",), at_most)


#: Part of `precision.py` -> its model, and the bar of bf16.
_BF16 = {
    "open-nsfw": ("open-nsfw", 1.0),
    "minilm": ("minilm", 1.0),
    "pp-ocr-rec": ("pp-ocr-rec", 1.0),
    "matmul": ("matmul-512-weights", 0.9),
}
_HALF = (
    Bar("float16 / f32, ours", "f16", ("f32",), 1.05),
    Bar("float16 / onnxruntime float16", "f16", ("onnxruntime-f16",), 0.5),
)
RACES = {
    "resnet18": RaceOf("resnet18", quantized_too, (_bf16(0.9), *_INT8)),
    **{part: RaceOf(key, floats, (_bf16(bar),)) for part, (key, bar) in _BF16.items()},
    **{
        f"half-{key}": RaceOf(key, half_too, _HALF)
        for key in ("resnet18", "mobilenet-v2", "minilm")
    },
}


def _text(standing: Standing, ours: str, other: str, ratios: Sequence[float]) -> str:
    sides = [standing.rows[key].statistics() for key in (ours, other)]
    least, medians = (
        " / ".join(f"{1e3 * side[name]:.3g}" for side in sides) for name in ("min", "median")
    )
    noisy = "; too noisy to tell" if spread(ratios) > RATIO_SPREAD else ""
    rounds = f"rounds {min(ratios):.2f} to {max(ratios):.2f}"
    times = f"least {least} ms, medians {medians} ms"
    return f"{statistics.median(ratios):.3f} ({rounds}; {times}){noisy}"
