"""`tvm-ext report`: write one self-contained page: what a model holds, what became of it, how right and fast it is."""

import argparse

from .shared.common import Progress, add_input_arguments, given_inputs, model_of, print_result
from .shared.options import add_compile_arguments, compile_options

EXAMPLE = """\
  tvm-ext report resnet18.onnx -o report.html
  tvm-ext report zoo:mlp -o mlp.html --no-profile"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of the ONNX file, or zoo:NAME")
    parser.add_argument("-o", "--output", metavar="FILE.html", required=True, help="page to write")
    parser.add_argument("--no-check", action="store_true", help="leave out the comparison with onnxruntime")
    parser.add_argument("--no-profile", action="store_true", help="leave out the times")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="of the profile (default: 7)")
    add_input_arguments(parser)
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and print its summary; 1 if a value disagrees or a part could not be made."""
    from .. import report

    with Progress(f"{args.model}: reading") as progress:
        result = report(
            model_of(args.model), args.output, given_inputs(args), check=not args.no_check,
            profile=not args.no_profile, rounds=args.rounds, seed=args.seed,
            on_step=lambda step: progress.tell(f"{args.model}: {step}"), **compile_options(args),
        )  # fmt: skip
    return print_result(args, result.as_dict(), result, code=0 if result.ok else 1)
