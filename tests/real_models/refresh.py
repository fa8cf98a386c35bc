"""Runs the models and rewrites the committed table. Exit code 1 if anything got worse.

python -m tests.real_models.refresh [--only NAME ...] [--contenders ours stock] [--dry-run]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tvm_ext.verification.environment import describe_machine

from ..onnx_backend.pool import outcomes
from ..onnx_backend.table import is_worse
from .contenders import CONTENDERS
from .models import MODELS
from .table import Rows, read_table, write_table

SECONDS = 600.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, write; 1 if anything got worse."""
    args = _parser().parse_args(argv)
    rows, worse = read_table(), 0
    tasks = [(contender, name) for name in args.only or MODELS for contender in args.contenders]
    for (contender, name), line in outcomes(tasks, 1, SECONDS, module="tests.real_models.worker"):
        worse += _note(rows, contender, name, line)
    if not args.dry_run:
        ordered = {name: rows[name] for name in MODELS if name in rows}
        write_table(ordered, {name: _sizes(name) for name in ordered}, _machine())
    return int(worse > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.real_models.refresh", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=[], help="these models")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    return parser


def _note(rows: Rows, contender: str, name: str, line: str) -> bool:
    """Put a row into the table and print it; whether it is worse. What was not tested changes nothing."""
    found = json.loads(line) if line.startswith("{") else {"outcome": line}
    print(f"{contender} {name}: {found}", flush=True)
    if found["outcome"].startswith("not tested"):
        return False
    before = rows.setdefault(name, {}).get(contender)
    rows[name][contender] = found
    return before is not None and is_worse(found["outcome"], before["outcome"])


def _sizes(name: str) -> str:
    """Shapes of the inputs that the row is about."""
    model = MODELS[name]
    return ", ".join("x".join(map(str, array.shape)) for array in model.inputs(model.sizes[0], 0).values())


def _machine() -> str:
    machine = describe_machine()
    versions = ", ".join(f"{name} {machine['packages'][name]}" for name in ("onnx", "onnxruntime", "apache-tvm"))
    return f"{machine['cpu']}, {machine['cores']} cores; {versions}"


if __name__ == "__main__":
    sys.exit(main())
