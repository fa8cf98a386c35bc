"""`tvm-ext memory`: memory plan of a model: arena, lower bound, what lives when; of symbolic sizes, at their bounds."""

import argparse

from ..runtime.files import write_text
from .shared.common import compile_with_progress, model_of, print_result
from .shared.options import add_compile_arguments

EXAMPLE = """\
  tvm-ext memory resnet18.onnx
  tvm-ext memory zoo:mobilenet_v2 --svg arena.svg"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of the ONNX file, or zoo:NAME")
    parser.add_argument(
        "--batch", type=int, default=0, metavar="N", help="program of a symbolic batch (default: largest)"
    )
    parser.add_argument("--svg", metavar="FILE", help="also write a picture of the arena")
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compile, and print what the model works in, what lives when, and where it lies."""
    from .. import memory_plan

    plan = memory_plan(compile_with_progress(args, model_of(args.model)), batch=args.batch)
    if args.svg:
        write_text(args.svg, plan.svg())
    return print_result(args, plan.as_dict(), plan, f"wrote {args.svg}" if args.svg else "")
