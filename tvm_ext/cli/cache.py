"""`tvm-ext cache`: list or empty the on-disk cache of compiled models."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from ..core.errors import ToolError
from ..runtime.table import Column
from .shared.common import print_result, table_text

if TYPE_CHECKING:
    from ..driver.cache import Cache, Entry

EXAMPLE = """\
  tvm-ext cache ls
  tvm-ext cache clear"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("action", choices=("ls", "clear"), help="list the entries, last used first, or remove them all")


def run(args: argparse.Namespace) -> int:
    """List or clear."""
    from ..driver.cache import Cache

    return (_list if args.action == "ls" else _clear)(args, Cache())


def _list(args: argparse.Namespace, cache: Cache) -> int:
    entries = cache.ls()
    timings = cache.timings()
    total = sum(entry.size for entry in entries)
    rows = [{"key": e.key, "model": e.model, "bytes": e.size, "last_use": e.last_use} for e in entries]
    values = {
        "ok": True, "folder": str(cache.folder), "bytes": total, "limit": cache.limit, "entries": rows,
        "timings": [str(path) for path in timings],
    }  # fmt: skip
    table = table_text(("key", "model", Column("size", "MB", right=True), "last use"), map(_cells, entries))
    sums = f"{cache.folder}: {len(entries)} entries, {total / 1e6:.1f} MB of at most {cache.limit / 1e6:.0f}"
    times = [f"times of this machine or of others: {path}" for path in timings]
    return print_result(args, values, table if entries else "", sums, *times)


def _clear(args: argparse.Namespace, cache: Cache) -> int:
    try:
        removed = cache.clear()
    except OSError as error:
        raise ToolError(f"{cache.folder} cannot be emptied ({error})", fix="check its permissions") from error
    values = {"ok": True, "folder": str(cache.folder), "removed": removed}
    return print_result(args, values, f"{cache.folder}: removed {removed} entries")


def _cells(entry: Entry) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_use))
    return entry.key[:12], entry.model or "(damaged)", f"{entry.size / 1e6:.1f}", when
