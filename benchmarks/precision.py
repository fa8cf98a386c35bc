"""Reduced precision: bf16 and int8 against OpenVINO as it comes, onnxruntime, and our own float32; and what they cost.

Writes results/MACHINE/precision.md and .json. A ratio that misses its bar is followed by what the profile says of our
program, taken then and there. A run of some parts (--only) replaces these in both and keeps the others; a
--quick one prints and writes nothing. OpenVINO is installed by pip into an environment of its own in
benchmarks/.cache/; where that fails, its rows say so.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import _precision_page as page
import machines
from _accuracy import NOTES, accuracy
from _common import Row, Unavailable, say
from _machine import this_machine
from _precision_models import MODELS
from _precision_races import RACES, add_reasons


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of a run: a folder for models and compiled programs, and how to time."""

    folder: pathlib.Path
    threads: int
    rounds: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Found:
    """What a part found: rows with their bars, and the table of contenders below them."""

    rows: list[Row]
    notes: list[str] = dataclasses.field(default_factory=list)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if a bar was missed or a row has no figure."""
    args = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="tvm-ext-precision-") as folder:
        os.environ.setdefault("TVM_EXT_CACHE", str(pathlib.Path(folder, "cache")))  # compiled in this run, by this code
        rounds, seconds = (7, 0.1) if args.quick else (args.rounds, args.seconds)
        models = args.models or pathlib.Path(folder)
        models.mkdir(parents=True, exist_ok=True)
        settings = Settings(models, args.threads, rounds, seconds)
        found = {key: _part(key, settings) for key in args.only or PARTS}
    print(page.markdown({"parts": found}))
    if not args.quick:
        parts = {**page.read()["parts"], **found}
        page.write({"parts": {key: parts[key] for key in PARTS if key in parts}})
        machines.write()
    return 0 if all(row["met"] is not False for part in found.values() for row in part["rows"]) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/precision.py --quick --only minilm matmul",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="7 short rounds: just to try")
    parser.add_argument("--threads", type=int, default=2, help="of every contender (default: 2)")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds, 7 or more (default: 9)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each contender in a round (default: 0.5)")
    parser.add_argument("--models", type=pathlib.Path, help="keep models here, for a next run (default: a new folder)")
    return parser


def _part(key: str, settings: Settings) -> dict[str, Any]:
    """A part as plain values; what fails is a row of it."""
    title, measure = PARTS[key]
    say(f"{key}: {title}")
    try:
        found = measure(settings)
    except Exception as error:
        kind = "not available" if isinstance(error, Unavailable) else f"failed: {type(error).__name__}"
        found = Found([Row(title, "-", f"{kind}: {error}", False)])
    machine = {**this_machine(), "threads": settings.threads}
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {"title": title, "date": date, "machine": machine, **dataclasses.asdict(found)}


def _race(key: str) -> Callable[[Settings], Found]:
    def measure(settings: Settings) -> Found:
        model, race = MODELS[key], RACES[key]
        contenders, standing = race.run(model, settings.folder / key, settings.threads, settings.rounds,
                                        settings.seconds)  # fmt: skip
        rows = [bar.row(model.title, standing) for bar in race.bars]
        add_reasons(rows, contenders, model.inputs(0), settings.threads)
        return Found(rows, page.contenders(contenders, standing), page.details(standing))

    return measure


#: key -> title and how it is measured
PARTS: dict[str, tuple[str, Callable[[Settings], Found]]] = {
    **{key: (MODELS[key].title, _race(key)) for key in RACES},
    "accuracy": ("Accuracy", lambda settings: Found(accuracy(settings.folder, settings.threads), list(NOTES))),
}


if __name__ == "__main__":
    sys.exit(main())
