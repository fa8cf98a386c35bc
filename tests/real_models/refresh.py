"""Runs the models and rewrites the committed table. Exit code 1 if anything got worse.

python -m tests.real_models.refresh [--only NAME ...] [--contenders ours stock] [--dry-run]
"""

import argparse
import sys
from collections.abc import Sequence

from tests.oracles.outcome import Outcome, is_worse
from tests.oracles.pool import outcomes
from tests.oracles.table import host, parser_of, versions

from .contenders import CONTENDERS, SERVICE
from .models import MODELS
from .table import Rows, read_table, write_table


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, write; 1 if anything got worse."""
    args = _parser().parse_args(argv)
    rows, worse = read_table(), 0
    tasks = [(contender, name) for name in args.only or MODELS for contender in args.contenders]
    for (contender, name), outcome in outcomes(SERVICE, tasks, args.workers):
        worse += _note(rows, contender, name, outcome)
    if not args.dry_run:
        ordered = {name: rows[name] for name in MODELS if name in rows}
        write_table(ordered, {name: _sizes(name) for name in ordered}, f"{host()}; {versions()}")
    return int(worse > 0)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tests.real_models.refresh", __doc__, workers=1)
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=[], help="these models")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    return parser


def _note(rows: Rows, contender: str, name: str, outcome: Outcome) -> bool:
    """Put a row into the table and print it; whether it is worse. What was not tested changes nothing."""
    row = {"outcome": str(outcome), **outcome.facts}
    print(f"{contender} {name}: {row}", flush=True)
    if outcome.kind == "not tested":
        return False
    before = rows.setdefault(name, {}).get(contender)
    rows[name][contender] = row
    return before is not None and is_worse(row["outcome"], before["outcome"])


def _sizes(name: str) -> str:
    """Shapes of the inputs that the row is about."""
    model = MODELS[name]
    return ", ".join("x".join(map(str, array.shape)) for array in model.inputs(model.sizes[0], 0).values())


if __name__ == "__main__":
    sys.exit(main())
