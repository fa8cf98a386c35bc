"""`tvm-ext bench`: time a model against onnxruntime and other runtimes, each in a process of its own."""

import argparse
import json

from ..core.errors import OptionError
from ..runtime.files import write_text
from .shared.common import Progress, add_input_arguments, given_inputs, measure_with_progress, model_of, print_result
from .shared.options import add_compile_arguments, compile_options

EXAMPLE = """\
  tvm-ext bench resnet18.onnx --threads 2
  tvm-ext bench bert.onnx --dims N=1,8 --dims S=1,384 --size N=1,S=128
  tvm-ext bench zoo:resnet18 --against onnxruntime tvm -o resnet18.md
  tvm-ext bench resnet18.onnx --against onnxruntime openvino --python openvino=/opt/openvino/bin/python"""
PEERS = ("onnxruntime", "openvino", "torch", "tvm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or zoo:NAME")
    parser.add_argument(
        "--against", nargs="+", choices=PEERS, default=["onnxruntime"], help="the others (default: onnxruntime)"
    )
    add_python_argument(parser)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds, 7 or more (default: 9)")
    parser.add_argument("--seconds", type=float, default=0.5, help="time of each contender in a round (default: 0.5)")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a contender may take to answer")
    parser.add_argument("-o", "--output", metavar="OUT.md|OUT.json", help="also write the table here")
    add_input_arguments(parser, sizes="those of --input, else the largest; the peers get them as fixed sizes")
    add_compile_arguments(parser)


def add_python_argument(parser: argparse.ArgumentParser) -> None:
    """`--python`: where peers are installed."""
    parser.add_argument(
        "--python", metavar="[PEER=]PATH", action="append", default=[],
        help="the Python that has a peer (or, without PEER=, all but onnxruntime): numpy and the peer is all it needs",
    )  # fmt: skip


def pythons(args: argparse.Namespace) -> str | dict[str, str] | None:
    """The `python` of `tvm_ext.benchmark` from the arguments.

    Raises:
        OptionError: a path for all and one for a peer, or two for all.
    """
    pairs = [tuple(text.split("=", 1)) if text.partition("=")[0] in PEERS else ("", text) for text in args.python]
    paths = dict(pairs)
    if "" not in paths:
        return paths or None
    if len(pairs) > 1:
        raise OptionError(f"--python {' '.join(args.python)}: one path for all, or PEER=PATH for each")
    return paths[""]


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 if a contender has no time because it failed or its outputs disagree."""
    from ..benchmarking.benchmark import benchmark

    inputs, model = given_inputs(args), model_of(args.model)
    with Progress("starting") as progress:
        measure_with_progress(args, model, progress)
        table = benchmark(
            model, args.against, rounds=args.rounds, seconds_per_round=args.seconds, seed=args.seed,
            timeout=args.timeout, inputs=inputs, python=pythons(args), progress=progress.tell,
            sizes=args.sizes, **compile_options(args),
        )  # fmt: skip
    if args.output:
        plain = args.output.endswith(".json")
        write_text(args.output, json.dumps(table.as_dict(), indent=2) + "\n" if plain else table.markdown())
    return print_result(args, {"ok": table.ok, **table.as_dict()}, table, code=0 if table.ok else 1)
