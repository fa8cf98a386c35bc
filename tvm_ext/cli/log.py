"""`tvm-ext log`: list, show, merge, prune and check logs of tuning."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionError
from ..runtime.table import knobs_text, microseconds, plain_named
from .shared.common import print_result, table_text
from .shared.options import add_options, compile_options

if TYPE_CHECKING:
    from ..core.records.record import Record
    from ..core.records.record_book import RecordBook
    from ..tuning.log import Rewritten
    from ..tuning.summary import TaskSummary

EXAMPLE = """\
  tvm-ext log ls resnet18.tuning.json                       tasks: rows, best time, sessions
  tvm-ext log show resnet18.tuning.json --task conv2d       every row of some tasks, fastest first
  tvm-ext log best resnet18.tuning.json                     what a compile here would use, and why not the rest
  tvm-ext log merge monday.json tuesday.json -o both.json   every row once, in order of time
  tvm-ext log prune both.json --keep 3 -o small.json        the fastest of each task, and what verdicts name
  tvm-ext log validate small.json                           exits 1 if a line is no record, and names it

merge and prune write beside the output and rename: it appears whole or not at all. Without -o prune rewrites the
log itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument("files", metavar="FILE", nargs="+", help="logs; prune takes one")
    parser.add_argument("--task", metavar="TEXT", help="show: only tasks whose name, key or recipe contains this")
    parser.add_argument("--keep", metavar="N", type=int, help="prune: records of each task and machine (default: 3)")
    parser.add_argument("-o", "--output", metavar="FILE", help="merge, prune: the log to write")
    add_options(parser.add_argument_group("best, for another machine"), ("threads", "target"))


def run(args: argparse.Namespace) -> int:
    """Do what the action says; 1 if `validate` found a bad line."""
    action, takes = _ACTIONS[args.action]
    for name in ("task", "keep", "output", "option_threads", "option_target"):
        if getattr(args, name) is not None and name not in takes:
            option = name.removeprefix("option_")
            raise OptionError(f"log {args.action}: --{option} is no option of it", fix="tvm-ext log --help")
    return action(args)


# ------------------------------------------------------------------------------------------------ reading
def _ls(args: argparse.Namespace) -> int:
    from ..tuning.summary import summaries

    book = _read(args)
    tasks = summaries(book)
    values = {"ok": True, **_counts(book), "tasks": [_task_dict(summary) for summary in tasks]}
    columns = ("task", "rows", "failed", "best", "of recipe", "sessions", "verdict")
    count = f"{len(tasks)} tasks, {len(book.records)} records, {len(book.verdicts)} verdicts"
    return print_result(args, values, table_text(columns, map(_task_cells, tasks)) if tasks else "", count)


def _show(args: argparse.Namespace) -> int:
    from ..tuning.summary import summaries

    book = _read(args)
    tasks = summaries(book, args.task or "")
    if not tasks:
        names = "; ".join(_plain(summary.task.short) for summary in summaries(book)) or "none"
        raise OptionError(f"--task {args.task!r}: no task of these logs contains it", fix=f"tasks: {names}")
    rows = [{**_task_dict(summary), "records": [_record_dict(r) for r in _ordered(summary)]} for summary in tasks]
    columns = ("time", "recipe", "configuration", "", "session", "when")
    tables = [(_plain(s.task.short), table_text(columns, map(_record_cells, _ordered(s)))) for s in tasks]
    return print_result(args, {"ok": True, **_counts(book), "tasks": rows}, *(text for pair in tables for text in pair))


def _best(args: argparse.Namespace) -> int:
    from ..core.machine import Machine
    from ..tuning.summary import choices

    machine = Machine.detect(**compile_options(args))
    book = _read(args)
    chosen = choices(book, machine)
    here = f"{machine.isa} ({machine.mcpu}), {machine.threads} threads"
    rows, lines = [], []
    for task, choice in chosen:
        record = _record_dict(choice.record) if choice.record else None
        reasons = list(choice.reasons)
        rows.append({"task": task.short, "op": task.op, "args": task.args, "record": record, "refused": reasons})
        lines += [_plain(task.short), f"  {_plain(_chosen(choice.record))}"]
        lines += [f"  not used: {_plain(reason, 200)}" for reason in reasons]
    count = f"{sum(c.record is not None for _, c in chosen)} of {len(chosen)} tasks have a record for {here}"
    return print_result(args, {"ok": True, "machine": machine.as_dict(), "tasks": rows}, *lines, count)


