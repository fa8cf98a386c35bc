"""Runs random graphs in worker processes: python -m tests.property.refresh [--start 0] [--count 5000] [--new|--others]

Writes results.json beside this file, now and then, so that a run can be ended and go on with --new, and results.md
at the end; seeds that ran before and are not asked for stay as they are.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.oracles.table import host, parser_of

from .cases import seeded
from .judge import judged
from .table import PATH, read_table, write_table

_SAVED_EVERY = 50


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print what does not pass, write; 1 if anything disagrees."""
    args = _parser().parse_args(argv)
    table = read_table()
    table.machine = host()
    seeds = sorted(table.others) if args.others else list(range(args.start, args.start + args.count))
    if args.new:
        seeds = [seed for seed in seeds if seed not in table.seeds]
    start = time.monotonic()
    for number, (case, outcome) in enumerate(judged((seeded(seed) for seed in seeds), args.workers)):
        seed = int(case.name.removeprefix("seed "))
        table.add(seed, outcome)
        if number % _SAVED_EVERY == 0 and not args.dry_run:
            write_table(table, PATH, summarized=False)
        if outcome.kind != "pass":
            print(f"{seed} {case.kind}: {outcome.kind}: {outcome.reason}", flush=True)
    print(f"{len(seeds)} graphs in {time.monotonic() - start:.0f} s: {dict(table.counts)}", file=sys.stderr)
    if not args.dry_run:
        write_table(table)
    return int(table.disagreements > 0)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tests.property.refresh", __doc__)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=5000, help="how many seeds")
    parser.add_argument("--new", action="store_true", help="only seeds that did not run before")
    parser.add_argument("--others", action="store_true", help="only seeds that did not pass before")
    return parser


if __name__ == "__main__":
    sys.exit(main())
