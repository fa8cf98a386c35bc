"""Looking into a compile on the command line: its stages as text and files, its passes as diffs, a page of both."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionError
from ...driver.stages.catalog import NAMES, STAGES
from ...runtime.files import write_text
from .common import Progress, model_of, print_result
from .options import compile_options

if TYPE_CHECKING:
    from ...inspection.diffs import PassChange
    from ...inspection.inspection import Inspection

_RESUMABLE = ", ".join(stage.name for stage in STAGES if stage.resumes)
_COLOURS = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}


def add_stage_arguments(parser: argparse.ArgumentParser) -> None:
    """What to look at, where to stop, and where to go on."""
    group = parser.add_argument_group(
        "looking inside",
        f"Stages: {', '.join(NAMES)}; --from goes on from {_RESUMABLE}. Stage files are Python: --from runs the file "
        "it is given, so go on only from files of your own.",
    )
    group.add_argument("--ir", choices=NAMES, metavar="STAGE", help="print this form of the model, and nothing else")
    group.add_argument("--dump-dir", metavar="FOLDER", help="write all stages to a folder, numbered; builds nothing")
    group.add_argument("--to", choices=NAMES, metavar="STAGE", help="stop at this stage, and write it to -o")
    group.add_argument("--html", metavar="FILE", help="write a page with all stages and what each pass changed")
    group.add_argument("--only", metavar="PASS", action="append", default=[], help="with -v or -vv: only this pass")


def only_inspects(args: argparse.Namespace) -> bool:
    """Whether nothing is to be built, only looked at.

    Raises:
        OptionError: options that do not go together.
    """
    asked = [name for name in ("ir", "dump_dir", "to", "html") if getattr(args, name)]
    if len(asked) > 1 or (asked and args.start):
        names = [f"--{name.replace('_', '-')}" for name in asked] + ["--from"] * bool(args.start)
        raise OptionError(f"{' and '.join(names)}: one at a time")
    if args.to and not args.output:
        raise OptionError(f"--to {args.to} without -o", fix=f"name the file to write; --ir {args.to} prints it")
    if args.output and asked and not args.to:
        raise OptionError(f"-o with --{asked[0].replace('_', '-')}, which builds nothing", fix="leave -o out")
    more = [name for name in ("verbose", "timing", "offload_report", "offload_timeline") if getattr(args, name)]
    if asked and more:
        wrong = f"--{more[0].replace('_', '-')} with --{asked[0].replace('_', '-')}"
        raise OptionError(f"{wrong}, which builds nothing", fix="one after the other")
    return bool(asked)


def inspect_only(args: argparse.Namespace) -> int:
    """Print or write what was asked for.

    Raises:
        OptionError: nothing is offloaded, and programs are asked for.
        ToolError: a file cannot be written.
    """
    if "program" in (args.ir, args.to) and not (args.option_offload or args.option_fallback):
        asked = f"--ir {args.ir}" if args.ir else f"--to {args.to}"
        raise OptionError(f"{asked} without --offload", fix="name a back end, such as --offload systolic")
    with Progress(f"compiling {args.model}") as progress:
        inspection = inspected(args, args.ir or args.to or "")
        if args.ir:
            progress.tell(f"printing {args.ir}")
            result: dict[str, Any] = {"stage": args.ir, "ir": inspection.stage(args.ir)}
        elif args.html:
            progress.tell("writing the page")
            write_text(args.html, inspection.html())
            result = {"files": [args.html]}
        else:
            progress.tell("writing stages and reading them back")
            paths = [inspection.write(args.to, args.output)] if args.to else inspection.dump(args.dump_dir)
            result = {**({"stage": args.to} if args.to else {}), "files": list(map(str, paths))}
    texts = [result["ir"].removesuffix("\n")] if args.ir else [f"wrote {path}" for path in result["files"]]
    return print_result(args, {"ok": True, "model": args.model, **result}, *texts)


def inspected(args: argparse.Namespace, to: str = "") -> Inspection:
    """The compile that the arguments ask for, looked at."""
    from ... import inspect

    options = {name: value for name, value in compile_options(args).items() if name != "cache"}
    return inspect(model_of(args.model), to=to, **options)


def print_changes(changes: tuple[PassChange, ...]) -> None:
    """What passes changed, coloured on a terminal."""
    for change in changes:
        print()
        for line in str(change).splitlines():
            colour = _COLOURS.get(line[:1]) if sys.stdout.isatty() else None
            print(f"{colour}{line}\033[0m" if colour else line)
        for kind, events in (("fired", change.fired), ("skipped", change.skipped)):
            for event in events:
                print(f"  {kind:7}  {event.value}: {event.detail}")
