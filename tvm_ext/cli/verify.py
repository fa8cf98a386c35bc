"""`tvm-ext verify`: compare a model, compiled here or exported before, with onnxruntime; also layer by layer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionError
from ..core.instruments import KINDS, Instruments
from .run import opened
from .shared.common import Progress, add_input_arguments, add_tolerance_argument, given_inputs, model_of, print_result
from .shared.options import add_compile_arguments, compile_options

if TYPE_CHECKING:
    from ..runtime.model import CompiledModel

EXAMPLE = """\
  tvm-ext verify resnet18.onnx
  tvm-ext verify resnet18.onnx --artifact resnet18.so --seed 0 1 2
  tvm-ext verify resnet18.onnx --layers
  tvm-ext verify bert.onnx --size N=1,S=1 --size N=3,S=37
  tvm-ext verify resnet18.onnx --off recipe=conv2d_winograd"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of the ONNX file, or zoo:NAME")
    parser.add_argument("--artifact", metavar="FILE.so", help="check this artifact instead of compiling the model")
    sizes = "the ends of the bounds, two that are drawn by the seed, and one of each program of fixed sizes"
    add_input_arguments(parser, sizes=sizes, several=True, seed=False)
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="one check for each seed (default: 0)")
    add_tolerance_argument(parser)
    parser.add_argument(
        "--layers", action="store_true",
        help="compare what every kernel writes with onnxruntime's value there, and name the first one that is wrong",
    )  # fmt: skip
    parser.add_argument(
        "--off", metavar="KIND=NAME", type=switch_argument, action="append", default=[],
        help="compile without it: pass=NAME, recipe=NAME, layer=GROUP, record=FILE:LINE or offload=NODE, as bisect "
        "names them; any number of times",
    )  # fmt: skip
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Check for every seed (or once, on given inputs); 1 if any output disagrees."""
    from .. import verify

    feeds, model = given_inputs(args), model_of(args.model)
    compiled = _compiled(args, model)
    options = {"tolerance": args.tolerance, "layers": args.layers, "sizes": args.sizes}
    with Progress("comparing with onnxruntime"):
        seeds = args.seed if feeds is None else [0]
        reports = [verify(compiled, model, feeds, seed=seed, **options) for seed in seeds]
    good = all(report.ok for report in reports)
    values = {"ok": good, "model": args.model, "reports": [report.as_dict() for report in reports]}
    return print_result(args, values, "\n\n".join(map(str, reports)), code=0 if good else 1)


def _compiled(args: argparse.Namespace, model: Any) -> CompiledModel:
    """The artifact, or the model compiled, without what is switched off."""
    if not args.off:
        return opened(argparse.Namespace(**{**vars(args), "model": args.artifact or args.model}))
    if args.artifact:
        raise OptionError(f"{args.artifact} is compiled already: --off does not apply", fix="leave --artifact out")
    from ..driver.compile import compile_model
    from ..verification.bisect.suspects import switches_of

    with Progress(f"compiling {args.model}"):
        return compile_model(model, instruments=Instruments(switches=switches_of(args.off)), **compile_options(args))


def switch_argument(text: str) -> tuple[str, str]:
    """Parse KIND=NAME."""
    kind, equals, name = text.partition("=")
    if not (equals and name and kind in KINDS):
        raise argparse.ArgumentTypeError(f"{text!r}: KIND=NAME is needed, KIND one of {', '.join(KINDS)}")
    return kind, name
