"""What `choose="measure"` is worth: against the estimate, and against minutes of `tune`. Writes results/choose.*

estimate    the cost model alone (records=None)
measure     choose="measure" with a timing cache that is empty at first
tune        a session of so many minutes, and its log

Each program runs in a process of its own, in interleaved rounds; outputs are compared with onnxruntime's.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

from _common import RESULTS, Row, say, write_results
from _contest import REFERENCE, Contender, Standing, contest

import tvm_ext
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.frontend import zoo
from tvm_ext.tuning.choose import measure_choices
from tvm_ext.tuning.in_model import quantile_interval

MODELS = ("resnet18", "resnet50")
#: Time of the measured program over that of the tuned one; seconds that a second choice may take.
BAR, AGAIN = 1.03, 1.0


def main() -> int:
    """Measure; 1 if a bar was missed."""
    args = _arguments()
    rows: list[Row] = []
    standings = {}
    for name in args.only:
        with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:
            os.environ["TVM_EXT_CACHE"] = str(pathlib.Path(folder, "cache"))
            found = list(_model(name, pathlib.Path(folder), args))
            rows += found
            standings[name] = found[0].details
    settings = {"seconds": args.seconds, "minutes": args.minutes, "threads": args.threads}
    write_results(args.output, "choose", rows, {"settings": settings, "standings": standings}, _NOTES)
    return 0 if all(row.met for row in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/choose.py --only resnet18 --minutes 1",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=sorted(zoo.MODELS), default=MODELS, help="models of the zoo")
    parser.add_argument("--seconds", type=float, default=20.0, help="of choose='measure' (default: 20)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of tune; 0 leaves it out (default: 10)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: the cores")
    parser.add_argument("--rounds", type=int, default=11, help="interleaved rounds, 7 or more (default: 11)")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the two result files")
    args = parser.parse_args()
    if args.rounds < 7:
        parser.error("--rounds is 7 or more")
    return args


def _model(name: str, folder: pathlib.Path, args: argparse.Namespace) -> Iterator[Row]:
    """The rows of a model."""
    path = folder / f"{name}.onnx"
    zoo.save(name, str(path))
    options = {"threads": args.threads, "choose": "measure", "seconds": args.seconds}
    say(f"{name}: choose='measure', {args.seconds:g} s")
    first, again = (_timed(path, options) for _ in range(2))
    programs = {"estimate": {}, "measure": {"choose": "measure", "seconds": args.seconds}}
    if args.minutes:
        say(f"{name}: tune, {args.minutes:g} minutes")
        log = folder / "tuned.json"
        tvm_ext.tune(str(path), log=log, minutes=args.minutes, threads=args.threads)
        programs["tune"] = {"records": str(log)}
    say(f"{name}: rounds")
    standing = _standing(path, folder, programs, args)
    ratio, text = _ratio(standing, "measure", "estimate")
    yield Row(f"{name}: measured / estimate", "1 or less", text, 0 < ratio <= 1.0, _details(standing))
    if args.minutes:
        ratio, text = _ratio(standing, "measure", "tune")
        yield Row(f"{name}: measured / {args.minutes:g} minutes of tune", f"{BAR:g} or less", text, 0 < ratio <= BAR)
    text = f"{first:.1f} s; {again:.2f} s"
    yield Row(f"{name}: seconds of the choice; a second time", f"; {AGAIN:g}", text, again <= AGAIN)


def _timed(path: pathlib.Path, options: dict[str, object]) -> float:
    start = time.perf_counter()
    measure_choices(str(path), **options)
    return time.perf_counter() - start


def _standing(
    path: pathlib.Path, folder: pathlib.Path, programs: dict[str, dict[str, object]], args: argparse.Namespace
) -> Standing:
    reference = Contender(REFERENCE, "onnxruntime", "onnxruntime", path, "f32")
    ours = [Contender(key, key, "tvm_ext", path, "f32", options) for key, options in programs.items()]
    compiled = tvm_ext.compile(str(path), records=None, threads=args.threads)
    inputs, names = seeded_inputs(compiled.inputs), [spec.name for spec in compiled.outputs]
    return contest([reference, *ours], inputs, names, folder / "contest", args.threads, args.rounds, 0.5)


def _ratio(standing: Standing, ours: str, other: str) -> tuple[float, str]:
    """Median over the rounds of our minimum / the other's, 0 where one has no time; and as text."""
    ratios = sorted(standing.ratios(ours, other))
    if not ratios:
        return 0.0, "; ".join(row.reason for row in standing.rows.values() if row.reason) or "no time"
    low, high = quantile_interval(len(ratios))
    median = statistics.median(ratios)
    return median, f"{median:.3f} ({ratios[low]:.3f} to {ratios[high]:.3f})"


def _details(standing: Standing) -> dict[str, object]:
    minima = {key: min(row.minima) for key, row in standing.rows.items() if row.ok}
    return {"milliseconds": {key: 1e3 * s for key, s in minima.items()}, "warnings": list(standing.warnings)}


_NOTES = """Ratios are medians over interleaved rounds of the least time of a round, with the interval that holds the
median with 95 %. The first choice measures; the second one finds all in the timing cache."""


if __name__ == "__main__":
    sys.exit(main())
