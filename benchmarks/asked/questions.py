"""The questions of `questions.py`: what is asked, and how each is answered."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from functools import partial

from tvm_ext.benchmarking.benchmark import REFERENCE
from tvm_ext.runtime.table import percent

from benchmarks.asked import chains
from benchmarks.asked.settings import Settings
from benchmarks.common.machine import instructions, this_machine
from benchmarks.common.rows import Row, table
from benchmarks.measuring import openvino
from benchmarks.measuring.contest import Contender
from benchmarks.measuring.races import Bar, RaceOf, float32, quantized_too
from benchmarks.measuring.reasons import profiled, shares
from benchmarks.models.models import MODELS
from benchmarks.models.narrow import quantized
from benchmarks.pages.answers import Answer


@dataclasses.dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        key: its name, for `--only`.
        title: for the table, where there is no answer.
        ask: answers it.
        model: of :data:`..models.models.MODELS`, whose file it needs; "" for none.
        kind: questions of one kind take about as long.
    """

    key: str
    title: str
    ask: Callable[[Settings], Answer]
    model: str = ""
    kind: str = ""


def questions() -> list[Question]:
    """All of them, in the order they are asked: what would be missed most, first."""
    return [
        _float32("resnet18", 0.6), *map(_chain, chains.CHAINS),
        *map(_layers, ("f32", "bf16", "int8")), _narrow("resnet18", 0.8, 0.95),
        _float32("resnet50", 0.8), _narrow("pp-ocr-rec", 0.85, None), _narrow("minilm", 0.85, 0.85),
        _float32("open-nsfw", 0.75), _float32("resnet34", 0.6), _narrow("open-nsfw", 0.85, 0.85),
    ]  # fmt: skip


def _judged(at_most: float | None) -> float | None:
    """A bar, where the machine is one of those that it is for."""
    return at_most if "amx" in instructions(this_machine()) else None


def _float32(key: str, at_most: float) -> Question:
    title, bar = f"{MODELS[key].title}: f32 / onnxruntime", _judged(at_most)
    race = RaceOf(key, float32, (Bar("f32 / onnxruntime", "f32", (REFERENCE,), bar),))
    return Question(f"f32-{key}", title, partial(_race, race), key, "f32")


def _narrow(key: str, bf16: float, int8: float | None) -> Question:
    """bf16 and int8 of a model; without OpenVINO only against our float32 and onnxruntime's
    int8."""
    ours = "tvm_ext-uint8"
    told = (
        Bar("bf16 / f32, ours", "bf16", ("f32",)),
        Bar("int8 / f32, ours", ours, ("f32",)),
        Bar("int8 / onnxruntime int8", ours, ("onnxruntime-uint8",)),
    )
    judged = (
        Bar("bf16 / OpenVINO default", "bf16", ("openvino",), _judged(bf16)),
        Bar("int8 / OpenVINO int8", "mixed-uint8", ("openvino-uint8",), _judged(int8)),
    )
    there = openvino.installed()

    def contenders(key: str, folder: pathlib.Path) -> list[Contender]:
        every = quantized_too(key, folder, ("uint8",))
        return [contender for contender in every if there or contender.runtime != "openvino"]

    race = RaceOf(key, contenders, (*judged, *told) if there else told)
    ask = partial(_race, race, left_out=() if there else judged)
    return Question(f"narrow-{key}", f"{MODELS[key].title}: bf16 and int8", ask, key, "narrow")


def _race(race: RaceOf, settings: Settings, left_out: Sequence[Bar] = ()) -> Answer:
    """A contest; a line for each bar whose peer is not installed."""
    title, answer = MODELS[race.model].title, race.answer(settings)
    skipped = f"skipped: {NO_OPENVINO}"
    lines = [Row(f"{title}: {bar.what}", "-", skipped, None) for bar in left_out]
    notes = [f"## {title}", "", *answer.notes, ""]
    return dataclasses.replace(answer, rows=[*answer.rows, *lines], notes=notes)


NO_OPENVINO = (
    "OpenVINO is not installed here; --openvino names a Python that has it, precision.py installs "
    "one"
)


def _chain(chain: chains.Chain) -> Question:
    def ask(settings: Settings) -> Answer:
        precisions = ["f32", *(["bf16"] if "bf16" in instructions(this_machine()) else [])]
        return Answer([chains.measured(chain, precision, settings) for precision in precisions])

    return Question(f"chain-{chain.size}", chain.title, ask, kind="chain")


def _layers(precision: str) -> Question:
    title, ask = f"ResNet-18, {precision}, by launch", partial(_launches, precision)
    return Question(f"layers-{precision}", title, ask, kind="layers")


def _launches(precision: str, settings: Settings) -> Answer:
    """Every launch of ResNet-18, and how much of the time is spent near a roof."""
    model, folder = MODELS["resnet18"], settings.folder
    path = quantized("resnet18", folder, "uint8") if precision == "int8" else model.write(folder)
    options = {"precision": "bf16"} if precision == "bf16" else {}
    profile, shapes = profiled(path, settings.threads, options, model.inputs(folder))
    rows, roofs = profile.rows("launch"), profile.roofs
    cells = [("#", "recipe", "result", "ms", "% of run", "of peak", "of memory", "of L2")]
    for number, (row, shape) in enumerate(zip(rows, shapes, strict=True), start=1):
        of_l2 = None if row.gbs is None else row.gbs * 1e9 / roofs.cache_bandwidth
        cells.append((
            str(number), ", ".join(row.recipes), "x".join(map(str, shape)),
            f"{1e3 * row.median:.4f}", f"{100 * row.share:.1f}", percent(row.of_peak),
            percent(row.of_bandwidth), percent(of_l2),
        ))  # fmt: skip
    groups = shares(profile, shapes)
    near = sum(group.share for group in groups if group.bound)
    what = f"ResNet-18, {precision}: part of the time at 80 % of a roof or more"
    inside = f"in kernels {profile.in_kernels / profile.seconds:.2f}"
    text = f"{near:.2f} (of {1e3 * profile.seconds:.3g} ms; {inside})"
    notes = [f"## ResNet-18, {precision}, by launch", "", str(roofs), "", table(cells), ""]
    document = {"roofs": roofs.as_dict(), "rows": [row.as_dict() for row in rows], "shapes": shapes}
    return Answer(
        [Row(what, "(told)", text, None)], [*notes, *(f"* {g}" for g in groups), ""], document
    )
