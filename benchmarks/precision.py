"""Reduced precision: bf16, float16 and int8 against OpenVINO as it comes, onnxruntime, and our own
float32; and what they cost.

Writes results/MACHINE/precision.md and .json. A ratio that misses its bar is followed by what the
profile says of our program, taken then and there. A run of some parts (--only) replaces these in
both and keeps the others; a --quick one prints and writes nothing. OpenVINO is installed by pip
into an environment of its own in benchmarks/.cache/; where that fails, its rows say so.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import machines
from benchmarks.asked.accuracy import NOTES, accuracy
from benchmarks.asked.settings import Settings, run_folder
from benchmarks.common import arguments
from benchmarks.common.machine import instructions, machine_text, this_machine
from benchmarks.common.results import RESULTS, read_json, say, today, write_json, write_text
from benchmarks.common.rows import Row, Unavailable, filled, rows_table
from benchmarks.measuring.contest import COSINE, WITHIN
from benchmarks.measuring.races import RACES, RaceOf
from benchmarks.models.models import MODELS
from benchmarks.pages.answers import Answer, missed_text

_RULE = """
    Every program is a process of its own with the same threads, batch 1, stopped while another
    one runs. A figure is the median over interleaved rounds of (our round's least time / the
    other's round's least); below it least time, median and interquartile range over all calls.
    Errors are the largest of any output against onnxruntime in float32, over that output's
    range; a program whose outputs are farther off than {within:g}, or, in reduced precision,
    have a cosine of less than {cosine:g} with onnxruntime's, has no time."""
_FILES = """
    All get the same files: quantized ones are `tvm_ext.quantize`'s (QDQ, min-max over 16
    inputs, weights by channel). OpenVINO runs in an environment of its own, with its latency
    hint, so many threads, and nothing else set: it takes the precision named below the table.
    Nothing is tuned, no record is used."""
INTRODUCTION = f"{filled(_RULE)}\n{filled(_FILES)}".format(within=WITHIN, cosine=COSINE)


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if a bar was missed or a row has no figure."""
    parser = arguments.parser(
        __doc__, "precision.py --quick --only minilm matmul", only=list(PARTS), threads=2, rounds=9,
        seconds=0.5, quick=(False, "7 short rounds: just to try"),
    )  # fmt: skip
    text = "keep models here, for a next run (default: a new folder)"
    parser.add_argument("--models", type=pathlib.Path, help=text)
    args = parser.parse_args(argv)
    rounds, seconds = (7, 0.1) if args.quick else (args.rounds, args.seconds)
    with run_folder("precision") as folder:
        models = args.models or folder
        models.mkdir(parents=True, exist_ok=True)
        settings = Settings(models, args.threads, rounds, seconds)
        parts = {key: _part(key, settings) for key in args.only}
    print(markdown(parts))
    if not args.quick:
        write(parts)
    rows = (row for part in parts.values() for row in part["rows"])
    return 1 if any(row["met"] is False for row in rows) else 0


def write(measured: Mapping[str, Any]) -> None:
    """Replace parts of both files in the folder of this machine, and write the page of all."""
    path = RESULTS / "precision.json"
    stored = {**read_json(path).get("parts", {}), **measured}
    parts = {key: stored[key] for key in PARTS if key in stored}
    write_json(path, {"parts": parts})
    write_text(path.with_suffix(".md"), markdown(parts))
    machines.write()


def markdown(parts: Mapping[str, Any]) -> str:
    """The page: all rows with their bars, then each part."""
    rows = [row for part in parts.values() for row in part["rows"]]
    lines = ["# Reduced precision", INTRODUCTION, rows_table(Row(**row) for row in rows)]
    lines.append(missed_text(row for row in rows if "ratio" in row["details"]))
    for part in parts.values():
        machine = part["machine"]
        about = f"{instructions(machine)}, {machine['threads']} threads; {part['date']}."
        lines += [
            f"## {part['title']}",
            f"{machine_text(machine)}; {about}",
            "\n".join(part["notes"]),
        ]
    return "\n\n".join(filter(None, lines))


def _part(key: str, settings: Settings) -> dict[str, Any]:
    """A part as plain values; what fails is a row of it."""
    title, measure = PARTS[key]
    say(f"{key}: {title}")
    try:
        answer = measure(settings)
    except Exception as error:
        missing = isinstance(error, Unavailable)
        kind = "not available" if missing else f"failed: {type(error).__name__}"
        answer = Answer([Row(title, "-", f"{kind}: {error}", False)])
    machine = {**this_machine(), "threads": settings.threads}
    plain = {"rows": [dataclasses.asdict(row) for row in answer.rows], "notes": answer.notes}
    about = {"title": title, "date": today(), "machine": machine}
    return {**about, **plain, "details": answer.details}


def _race(race: RaceOf, settings: Settings) -> Answer:
    answer = race.answer(settings)
    answer.explain()
    return answer


def _title(key: str, race: RaceOf) -> str:
    return MODELS[race.model].title + (" in float16" if key.startswith("half-") else "")


#: key -> title and how it is measured
PARTS: dict[str, tuple[str, Callable[[Settings], Answer]]] = {
    **{k: (_title(k, race), functools.partial(_race, race)) for k, race in RACES.items()},
    "accuracy": ("Accuracy", lambda settings: Answer(accuracy(settings), list(NOTES))),
}


if __name__ == "__main__":
    sys.exit(main())
