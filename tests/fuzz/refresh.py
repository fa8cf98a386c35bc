"""Makes mutants and judges them: python -m tests.fuzz.refresh --count 20000 --series 6

Progress goes to stderr, findings to stdout. What is done already is not done again: stop it and start it as you like.
"""

import argparse
import itertools
import os
import pathlib
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from tests.oracles.table import parser_of, versions

from .mutants import Mutant, mutant
from .run import SERVICE, judged
from .table import BAD, OPEN, PATH, Table, letter_of, read_table, write_table

#: Mutants whose outcomes are written at once.
_PIECE = 500


def main(argv: Sequence[str] | None = None) -> int:
    """Judge what is not judged yet, print what is wrong, write the table; 1 if anything is wrong."""
    args = _parser().parse_args(argv)
    table = read_table(args.table)
    if table.series != args.series:
        table = Table(args.series)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is done is kept then too
    start = time.monotonic()
    for piece in _pieces(_wanted(table, args)):
        begun = time.monotonic()
        try:
            for item, outcome in judged((mutant(args.series, n) for n in piece), args.workers):
                _note(table, item, str(outcome), args.show)
        finally:
            table.seconds += time.monotonic() - begun
            if not args.dry_run:
                table.about = _about()
                write_table(table, args.table)
        done = sum(letter != OPEN for letter in table.outcomes)
        print(f"{done} of {args.count}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        if 2 * time.monotonic() - begun - start > args.seconds:  # another piece would take too long
            break
    return int(bool(table.findings))


def _note(table: Table, subject: Mutant, outcome: str, show: bool) -> None:
    letter = table.note(subject.number, subject.how, outcome)
    if letter in BAD or show:
        print(f"{subject.number} {subject.seed} {'+'.join(subject.how)}: {outcome}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tests.fuzz.refresh", __doc__, workers=1)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--series", type=int, default=6, help="another series is other files")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which to stop")
    parser.add_argument("--table", type=pathlib.Path, default=PATH)
    parser.add_argument("--only", nargs="+", default=[], help="numbers, or kinds of outcome such as wrong, once more")
    parser.add_argument("--show", action="store_true", help="print every outcome")
    return parser


def _wanted(table: Table, args: argparse.Namespace) -> Iterator[int]:
    letters = {letter_of(text) for text in args.only if not text.isdigit()}
    for number in range(args.count):
        letter = table.outcomes[number] if number < len(table.outcomes) else OPEN
        if (str(number) in args.only or letter in letters) if args.only else letter == OPEN:
            yield number


def _pieces(numbers: Iterator[int]) -> Iterator[tuple[int, ...]]:
    while some := tuple(itertools.islice(numbers, _PIECE)):
        yield some


def _about() -> dict[str, str]:
    from tvm_ext.core.machine import Machine

    machine = Machine.detect()
    return {
        "machine": f"{machine.mcpu} ({machine.isa}), {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "versions": versions(),
        "limits": f"{SERVICE.seconds:.0f} s a file, {SERVICE.memory >> 30} GiB of address space (RLIMIT_AS) a process",
    }


if __name__ == "__main__":
    sys.exit(main())
