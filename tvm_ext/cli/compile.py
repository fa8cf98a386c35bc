"""`tvm-ext compile`: compile an ONNX model; with -o, write one file that runs without a compiler."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionError
from ..runtime.sizes.symbols import sizes_text
from ..runtime.table import Cell, Column, few, knobs_text, microseconds, percent
from .shared.common import Progress, compile_with_progress, model_of, print_json, spec_dicts, table_text, value_dicts
from .shared.options import add_compile_arguments, refuse_compile_options
from .shared.stages import add_stage_arguments, inspect_only, inspected, only_inspects, print_changes

if TYPE_CHECKING:
    from ..inspection.diffs import PassChange
    from ..runtime.model import CompiledModel

EXAMPLE = """\
  tvm-ext compile resnet18.onnx -o resnet18.so
  tvm-ext compile model.onnx --shape input=1,3,224,224 --threads 2 -v
  tvm-ext compile model.onnx --measure --measure-seconds 20
  tvm-ext compile zoo:resnet18 --offload systolic --offload-option when=always --offload-report
  tvm-ext compile decoder.onnx --state auto -o decoder.so
  tvm-ext compile model.onnx --ir grouped
  tvm-ext compile model.onnx -vv --only fold-batch-norm
  tvm-ext compile model.onnx --dump-dir stages && tvm-ext compile --from stages/04_layout.py -o model.so"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("model", metavar="MODEL", nargs="?", help="path of an ONNX file, or zoo:NAME")
    source.add_argument(
        "--from", dest="start", metavar="FILE", help="instead: a stage file to go on from, changed or not; it is run"
    )
    parser.add_argument("-o", "--output", metavar="OUT.so", help="write the artifact here, or with --to the stage")
    parser.add_argument(
        "-v", "--verbose", action="count", default=0,
        help="also print kernels and what passes did and did not do; -vv: each pass as a diff of what it changed",
    )  # fmt: skip
    parser.add_argument("--timing", action="store_true", help="also print where the time of the compile went")
    parser.add_argument("--offload-report", action="store_true", help="also print which node runs where, and why")
    parser.add_argument(
        "--offload-timeline", metavar="FILE",
        help="also write two runs whose regions are asynchronous, as estimated, for ui.perfetto.dev",
    )  # fmt: skip
    add_stage_arguments(parser)
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compile, export, print; or look inside.

    Raises:
        OptionError: options that do not go together.
    """
    _check(args)
    if only_inspects(args):
        return inspect_only(args)
    compiled = _resumed(args) if args.start else compile_with_progress(args, model_of(args.model))
    changes = _changes(args)
    if args.output:
        compiled.export(args.output)
    if args.offload_timeline:
        compiled.offload_report().timeline(args.offload_timeline)
    result = {
        "ok": True, "model": args.model or args.start, "threads": compiled.threads, "artifact": args.output,
        "inputs": spec_dicts(compiled.inputs), "outputs": spec_dicts(compiled.outputs), "state": compiled.state,
        "arguments": value_dicts(compiled.arguments), "results": value_dicts(compiled.results),
        "report": compiled.report,
        **({"changes": [change.as_dict() for change in changes]} if changes else {}),
    }  # fmt: skip
    if args.json:
        print_json(result)
        return 0
    _print(result, args)
    print_changes(changes)
    if args.timing:
        print()
        _print_timing(compiled.report)
    if args.offload_report:
        print(f"\n{compiled.offload_report()}")
    return 0


def _check(args: argparse.Namespace) -> None:
    asked = [name for name in ("--offload-report", "--offload-timeline") if getattr(args, name[2:].replace("-", "_"))]
    if asked and not (args.option_offload or args.option_fallback or args.start):
        fix = "name a back end, such as --offload systolic, or --fallback onnxruntime"
        raise OptionError(f"{asked[0]} without --offload", fix=fix)
    if args.only and not args.verbose:
        raise OptionError("--only without -v or -vv", fix="-vv --only PASS shows what the pass changed")
    if args.start and args.verbose > 1:
        raise OptionError("-vv with --from: diffs are of a whole compile", fix="give the model, or -v")
    if args.start:
        refuse_compile_options(args, f"--from {args.start}")


def _resumed(args: argparse.Namespace) -> CompiledModel:
    from .. import resume

    with Progress(f"compiling from {args.start}"):
        return resume(args.start)


def _changes(args: argparse.Namespace) -> tuple[PassChange, ...]:
    """What each pass changed, for -vv."""
    if args.verbose < 2:
        return ()
    with Progress(f"comparing the passes of {args.model}"):
        return inspected(args).changes_of(args.only)


def _print(result: dict[str, Any], args: argparse.Namespace) -> None:
    report, states = result["report"], result["state"]
    print(f"{result['model']}, {result['threads']} threads")
    roles = {"inputs": {taken: f"state, {output} of the call before" for output, taken in states.items()},
             "outputs": {output: f"state, {taken} of the next call" for output, taken in states.items()}}  # fmt: skip
    for kind, of in roles.items():
        for spec in result[kind]:
            role = f" ({of[spec['name']]})" if spec["name"] in of else ""
            print(f"  {kind[:-1]:6}  {spec['name']}: {spec['dtype']} {tuple(spec['shape'])}{role}")
    for kind, side in (("input", "arguments"), ("output", "results")):
        for value in result[side]:
            print(f"  {kind:6}  {value['name']}: {value['type']}, {', '.join(value['tensors']) or value['kind']}")
    kernels = report.get("kernels", [])
    print(f"{len(kernels)} kernels, {report.get('launches')} launches per inference")
    for program in report.get("programs", [report] if "bytes_moved" in report else []):
        print(_facts(program))
    print(table_text(("recipe", "kernels", "launches"), _by_recipe(kernels)))
    _print_choices(kernels)
    if "precision" in report:
        _print_precision(report["precision"], bool(args.verbose))
    if args.verbose:
        _print_details(report, args)
    if seconds := report.get("timing"):
        print("seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in seconds.items()))
    for warning in report.get("warnings", []):
        print(f"warning: {warning}")
    if result["artifact"]:
        print(f"wrote {result['artifact']}")


def _print_precision(plan: dict[str, Any], every: bool) -> None:
    """Which products keep float32, and why; or what each one has."""
    layers = plan["layers"]
    kept = [layer for layer in layers if layer["precision"] == "float32"]
    measured = "" if plan["measured"] is None else f", {100 * plan['measured']:.2g} % of the range as measured"
    print(f"{plan['precision']}: {len(layers) - len(kept)} of {len(layers)} products{measured}")
    for layer in layers if every else kept:
        print(f"  {layer['precision']:7}  {layer['operator']}: {', '.join(layer['nodes'][:3])}: {layer['why']}")


def _facts(program: dict[str, Any]) -> str:
    """What one program does in a run and holds."""
    which = f"batch {program['batch']}" if program.get("batch") else sizes_text(program.get("sizes", {})) or "any size"
    head = f"{which}: {program['launches']} launches, " if "batch" in program else ""
    parts = (
        ("bytes_moved", "moved by kernels"),
        ("activation_bytes", "of activations"),
        ("weight_bytes", "of weights"),
    )
    return head + ", ".join(f"{program[key] / 1e6:.1f} MB {what}" for key, what in parts)


def _by_recipe(kernels: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    recipes = dict.fromkeys(k["recipe"] for k in kernels)
    groups = {r: [k for k in kernels if k["recipe"] == r] for r in recipes}
    return [(r, len(members), sum(k.get("calls", 1) for k in members)) for r, members in groups.items()]


def _print_details(report: dict[str, Any], args: argparse.Namespace) -> None:
    print()
    print(table_text(("kernel", "recipe", "calls", "config", "nodes"), map(_kernel_cells, report.get("kernels", []))))
    print()
    for row in report.get("passes", []):
        if args.verbose > 1 or (args.only and row["name"] not in args.only):
            continue  # with its diff, below
        print(f"pass {row['name']}: {len(row['fired'])} fired, {len(row['skipped'])} skipped, {row['seconds']:.3f} s")
        for kind in ("fired", "skipped"):
            for value, detail in row[kind]:
                print(f"  {kind:7}  {value}: {detail}")


def _kernel_cells(kernel: dict[str, Any]) -> tuple[object, ...]:
    config, nodes = knobs_text(kernel.get("config") or {}), few(list(kernel.get("nodes", [])))
    return kernel["name"], kernel["recipe"], kernel.get("calls", 1), config, nodes


def _print_choices(kernels: Sequence[Mapping[str, Any]]) -> None:
    """One row a kernel of which there was something to measure; nothing if there is none."""
    rows = [_choice_cells(kernel) for kernel in kernels if kernel.get("choice", {}).get("candidates")]
    if rows:
        print(table_text(("kernel", "chosen", "measured", "default", "estimate", "candidates", "why"), rows))


def _choice_cells(kernel: Mapping[str, Any]) -> tuple[str, ...]:
    choice = kernel["choice"]
    return (
        kernel["name"], f"{kernel['recipe']} by {choice['by']}", microseconds(choice.get("seconds")),
        microseconds(choice.get("default_seconds")), f"{kernel['estimated_us']:.1f} us",
        f"measured {choice['measured']} of {choice['candidates']}", choice["reason"],
    )  # fmt: skip


def _print_timing(report: Mapping[str, Any]) -> None:
    """A row a step, in the order they ran.

    Args:
        report: of a compiled model; one from the cache has the times of the compile that made it.
    """
    rows = list(_steps(report))
    total = sum(seconds for _, seconds, _ in rows) or 1.0
    longest = max((seconds for _, seconds, _ in rows), default=0.0) or 1.0
    columns = ("step", Column("time", "s", ".3f"), Column("share", right=True, bar=30), "fired", "skipped")
    cells = [
        (name, seconds, Cell(percent(seconds / total, 1), share=seconds / longest), *events)
        for name, seconds, events in rows
    ]
    print(table_text(columns, [*cells, ("all", total, "", "", "")]))


def _steps(report: Mapping[str, Any]) -> Iterator[tuple[str, float, tuple[object, object]]]:
    """Name, seconds, and what fired and was skipped; passes in the place of their sum."""
    none = ("", "")
    for stage, seconds in report.get("timing", {}).items():
        if stage != "passes":
            yield stage, seconds, none
            continue
        passes = report.get("passes", [])
        for number, step in enumerate(passes, start=1):
            yield f"{number:2} {step['name']}", step["seconds"], (len(step["fired"]), len(step["skipped"]))
        rest = seconds - sum(step["seconds"] for step in passes)
        if rest > 0:
            yield "between passes", rest, none
