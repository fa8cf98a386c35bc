"""Runs the cases, writes the table and docs/onnx_coverage.md.

    python -m tests.onnx_backend.refresh [--only OP|CASE ...] [--contenders ours]

Prints what changed. With --only, the other rows stay as they are.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence

from tests.oracles.outcome import is_worse, kind_of
from tests.oracles.pool import outcomes
from tests.oracles.table import parser_of

from .cases import Case, all_cases
from .contenders import CONTENDERS, SERVICE
from .coverage import write_coverage
from .table import Row, read_table, write_table


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print what changed, write; 1 if anything got worse."""
    args = _parser().parse_args(argv)
    cases, rows = all_cases(), read_table()
    chosen = [case for case in cases.values() if _wanted(case, args.only, rows)]
    tasks = [(contender, case) for contender in args.contenders for case in chosen]
    start, worse = time.monotonic(), 0
    for (contender, case), outcome in outcomes(dataclasses.replace(SERVICE, seconds=args.seconds), tasks, args.workers):
        worse += _note(rows, contender, case.name, str(outcome))
    order = {name: {c: rows[name][c] for c in CONTENDERS if c in rows[name]} for name in cases if name in rows}
    print(f"{len(tasks)} runs in {time.monotonic() - start:.0f} s, {worse} worse", file=sys.stderr)
    if not args.dry_run:
        write_table(order)
        write_coverage(order, cases)
    return int(worse > 0)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tests.onnx_backend.refresh", __doc__)
    parser.add_argument("--only", nargs="+", default=[], help="operators, cases, or kinds of outcome such as wrong")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=["ours"])
    parser.add_argument("--seconds", type=float, default=SERVICE.seconds, help="that a case may take")
    return parser


def _wanted(case: Case, only: Sequence[str], rows: dict[str, Row]) -> bool:
    kind = kind_of(rows.get(case.name, {}).get("ours", ""))
    return not only or bool({case.name, case.operator, kind} & set(only))


def _note(rows: dict[str, Row], contender: str, name: str, outcome: str) -> bool:
    """Put an outcome into the table; print it if its kind changed; whether it is worse."""
    row = rows.setdefault(name, {})
    before, row[contender] = row.get(contender), outcome
    if before is not None and kind_of(before) == kind_of(outcome):
        return False
    worse = before is not None and is_worse(outcome, before)
    print(f"{'WORSE ' if worse else ''}{contender} {name}: {before or 'new'} -> {outcome}", flush=True)
    return worse


if __name__ == "__main__":
    sys.exit(main())
