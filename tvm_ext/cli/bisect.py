"""`tvm-ext bisect`: find the pass, recipe, layer, record or offloaded node that makes a model's outputs wrong."""

import argparse
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.instruments import KINDS
from .shared.common import add_input_arguments, add_tolerance_argument, given_inputs, model_of, print_result
from .shared.options import add_compile_arguments, compile_options

EXAMPLE = """\
  tvm-ext bisect model.onnx
  tvm-ext bisect model.onnx --by record --records model.tuning.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of the ONNX file, or zoo:NAME")
    parser.add_argument("--by", choices=KINDS, help="what to switch off (default: one kind after the other)")
    add_input_arguments(parser)
    add_tolerance_argument(parser)
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Search, with a line a trial on stderr; 1 if something is wrong, whether a culprit was found or not."""
    from .. import bisect

    result = bisect(
        model_of(args.model), args.by, given_inputs(args), seed=args.seed, tolerance=args.tolerance, on_event=_tell,
        **compile_options(args),
    )  # fmt: skip
    result = replace(result, commands=tuple(_command(args, command) for command in result.commands))
    return print_result(args, {**result.as_dict(), "model": args.model}, result, code=0 if result.ok else 1)


def _command(args: argparse.Namespace, command: str) -> str:
    """The command with the model, inputs and modules as they were given here."""
    program, verb, _, *rest = shlex.split(command)
    arguments = [part for name, path in args.input for part in ("--input", f"{name}={path}")]
    arguments += [part for module in args.imports for part in ("--import", module)]
    frozen = {f"{name}={name}.npy": text for text in args.option_freeze or () for name in [text.rpartition("=")[0]]}
    return shlex.join([program, verb, args.model, *arguments, *(frozen.get(word, word) for word in rest)])


def _tell(event: Mapping[str, Any]) -> None:
    if event["kind"] == "trial":
        print(event["text"], file=sys.stderr, flush=True)