def _validate(args: argparse.Namespace) -> int:
    from ..core.records.record_book import RecordBook

    book = RecordBook.read(args.files)
    bad = [{"path": p.path, "line": p.line, "reason": p.reason} for p in book.problems]
    lines = [_plain(str(problem), 400) for problem in book.problems]
    count = f"{len(book.records)} records, {len(book.verdicts)} verdicts, {len(book.problems)} bad lines"
    return print_result(args, {"ok": not bad, **_counts(book), "bad": bad}, *lines, count, code=1 if bad else 0)


# ------------------------------------------------------------------------------------------------ writing
def _merge(args: argparse.Namespace) -> int:
    from ..tuning.log import merge

    if args.output is None:
        raise OptionError("log merge: no output", fix="name the log to write by -o FILE; it may be one of those merged")
    return _rewritten(args, args.output, merge(args.files, args.output))


def _prune(args: argparse.Namespace) -> int:
    from ..tuning.log import prune

    if len(args.files) > 1:
        raise OptionError("log prune: takes one log", fix="merge them first: tvm-ext log merge A B -o C")
    keep = 3 if args.keep is None else args.keep
    return _rewritten(args, args.output or args.files[0], prune(args.files[0], keep, args.output))


def _rewritten(args: argparse.Namespace, output: str, done: Rewritten) -> int:
    values = {
        "ok": True, "output": output, "records": {"read": done.records[0], "written": done.records[1]},
        "verdicts": {"read": done.verdicts[0], "written": done.verdicts[1]}, "left_out": list(done.problems),
    }  # fmt: skip
    return print_result(args, values, f"{output}: " + "\n".join(_plain(line, 400) for line in str(done).split("\n")))


_ACTIONS: Mapping[str, tuple[Callable[[argparse.Namespace], int], tuple[str, ...]]] = {
    "ls": (_ls, ()), "show": (_show, ("task",)), "best": (_best, ("option_threads", "option_target")),
    "merge": (_merge, ("output",)), "prune": (_prune, ("keep", "output")), "validate": (_validate, ()),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------ what is printed
def _read(args: argparse.Namespace) -> RecordBook:
    from ..core.records.record_book import RecordBook

    book = RecordBook.read(args.files)
    if book.problems:
        more = f"{len(book.problems)} lines are no records and left out, the first: {book.problems[0]}"
        print(_plain(f"warning: {more}", 400), file=sys.stderr)
    return book


def _counts(book: RecordBook) -> dict[str, int]:
    return {"records": len(book.records), "verdicts": len(book.verdicts), "bad_lines": len(book.problems)}


def _plain(text: str, most: int = 110) -> str:
    """Text from a log as a terminal may see it: on one line, without control characters, not endless."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: most + 1])
    return shown if len(text) <= most else shown[:most] + "..."


def _ordered(summary: TaskSummary) -> list[Record]:
    """Fastest first, what was stopped early and what failed at the end."""
    return sorted(summary.records, key=lambda r: (bool(r.error), r.discarded, r.cost))


def _chosen(record: Record | None) -> str:
    if record is None:
        return "the default"
    what = f"{microseconds(record.cost)} {record.recipe} {knobs_text(record.config)}"
    return f"{what} of session {record.session or '(none)'}"


def _task_cells(summary: TaskSummary) -> tuple[object, ...]:
    best, verdict = summary.best, summary.verdict
    decided = "" if verdict is None else f"use {verdict.recipe}" if verdict.recipe else "default"
    return (
        _plain(summary.task.short), len(summary.records), summary.failed or "", microseconds(best.cost) if best else "",
        _plain(best.recipe) if best else "", len(summary.sessions), _plain(decided),
    )  # fmt: skip


def _record_cells(record: Record) -> tuple[str, ...]:
    state = record.error or ("discarded" if record.discarded else "")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(min(max(record.timestamp, 0), 2**37)))
    cells = (_plain(record.recipe), _plain(knobs_text(record.config)), state, _plain(record.session), when)
    return microseconds(record.cost), *cells


def _task_dict(summary: TaskSummary) -> dict[str, Any]:
    best, verdict = summary.best, summary.verdict
    decided = {"recipe": verdict.recipe, "config": verdict.config, "reason": verdict.reason} if verdict else None
    return {
        "task": summary.task.short, "op": summary.task.op, "args": summary.task.args, "rows": len(summary.records),
        "failed": summary.failed, "best": _record_dict(best) if best else None, "sessions": list(summary.sessions),
        "verdict": decided,
    }  # fmt: skip


def _record_dict(record: Record) -> dict[str, Any]:
    names = ("recipe", "version", "config", "costs", "error", "detail", "check", "discarded", "machine", "session")
    fields = plain_named(record, *names, "timestamp")
    return {**fields, "seconds": record.cost if record.costs else None}
