"""`tvm-ext verify`: compare a compiled model with onnxruntime, output by output."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .common import Progress, add_compile_arguments, add_input_arguments, given_inputs, model_of, print_json
from .run import opened

if TYPE_CHECKING:
    from ..verification.verify import VerifyReport

SUMMARY = "compare a model, compiled here or exported before, with onnxruntime"
EXAMPLE = """\
  tvm-ext verify resnet18.onnx
  tvm-ext verify resnet18.onnx --artifact resnet18.so --seed 0 1 2"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of the ONNX file, or zoo:NAME")
    parser.add_argument("--artifact", metavar="FILE.so", help="check this artifact instead of compiling the model")
    add_input_arguments(parser)
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="one check for each seed (default: 0)")
    parser.add_argument(
        "--tolerance", type=float, metavar="PART",
        help="largest error of the output's range (default: by dtype; 1e-5 for float32)",
    )  # fmt: skip
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Check for every seed (or once, on given inputs); 1 if any output disagrees."""
    given, model = given_inputs(args), model_of(args.model)
    compiled = opened(argparse.Namespace(**{**vars(args), "model": args.artifact or args.model}))
    reports = [_report(args, compiled, model, given, seed) for seed in (args.seed if given is None else [0])]
    good = all(report.ok for report in reports)
    if args.json:
        print_json({"ok": good, "model": args.model, "reports": [report.as_dict() for report in reports]})
    else:
        print("\n\n".join(str(report) for report in reports))
    return 0 if good else 1


def _report(args: argparse.Namespace, compiled: object, model: object, given: object, seed: int) -> VerifyReport:
    from .. import verify

    with Progress("comparing with onnxruntime"):
        return verify(compiled, model, given, seed=seed, tolerance=args.tolerance)  # type: ignore[arg-type]
