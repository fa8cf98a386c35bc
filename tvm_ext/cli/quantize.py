"""`tvm-ext quantize`: quantize a float32 model to int8 (a standard QDQ model), with ranges from typical inputs."""

import argparse

from ..runtime.files import write_text
from .shared.common import Progress, model_of, print_result

EXAMPLE = """\
  tvm-ext quantize resnet18.onnx --calibration images.npz -o resnet18.int8.onnx
  tvm-ext quantize resnet18.onnx --calibration folder_of_npy --method percentile -o resnet18.int8.onnx
  tvm-ext quantize resnet18.onnx --calibration images.npz --exclude conv1 fc -o resnet18.int8.onnx --markdown report.md
  tvm-ext quantize bert.onnx --weights int4 --block 32 -o bert.int4.onnx
  tvm-ext bench resnet18.int8.onnx

DATA is an .npz file (an array for each input, by its name), an .npy file (of a model with one input), or a folder of
such files. An array may be a stack of batches along its first axis. Some hundred typical inputs are enough."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or zoo:NAME")
    parser.add_argument("--calibration", metavar="DATA", help="typical inputs: .npz, .npy, or a folder of them")
    parser.add_argument("-o", "--output", metavar="OUT.onnx", help="write the quantized model here")
    parser.add_argument("--markdown", metavar="OUT.md", help="also write the report here")
    parser.add_argument(
        "--method", choices=("minmax", "entropy", "percentile"), default="minmax",
        help="how the range of an activation is chosen (default: minmax)",
    )  # fmt: skip
    parser.add_argument(
        "--percentile", type=float, default=99.999, metavar="P",
        help="with --method percentile: part of the elements, in percent, that a range holds (default: 99.999)",
    )  # fmt: skip
    parser.add_argument("--per-tensor", action="store_true", help="one scale a weight, instead of one a channel")
    parser.add_argument("--activations", choices=("uint8", "int8"), default="uint8", help="type (default: uint8)")
    parser.add_argument("--exclude", nargs="+", default=[], metavar="NODE", help="nodes that stay in float32")
    parser.add_argument("--operators", nargs="+", default=[], metavar="OP", help="quantize these operators only")
    parser.add_argument(
        "--reduce-range", choices=("auto", "yes", "no"), default="auto",
        help="weights of 7 bits (default: only where this machine has no VNNI)",
    )  # fmt: skip
    parser.add_argument("--weights", choices=("int4", "int8"), help="quantize weights of matmuls alone, without DATA")
    parser.add_argument(
        "--block", type=int, default=32, metavar="N", help="with --weights: inputs with one scale (default: 32)"
    )


def run(args: argparse.Namespace) -> int:
    """Quantize, write, report."""
    from .. import quantize

    with Progress(f"quantizing {args.model}") as progress:
        result = quantize(
            model_of(args.model), args.calibration, method=args.method, percentile=args.percentile,
            per_channel=not args.per_tensor, activations=args.activations, exclude=args.exclude,
            operators=args.operators, reduce_range={"auto": None, "yes": True, "no": False}[args.reduce_range],
            weights=args.weights, block=args.block,
            on_event=lambda event: progress.tell("quantizing {}: {step} ({done} of {of})".format(args.model, **event)),
        )  # fmt: skip
    if args.output:
        result.save(args.output)
    if args.markdown:
        write_text(args.markdown, result.markdown())
    written = f"wrote {args.output}" if args.output else "nothing was written: -o OUT.onnx writes the model"
    return print_result(args, {"ok": True, "artifact": args.output, **result.as_dict()}, result, written)
