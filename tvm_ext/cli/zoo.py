"""`tvm-ext zoo`: list the models of the zoo, which need no download, or write one of them as an ONNX file."""

import argparse
import inspect

from .shared.common import Progress, print_result, table_text

EXAMPLE = """\
  tvm-ext zoo ls
  tvm-ext zoo resnet18 -o resnet18.onnx --batch 8 --weights resnet18.safetensors"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("name", metavar="ls|NAME", help="ls, or the model to write")
    parser.add_argument("-o", "--output", metavar="FILE.onnx", help="where to write it (default: NAME.onnx)")
    parser.add_argument("--batch", type=int, help="batch size")
    parser.add_argument("--seed", type=int, help="seed of random weights")
    parser.add_argument("--weights", metavar="FILE.safetensors", help="weights under the names of torch's state dict")


def run(args: argparse.Namespace) -> int:
    """List, or build and write."""
    from ..frontend import zoo

    if args.name == "ls":
        return _list(args)
    options = {key: getattr(args, key) for key in ("batch", "seed", "weights") if getattr(args, key) is not None}
    with Progress(f"building {args.name}"):
        path = zoo.save(args.name, args.output or f"{args.name}.onnx", **options)
    size = path.stat().st_size
    values = {"ok": True, "name": args.name, "path": str(path), "bytes": size}
    return print_result(args, values, f"wrote {path}, {size / 1e6:.1f} MB")


def _list(args: argparse.Namespace) -> int:
    from ..frontend.zoo import MODELS

    models = {name: (inspect.getdoc(builder) or "").partition("\n")[0] for name, builder in sorted(MODELS.items())}
    return print_result(args, {"ok": True, "models": models}, table_text(("", ""), models.items()))
