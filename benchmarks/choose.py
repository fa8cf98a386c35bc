"""What `choose="measure"` is worth: against the estimate, and against minutes of `tune`. Writes
results/MACHINE/choose.*

estimate    the cost model alone (records=None)
measure     choose="measure" with a timing cache that is empty at first
tune        a session of so many minutes, and its log

A run of some models (--only) replaces their rows and keeps the others. Each program runs in a
process of its own, in interleaved rounds; outputs are compared with onnxruntime's.
"""

import argparse
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext
from tvm_ext.benchmarking.benchmark import REFERENCE
from tvm_ext.core.machine import available_cores
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.frontend import zoo
from tvm_ext.tuning.choose import measure_choices
from tvm_ext.tuning.in_model import quantile_interval

from benchmarks.asked.settings import Settings, run_folder
from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, read_json, say, write_results
from benchmarks.common.rows import Row, filled
from benchmarks.measuring.contest import Contender, Standing, contest

MODELS = ("resnet18", "resnet50")
#: Time of the measured program over that of the tuned one; seconds that a second choice may take.
BAR, AGAIN = 1.03, 1.0
Options = Mapping[str, Any]


def main() -> int:
    """Measure; 1 if a bar was missed."""
    args = _arguments()
    rows: list[Row] = []
    standings = read_json(args.output / "choose.json").get("standings", {})
    for name in args.only:
        with run_folder("choose") as folder:
            measured_rows = list(_model(name, folder, args))
        rows += measured_rows
        standings[name] = measured_rows[0].details
    settings = {name: getattr(args, name) for name in ("seconds", "minutes", "threads")}
    extra = {"settings": settings, "standings": standings}
    measured = [f"{name}: " for name in args.only]
    return write_results(args.output, "choose", rows, extra, _NOTES, measured)


def _arguments() -> argparse.Namespace:
    parser = arguments.parser(
        __doc__, "choose.py --only resnet18 --minutes 1", threads=available_cores(), rounds=11,
        minutes=(10.0, "of tune; 0 leaves it out"), output=RESULTS,
    )  # fmt: skip
    names = {"choices": sorted(zoo.MODELS), "default": MODELS, "nargs": "+"}
    parser.add_argument("--only", **names, help="models of the zoo")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of choose='measure' (default: 20)"
    )
    args = parser.parse_args()
    if args.rounds < 7:
        parser.error("--rounds is 7 or more")
    return args


def _model(name: str, folder: pathlib.Path, args: argparse.Namespace) -> Iterator[Row]:
    """The rows of a model."""
    path = zoo.save(name, folder / f"{name}.onnx")
    measure = {"choose": "measure", "seconds": args.seconds}
    say(f"{name}: choose='measure', {args.seconds:g} s")
    first, again = (_timed(path, {"threads": args.threads, **measure}) for _ in range(2))
    programs: dict[str, Options] = {"estimate": {}, "measure": measure}
    if args.minutes:
        say(f"{name}: tune, {args.minutes:g} minutes")
        log = folder / "tuned.json"
        tvm_ext.tune(str(path), log=log, minutes=args.minutes, threads=args.threads)
        programs["tune"] = {"records": str(log)}
    say(f"{name}: rounds")
    standing = _standing(path, folder, programs, args)
    ratio, text = _ratio(standing, "measure", "estimate")
    met = 0 < ratio <= 1.0
    yield Row(f"{name}: measured / estimate", "1 or less", text, met, _details(standing))
    if args.minutes:
        ratio, text = _ratio(standing, "measure", "tune")
        what, bar = f"{name}: measured / {args.minutes:g} minutes of tune", f"{BAR:g} or less"
        yield Row(what, bar, text, 0 < ratio <= BAR)
    what, text = f"{name}: seconds of the choice; a second time", f"{first:.1f} s; {again:.2f} s"
    yield Row(what, f"; {AGAIN:g}", text, again <= AGAIN)


def _timed(path: pathlib.Path, options: Options) -> float:
    start = time.perf_counter()
    measure_choices(str(path), **options)
    return time.perf_counter() - start


def _standing(
    path: pathlib.Path,
    folder: pathlib.Path,
    programs: Mapping[str, Options],
    args: argparse.Namespace,
) -> Standing:
    reference = Contender(REFERENCE, "onnxruntime", REFERENCE, path, "f32")
    ours = [
        Contender(key, key, "tvm_ext", path, "f32", options) for key, options in programs.items()
    ]
    compiled = tvm_ext.compile(str(path), records=None, threads=args.threads)
    inputs, names = seeded_inputs(compiled.inputs), [spec.name for spec in compiled.outputs]
    settings = Settings(folder / "contest", args.threads, args.rounds, 0.5)
    return contest([reference, *ours], inputs, names, settings)


def _ratio(standing: Standing, ours: str, other: str) -> tuple[float, str]:
    """Median over the rounds of our minimum / the other's, 0 where one has no time; and as text."""
    ratios = sorted(standing.ratios(ours, other))
    if not ratios:
        reasons = "; ".join(row.reason for row in standing.rows.values() if row.reason)
        return 0.0, reasons or "no time"
    low, high = quantile_interval(len(ratios))
    median = statistics.median(ratios)
    return median, f"{median:.3f} ({ratios[low]:.3f} to {ratios[high]:.3f})"


def _details(standing: Standing) -> dict[str, object]:
    minima = {key: 1e3 * min(row.minima) for key, row in standing.rows.items() if row.ok}
    return {"milliseconds": minima, "warnings": list(standing.warnings)}


_NOTES = filled("""
    Ratios are medians over interleaved rounds of the least time of a round, with the interval that
    holds the median with 95 %. The first choice measures; the second one finds all in the timing
    cache.""")


if __name__ == "__main__":
    sys.exit(main())
