"""`tvm-ext profile`: time every kernel of a model, against what this machine can do; compare two profiles."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..core.errors import OptionError
from .shared.common import Progress, add_input_arguments, given_inputs, measure_with_progress, model_of, print_result
from .shared.options import add_compile_arguments, compile_options

if TYPE_CHECKING:
    from ..inspection.profile import Profile

EXAMPLE = """\
  tvm-ext profile resnet18.onnx
  tvm-ext profile zoo:resnet18 --group-by recipe --trace trace.json --roofline roofline.svg -o before.json
  tvm-ext profile bert.onnx --size N=3,S=37
  tvm-ext profile resnet18.onnx --machine cluster64-xeon --estimate
  tvm-ext profile --compare before.json after.json --fail-on-regress 5"""
GROUPINGS = ("launch", "kernel", "node", "recipe")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="path of an ONNX file or of an artifact, or zoo:NAME")
    parser.add_argument(
        "--compare", nargs=2, metavar=("BEFORE.json", "AFTER.json"), help="compare two profiles instead of making one"
    )
    parser.add_argument(
        "--fail-on-regress", type=float, metavar="PCT",
        help="with --compare: exit code 1 if something is slower by more than so many percent, beyond the noise",
    )  # fmt: skip
    parser.add_argument(
        "--estimate", action="store_true",
        help="run nothing: estimated time, threads, rounding and idle threads by kernel, such as of --machine NAME",
    )  # fmt: skip
    parser.add_argument("--group-by", choices=GROUPINGS, default="launch", help="rows (default: launch, in order)")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="only the N rows that take longest")
    parser.add_argument("-v", "--verbose", action="store_true", help="also configuration, record and machine code")
    parser.add_argument("-o", "--output", metavar="OUT.json", help="write the profile here, for --compare")
    parser.add_argument("--trace", metavar="OUT.json", help="write a trace for chrome://tracing and ui.perfetto.dev")
    parser.add_argument("--trace-runs", type=int, default=1, metavar="N", help="runs in the trace (default: 1)")
    parser.add_argument(
        "--roofline", metavar="OUT.svg|OUT.png|-", help="write the roofline here; - prints it as text (PNG: matplotlib)"
    )
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.1, help="time of each side in a round (default: 0.1)")
    parser.add_argument("--batch", type=int, metavar="N", help="rows of a symbolic batch (default: its largest size)")
    parser.add_argument("--no-code", action="store_true", help="no facts of the machine code: quicker, by the cache")
    add_input_arguments(parser, sizes="those of --input, else the largest; operations and bytes are known of it alone")
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Profile, estimate or compare, and print; 1 if --fail-on-regress found something.

    Raises:
        OptionError: neither a model nor --compare, or both.
    """
    if (args.model is None) == (args.compare is None):
        fix = "tvm-ext profile MODEL, or tvm-ext profile --compare BEFORE.json AFTER.json"
        raise OptionError("give a model, or --compare with two profiles", fix=fix)
    if args.compare:
        return _compare(args)
    if args.fail_on_regress is not None:
        raise OptionError("--fail-on-regress without --compare", fix="make two profiles with -o, then compare them")
    if args.estimate:
        return _estimate(args)
    if args.top < 0:
        raise OptionError(f"--top {args.top}: 0 for all, or more")
    profile = _profile(args)
    if args.output:
        profile.save(args.output)
    if args.trace:
        profile.trace(args.trace, args.trace_runs)
    line = profile.roofline(args.group_by) if args.roofline else None
    if line is not None and args.roofline != "-":
        line.save(args.roofline)
    from ..inspection.profile import profile_text

    rows = [row.as_dict() for row in profile.rows(args.group_by, args.top)]
    plain = profile.as_dict()
    del plain["timelines"]  # -o and --trace have them
    values = {"ok": True, **plain, "group_by": args.group_by, "rows": rows}
    table = profile_text(profile, args.group_by, args.top, args.verbose)
    picture = f"\n{line}" if args.roofline == "-" else ""
    written = [path for path in (args.output, args.trace, args.roofline) if path and path != "-"]
    return print_result(args, values, table, picture, *(f"wrote {path}" for path in written))


def _estimate(args: argparse.Namespace) -> int:
    """Print what a compile expects.

    Raises:
        OptionError: with an argument of a measurement, of which there is none.
    """
    from .. import estimate

    files = {
        "--output": args.output, "--trace": args.trace, "--roofline": args.roofline, "--input": args.input,
        "--size": args.sizes,
    }  # fmt: skip
    if useless := [name for name, value in files.items() if value]:
        raise OptionError(f"--estimate runs nothing: no use for {', '.join(useless)}", fix="leave out one of both")
    with Progress(f"estimating {args.model}"):
        estimated = estimate(model_of(args.model), **compile_options(args))
    return print_result(args, {"ok": True, **estimated.as_dict()}, estimated)


def _profile(args: argparse.Namespace) -> Profile:
    from .. import profile

    inputs = given_inputs(args)
    model, options = model_of(args.model), compile_options(args)
    with Progress(f"profiling {args.model}") as progress:
        measure_with_progress(args, model, progress)
        return profile(
            model, inputs, rounds=args.rounds, seconds=args.seconds,
            batch=args.batch, sizes=args.sizes, seed=args.seed, code=not args.no_code, **options,
        )  # fmt: skip


def _compare(args: argparse.Namespace) -> int:
    from ..inspection.profile import Profile

    before, after = (Profile.load(path) for path in args.compare)
    comparison = before.compare(after)
    percent = args.fail_on_regress
    regressed = comparison.regressions(percent) if percent is not None else ()
    rows = [change.as_dict() for change in regressed]
    values = {"ok": not regressed, **comparison.as_dict(), "regressions": rows}
    lines = []
    if percent is not None:
        lines = [f"\n{len(regressed)} slower by more than {percent:g} %, beyond the noise" + ":" * bool(regressed)]
    for change in regressed:
        nodes = f" ({', '.join(change.nodes)})" if change.nodes else ""
        lines.append(f"  {change.label}{nodes}: {change.ratio:.3f} of before")
    return print_result(args, values, comparison, *lines, code=1 if regressed else 0)
