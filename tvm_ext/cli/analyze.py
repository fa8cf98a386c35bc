"""`tvm-ext analyze`: operators, work and parameters of a model, what is redundant in it, and what is unsupported."""

import argparse

from .shared.common import Progress, model_of, print_result
from .shared.options import add_compile_arguments, compile_options

EXAMPLE = """\
  tvm-ext analyze resnet18.onnx
  tvm-ext analyze zoo:bert --by node --top 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of the ONNX file, or zoo:NAME")
    parser.add_argument("--by", choices=("op", "node"), default="op", help="work of each operator, or of each node")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="rows of each table (default: all)")
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the analysis, for which no kernel is compiled; 3 if the model cannot be compiled."""
    from .. import analyze

    with Progress(f"analyzing {args.model}"):
        analysis = analyze(model_of(args.model), **compile_options(args))
    text = analysis.text(args.by, max(args.top, 0))
    return print_result(args, analysis.as_dict(), text, code=0 if analysis.ok else 3)
