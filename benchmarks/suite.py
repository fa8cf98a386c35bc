"""The benchmark suite: every model and operator of the list against onnxruntime, and what is around them.

Writes benchmarks/results/MACHINE/suite.json, .md and .svg, and benchmarks/results/README.md, the page of all machines;
a run of some rows only (--only) or a --quick one prints and writes nothing. A row that misses its bar is profiled then
and there: that is its reason. stdout is the result, stderr the progress.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import os
import pathlib
import re
import sys
import tempfile
import time

import _measures
import _page
import machines
from _common import RESULTS, Unavailable, say
from _machine import this_machine
from _measures import Outcome, Settings
from _rows import ROWS, SuiteRow

from tvm_ext.benchmarking.contenders import CONTENDERS
from tvm_ext.cli.bench import add_python_argument, pythons
from tvm_ext.core.errors import TvmExtError

EXAMPLE = """\
examples:
  python benchmarks/suite.py                                  all rows, about ten minutes
  python benchmarks/suite.py --list
  python benchmarks/suite.py --quick --only 'resnet*' mlp
  python benchmarks/suite.py --peers openvino,tvm --python openvino=/opt/openvino/bin/python --only resnet18"""
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
        listed = [_page.plain(row, Outcome()) for row in rows]
        print("\n".join(f"{row['key']:22} {_page.bar_text(row):12} {_page.what(row)}" for row in listed))
        return 0
    with tempfile.TemporaryDirectory(prefix="tvm-ext-suite-") as folder:
        os.environ["TVM_EXT_CACHE"] = str(pathlib.Path(folder, "cache"))  # compiled in this run, by this code
        quick = {"rounds": 7, "seconds": 0.1, "repeats": 1} if args.quick else {}
        given = {"rounds": args.rounds, "seconds": args.seconds, "repeats": args.repeats}
        settings = Settings(
            pathlib.Path(folder), args.threads, **{k: v for k, v in given.items() if v is not None} | quick,
            peers=args.peers, python=python,
        )  # fmt: skip
        results = [(row, measured(row, settings, f"{i} of {len(rows)}")) for i, row in enumerate(rows, start=1)]
        _show(results, settings, whole=not (args.only or args.quick))
    return 0 if all(row.met(outcome.value) for row, outcome in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="PATTERN", default=[], help="rows, by name or shell pattern")
    parser.add_argument("--list", action="store_true", help="list the rows and measure nothing")
    parser.add_argument("--quick", action="store_true", help="7 short rounds, one process a probe: just to try")
    parser.add_argument("--rounds", type=int, help="interleaved rounds, 7 or more (default: 9)")
    parser.add_argument("--seconds", type=float, help="of each contender in a round (default: 0.5)")
    parser.add_argument("--repeats", type=int, help="fresh processes of each probe (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="of every contender (default: 2)")
    parser.add_argument(
        "--peers", type=_peers, default=(), metavar="A,B",
        help=f"other contenders, of {', '.join(PEERS)}; stock TVM takes seconds for each run of a ResNet",
    )  # fmt: skip
    add_python_argument(parser)
    return parser


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose of {', '.join(PEERS)}")
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
    """The outcome of a row, with what the profile says if it misses its bar. What fails is an outcome too: the other
    rows go on."""
    say(f"[{where}] {row.key}")
    start = time.monotonic()
    try:
        outcome = row.measure(settings)
        if row.model and outcome.value is not None and not row.met(outcome.value):
            say(f"[{where}] {row.key}: profiling")
            outcome = dataclasses.replace(outcome, reason=_measures.reason(row.model, settings))
    except Unavailable as error:
        outcome = Outcome(why=f"not available: {error}")
    except Exception as error:
        outcome = Outcome(why=f"failed: {type(error).__name__}: {error}")
    say(f"[{where}] {_page.line(_page.plain(row, outcome))}; took {time.monotonic() - start:.0f} s")
    return outcome


def _show(results: _page.Results, settings: Settings, whole: bool) -> None:
    machine = this_machine()
    if whole:
        machine = {**machine, "roofs": _measures.roofs(settings.threads)}
    document = _page.document(results, settings, machine)
    print("\n".join(_page.table(document)))
    if whole:
        _page.write(document, RESULTS)
        say(f"wrote {RESULTS / 'suite.json'}, .md, .svg and {machines.write()}")


if __name__ == "__main__":
    sys.exit(main())
