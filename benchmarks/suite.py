"""The benchmark suite: every model and operator of the list against onnxruntime, and what is around
them.

Writes benchmarks/results/MACHINE/suite.json, .md and .svg, and benchmarks/results/README.md, the
page of all machines; a run of some rows only (--only) or a --quick one prints and writes nothing. A
row that misses its bar is profiled then and there: that is its reason. stdout is the result, stderr
the progress.
"""

import argparse
import dataclasses
import fnmatch
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tvm_ext.benchmarking.contenders import CONTENDERS
from tvm_ext.cli.bench import add_python_argument, pythons
from tvm_ext.core.errors import TvmExtError

from benchmarks import machines
from benchmarks.asked import measures
from benchmarks.asked.measures import Outcome
from benchmarks.asked.rows import ROWS, SuiteRow
from benchmarks.asked.settings import Settings, run_folder
from benchmarks.common import arguments
from benchmarks.common.machine import this_machine
from benchmarks.common.results import RESULTS, say
from benchmarks.common.rows import Unavailable
from benchmarks.pages import suite_page

EXAMPLE = """\
suite.py                                  all rows, about ten minutes
  python benchmarks/suite.py --list
  python benchmarks/suite.py --quick --only 'resnet*' mlp
  python benchmarks/suite.py --peers openvino,tvm --python openvino=/there/python --only resnet18"""
PEERS = tuple(name for name in CONTENDERS if name not in ("tvm_ext", "onnxruntime"))


def main(argv: list[str] | None = None) -> int:
    """Measure rows; 1 if a bar was missed or a row has no figure, 2 for wrong usage."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        rows, python = chosen(args.only), pythons(args)
    except (ValueError, TvmExtError) as error:
        parser.error(str(error))
    if args.list:
        for row in (suite_page.plain(row, Outcome()) for row in rows):
            print(f"{row['key']:22} {suite_page.bar_text(row):12} {suite_page.what(row)}")
        return 0
    rounds, seconds, repeats = (
        (7, 0.1, 1) if args.quick else (args.rounds, args.seconds, args.repeats)
    )
    with run_folder("suite") as folder:
        settings = Settings(folder, args.threads, rounds, seconds, repeats, args.peers, python)
        places = [f"{number} of {len(rows)}" for number in range(1, len(rows) + 1)]
        pairs = zip(rows, places, strict=True)
        results = [(row, measured(row, settings, place)) for row, place in pairs]
        _show(results, settings, whole=not (args.only or args.quick))
    return 0 if all(row.met(outcome.value) for row, outcome in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(
        __doc__, EXAMPLE, threads=2, rounds=9, seconds=0.5,
        repeats=(3, "fresh processes of each probe"),
        list=(False, "list the rows and measure nothing"),
        quick=(False, "7 short rounds, one process a probe: just to try"),
    )  # fmt: skip
    only = {"nargs": "+", "metavar": "PATTERN", "default": []}
    parser.add_argument("--only", **only, help="rows, by name or shell pattern")
    peers = f"other contenders, of {', '.join(PEERS)}; stock TVM takes seconds a run of a ResNet"
    parser.add_argument("--peers", type=_peers, default=(), metavar="A,B", help=peers)
    add_python_argument(parser)
    return parser


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in PEERS]:
        message = f"{', '.join(unknown)}: choose of {', '.join(PEERS)}"
        raise argparse.ArgumentTypeError(message)
    return names


def chosen(patterns: list[str]) -> list[SuiteRow]:
    """Rows that one of the patterns matches, in the suite's order; all without patterns.

    Raises:
        ValueError: a pattern that matches none.
    """
    for pattern in patterns:
        if not fnmatch.filter([row.key for row in ROWS], pattern):
            raise ValueError(f"--only {pattern}: no such row; --list lists them")
    wanted = re.compile("|".join(fnmatch.translate(p) for p in patterns or ["*"]))
    return [row for row in ROWS if wanted.match(row.key)]


def measured(row: SuiteRow, settings: Settings, where: str) -> Outcome:
    """The outcome of a row, with what the profile says if it misses its bar. What fails is an
    outcome too: the other rows go on."""
    say(f"[{where}] {row.key}")
    start = time.monotonic()
    try:
        outcome = row.measure(settings)
        if row.model and outcome.value is not None and not row.met(outcome.value):
            say(f"[{where}] {row.key}: profiling")
            outcome = dataclasses.replace(outcome, reason=measures.reason(row.model, settings))
    except Unavailable as error:
        outcome = Outcome(why=f"not available: {error}")
    except Exception as error:
        outcome = Outcome(why=f"failed: {type(error).__name__}: {error}")
    seconds, line = time.monotonic() - start, suite_page.line(suite_page.plain(row, outcome))
    say(f"[{where}] {line}; took {seconds:.0f} s")
    return outcome


def _show(results: suite_page.Results, settings: Settings, whole: bool) -> None:
    machine = this_machine()
    if whole:
        machine = {**machine, "roofs": measures.roofs(settings.threads)}
    document = suite_page.document(results, settings, machine)
    print(suite_page.markdown(document))
    if whole:
        suite_page.write(document, RESULTS)
        say(f"wrote {RESULTS / 'suite.json'}, .md, .svg and {machines.write()}")


if __name__ == "__main__":
    sys.exit(main())
