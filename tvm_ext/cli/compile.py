"""`tvm-ext compile`: compile a model, say what was done, and write the artifact if asked."""

from __future__ import annotations

import argparse
from typing import Any

from ..core.errors import OptionError
from .common import add_compile_arguments, compile_with_progress, model_of, print_json, print_table, spec_dicts
from .offload import program_texts

SUMMARY = "compile an ONNX model; with -o, write one file that runs without a compiler"
EXAMPLE = """\
  tvm-ext compile resnet18.onnx -o resnet18.so
  tvm-ext compile model.onnx --shape input=1,3,224,224 --threads 2 -v
  tvm-ext compile zoo:resnet18 --offload systolic --offload-option when=always --offload-report"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or zoo:NAME")
    parser.add_argument("-o", "--output", metavar="OUT.so", help="write the artifact here")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print kernels and what passes did")
    parser.add_argument("--offload-report", action="store_true", help="also print which node runs where, and why")
    parser.add_argument(
        "--ir", choices=("program",), help="also print this form of the model: the programs of its offloaded regions"
    )
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compile, export, print.

    Raises:
        OptionError: --offload-report or --ir program, and nothing is offloaded.
    """
    if (args.offload_report or args.ir) and not args.offload:
        asked = "--offload-report" if args.offload_report else f"--ir {args.ir}"
        raise OptionError(f"{asked} without --offload", fix="name a back end, such as --offload systolic")
    compiled = compile_with_progress(args, model_of(args.model))
    programs = program_texts(compiled) if args.ir else {}
    if args.output:
        compiled.export(args.output)
    result = {
        "ok": True, "model": args.model, "threads": compiled.threads, "artifact": args.output,
        "inputs": spec_dicts(compiled.inputs), "outputs": spec_dicts(compiled.outputs), "report": compiled.report,
        **({"ir": programs} if args.ir else {}),
    }  # fmt: skip
    if args.json:
        print_json(result)
        return 0
    _print(result, args.verbose)
    if args.offload_report:
        print(f"\n{compiled.offload_report()}")
    for region, text in programs.items():
        print(f"\nprogram of {region}\n{text}")
    return 0


def _print(result: dict[str, Any], verbose: bool) -> None:
    report = result["report"]
    print(f"{result['model']}, {result['threads']} threads")
    for kind in ("inputs", "outputs"):
        for spec in result[kind]:
            print(f"  {kind[:-1]:6}  {spec['name']}: {spec['dtype']} {tuple(spec['shape'])}")
    kernels = report.get("kernels", [])
    print(f"{len(kernels)} kernels, {report.get('launches')} launches per inference")
    for program in report.get("programs", [report] if "bytes_moved" in report else []):
        print(_facts(program))
    print_table([("recipe", "kernels", "launches"), *_by_recipe(kernels)])
    if verbose:
        _print_details(report)
    if seconds := report.get("timing"):
        print("seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in seconds.items()))
    for warning in report.get("warnings", []):
        print(f"warning: {warning}")
    if result["artifact"]:
        print(f"wrote {result['artifact']}")


def _facts(program: dict[str, Any]) -> str:
    """What one program does in a run and holds."""
    batch = f"batch {program['batch']}: {program['launches']} launches, " if "batch" in program else ""
    parts = (
        ("bytes_moved", "moved by kernels"),
        ("activation_bytes", "of activations"),
        ("weight_bytes", "of weights"),
    )
    return batch + ", ".join(f"{program[key] / 1e6:.1f} MB {what}" for key, what in parts)


def _by_recipe(kernels: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    recipes = dict.fromkeys(k["recipe"] for k in kernels)
    groups = {r: [k for k in kernels if k["recipe"] == r] for r in recipes}
    return [(r, len(found), sum(k.get("calls", 1) for k in found)) for r, found in groups.items()]


def _print_details(report: dict[str, Any]) -> None:
    print()
    print_table([("kernel", "recipe", "calls", "config", "nodes"), *map(_kernel_cells, report.get("kernels", []))])
    print()
    for one in report.get("passes", []):
        print(f"pass {one['name']}: {len(one['fired'])} fired, {len(one['skipped'])} skipped, {one['seconds']:.3f} s")
        for kind in ("fired", "skipped"):
            for value, detail in one[kind]:
                print(f"  {kind:7}  {value}: {detail}")


def _kernel_cells(kernel: dict[str, Any]) -> tuple[object, ...]:
    nodes = list(kernel.get("nodes", []))
    shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    return kernel["name"], kernel["recipe"], kernel.get("calls", 1), _config_text(kernel.get("config")), shown


def _config_text(config: Any) -> str:
    if isinstance(config, dict):
        return " ".join(f"{key}={value}" for key, value in config.items())
    return "" if config is None else str(config)
