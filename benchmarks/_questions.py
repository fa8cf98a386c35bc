"""The questions of `questions.py`: what is asked, and how each is answered."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import _chains
import _openvino
import _precision_page
from _common import Row, markdown_table
from _machine import instructions, this_machine
from _measures import Settings
from _precision_models import MODELS, quantized
from _precision_races import Bar, RaceOf, add_reasons, all_precisions, float32
from _question_page import Answer
from _reasons import profiled, shares

from tvm_ext.benchmarking.benchmark import REFERENCE
from tvm_ext.runtime.table import percent


@dataclasses.dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        key: its name, for `--only`.
        title: for the table, where there is no answer.
        ask: answers it.
        model: of :data:`_precision_models.MODELS`, whose file it needs; "" for none.
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
        _float32("resnet18", 0.6),
        *(Question(f"chain-{chain.size}", chain.title, functools.partial(_chain, chain), kind="chain")
          for chain in _chains.CHAINS),
        *(Question(f"layers-{precision}", f"ResNet-18, {precision}, by launch",
                   functools.partial(_layers, precision), kind="layers") for precision in ("f32", "bf16", "int8")),
        _narrow("resnet18", 0.8, 0.95), _float32("resnet50", 0.8), _narrow("pp-ocr-rec", 0.85, None),
        _narrow("minilm", 0.85, 0.85), _float32("open-nsfw", 0.75), _float32("resnet34", 0.6),
        _narrow("open-nsfw", 0.85, 0.85),
    ]  # fmt: skip


def _judged(at_most: float | None) -> float | None:
    """A bar, where the machine is one of those that it is for."""
    return at_most if "amx" in instructions(this_machine()) else None


def _float32(key: str, at_most: float) -> Question:
    title = f"{MODELS[key].title}: f32 / onnxruntime"
    race = RaceOf(float32(key), (Bar("f32 / onnxruntime", "f32", (REFERENCE,), _judged(at_most)),))
    return Question(f"f32-{key}", title, functools.partial(_race, key, race), key, "f32")


def _narrow(key: str, bf16: float, int8: float | None) -> Question:
    """bf16 and int8 of a model; without OpenVINO only against our float32 and onnxruntime's int8."""
    told = (
        Bar("bf16 / f32, ours", "bf16", ("f32",)), Bar("int8 / f32, ours", "tvm_ext-uint8", ("f32",)),
        Bar("int8 / onnxruntime int8", "tvm_ext-uint8", ("onnxruntime-uint8",)),
    )  # fmt: skip
    judged = (
        Bar("bf16 / OpenVINO default", "bf16", ("openvino",), _judged(bf16)),
        Bar("int8 / OpenVINO int8", "tvm_ext-uint8", ("openvino-uint8",), _judged(int8)),
    )
    there = _openvino.installed()

    def contenders(folder: pathlib.Path) -> list[Any]:
        every = all_precisions(key, ("uint8",))(folder)
        return [one for one in every if there or one.runtime != "openvino"]

    race = RaceOf(contenders, (*judged, *told) if there else told)
    title = f"{MODELS[key].title}: bf16 and int8"
    return Question(f"narrow-{key}", title, functools.partial(_race, key, race, left_out=() if there else judged),
                    key, "narrow")  # fmt: skip


def _race(key: str, race: RaceOf, settings: Settings, left_out: Sequence[Bar] = ()) -> Answer:
    """A contest; a line for each bar whose peer is not installed."""
    model = MODELS[key]
    contenders, standing = race.run(model, settings.folder / f"{key}-{len(race.bars)}", settings.threads,
                                    settings.rounds, settings.seconds)  # fmt: skip
    rows = [bar.row(model.title, standing) for bar in race.bars]
    explain = functools.partial(add_reasons, rows, contenders, model.inputs(0), settings.threads)
    lines = [Row(f"{model.title}: {bar.what}", "-", f"skipped: {NO_OPENVINO}", None) for bar in left_out]
    notes = [f"## {model.title}", "", *_precision_page.contenders(contenders, standing), ""]
    return Answer(rows + lines, notes, _precision_page.details(standing), explain)


NO_OPENVINO = "OpenVINO is not installed here; --openvino names a Python that has it, precision.py installs one"


def _chain(chain: _chains.Chain, settings: Settings) -> Answer:
    precisions = ["f32", *(["bf16"] if "bf16" in instructions(this_machine()) else [])]
    return Answer([_chains.measured(chain, precision, settings) for precision in precisions])


def _layers(precision: str, settings: Settings) -> Answer:
    """Every launch of ResNet-18, and how much of the time is spent near a roof."""
    model = MODELS["resnet18"]
    path = quantized("resnet18", settings.folder, "uint8") if precision == "int8" else model.write(settings.folder)
    profile, shapes = profiled(path, settings.threads, {"precision": "bf16"} if precision == "bf16" else {},
                               model.inputs(0))  # fmt: skip
    rows = profile.rows("launch")
    cells = [("#", "recipe", "result", "ms", "% of run", "of peak", "of memory", "of L2")]
    for number, (row, shape) in enumerate(zip(rows, shapes, strict=True), start=1):
        of_l2 = None if row.gbs is None else row.gbs * 1e9 / profile.roofs.cache_bandwidth
        cells.append((
            str(number), ", ".join(row.recipes), "x".join(map(str, shape)), f"{1e3 * row.median:.4f}",
            f"{100 * row.share:.1f}", percent(row.of_peak), percent(row.of_bandwidth), percent(of_l2),
        ))  # fmt: skip
    groups = shares(profile, shapes)
    near = sum(one.share for one in groups if one.bound)
    what = f"ResNet-18, {precision}: part of the time at 80 % of a roof or more"
    text = f"{near:.2f} (of {1e3 * profile.seconds:.3g} ms; in kernels {profile.in_kernels / profile.seconds:.2f})"
    notes = [f"## ResNet-18, {precision}, by launch", "", str(profile.roofs), "", *markdown_table(cells), "",
             *(f"* {one}" for one in groups), ""]  # fmt: skip
    details = {"roofs": profile.roofs.as_dict(), "rows": [row.as_dict() for row in rows], "shapes": shapes}
    return Answer([Row(what, "(told)", text, None)], notes, details)
