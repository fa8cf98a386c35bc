"""What verbs share: arguments of the compiler, models by path or zoo name, tables, JSON, progress."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionError
from ..core.precision import PRECISIONS
from .offload import add_offload_arguments, offload_options

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model import CompiledModel

ZOO = "zoo:"


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `compile` that every verb which compiles takes."""
    parser.add_argument(
        "--shape", metavar="NAME=1,3,224,224", type=shape_argument, action="append", default=[],
        help="shape of an input whose dimensions the model leaves free; once per input; a name, as in N,3,224,224, is "
        "a batch of any size",
    )  # fmt: skip
    parser.add_argument(
        "--specialize", metavar="N=1,4,16", type=specialize_argument, action="append", default=[],
        help="sizes of a symbolic batch to make programs for (default: 1,4,16)",
    )  # fmt: skip
    parser.add_argument(
        "--freeze", metavar="NAME=1,2,3", type=freeze_argument, action="append", default=[],
        help="value of an input that is the same in every run, as numbers or NAME=FILE.npy; once per input",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, metavar="N", help="threads (default: all cores this process may use)")
    parser.add_argument(
        "--threads-wait", metavar="spin|sleep|SECONDS", type=wait_argument,
        help="how worker threads wait for the next kernel (default: spin as long as waking them is worth, then sleep)",
    )  # fmt: skip
    parser.add_argument("--target", metavar="CPU", help="LLVM CPU name, or TRIPLE:CPU (default: this machine)")
    parser.add_argument("--fusion", choices=("default", "none"), default="default", help="grouping of operations")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32",
        help="bf16: products and tensors between them in bfloat16, sums in float32 (default: float32)",
    )  # fmt: skip
    parser.add_argument(
        "--max-error", type=float, metavar="PART",
        help="with bf16: largest error of the outputs, of their range; layers that exceed it keep float32, as measured",
    )  # fmt: skip
    parser.add_argument(
        "--keep-float32", metavar="NODE", action="append", default=[],
        help="with bf16: an ONNX convolution or matmul that keeps float32; any number of times",
    )  # fmt: skip
    parser.add_argument(
        "--records", metavar="LOG", action="append", default=[],
        help="log of tuning records to use, or none (default: those shipped with the library that fit this machine)",
    )  # fmt: skip
    add_offload_arguments(parser)
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the on-disk cache")


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `tvm_ext.compile` from the arguments of :func:`add_compile_arguments`."""
    return {
        "shapes": dict(args.shape), "specialize": dict(args.specialize), "freeze": _frozen(args.freeze),
        "threads": args.threads, "target": args.target, "fusion": args.fusion, "records": _records(args.records),
        "precision": args.precision, "max_error": args.max_error, "keep_float32": tuple(args.keep_float32),
        "cache": not args.no_cache, "threads_wait": args.threads_wait, **offload_options(args),
    }  # fmt: skip


def _records(given: Sequence[str]) -> str | tuple[str, ...] | None:
    if "none" in given and len(given) > 1:
        raise OptionError(f"--records {' --records '.join(given)}: none is no log among others")
    return None if "none" in given else tuple(given) or "auto"


def wait_argument(text: str) -> str | float:
    """Parse spin, sleep or seconds."""
    try:
        return text if text in ("spin", "sleep") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: spin, sleep or seconds are needed") from None


def shape_argument(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Parse NAME=1,3,224,224 or NAME=N,3,224,224; a scalar is NAME= with nothing behind it."""
    name, found, dims = text.rpartition("=")
    try:
        shape = tuple(d.strip() if d.strip().isidentifier() else int(d) for d in dims.split(",")) if dims else ()
    except ValueError:
        found = ""
    if not (found and name):
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=1,3,224,224 or NAME=N,3,224,224 is needed")
    return name, shape


def specialize_argument(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse N=1,4,16."""
    name, found, sizes = text.rpartition("=")
    try:
        parsed = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        found = ""
    if not (found and name):
        raise argparse.ArgumentTypeError(f"{text!r}: N=1,4,16 is needed")
    return name, parsed


def freeze_argument(text: str) -> tuple[str, str | list[float] | float]:
    """Parse NAME=FILE.npy, NAME=1,2,3 or NAME=4; one number is a scalar, or the one element of a vector."""
    name, found, value = text.rpartition("=")
    if not (found and name and value):
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=1,2,3 or NAME=FILE.npy is needed")
    if value.endswith(".npy"):
        return name, value
    try:
        numbers = [int(n) if n.strip().lstrip("+-").isdecimal() else float(n) for n in value.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {value!r} is neither numbers nor a path that ends in .npy"
        ) from None
    return name, numbers if len(numbers) > 1 else numbers[0]


def _frozen(given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    from ..verification.arrays import load_npy

    return {name: load_npy(value) if isinstance(value, str) else value for name, value in given}


def input_argument(text: str) -> tuple[str, str]:
    """Parse NAME=file.npy."""
    name, found, path = text.partition("=")
    if not (found and name and path):
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=file.npy is needed")
    return name, path


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """`--input`: arrays instead of seeded ones."""
    parser.add_argument(
        "--input", metavar="NAME=FILE.npy", type=input_argument, action="append", default=[],
        help="an input's array; once per input (default: random arrays of --seed)",
    )  # fmt: skip


def given_inputs(args: argparse.Namespace) -> dict[str, np.ndarray] | None:
    """The arrays of `--input`; None if there are none."""
    from ..verification.arrays import load_npy

    return {name: load_npy(path) for name, path in args.input} or None


def model_of(text: str) -> Any:
    """A model argument: the path as it is, or the ModelProto of `zoo:NAME`.

    Raises:
        OptionError: the zoo has no such model.
    """
    if not text.startswith(ZOO):
        return text
    from ..frontend.zoo import MODELS

    name = text[len(ZOO) :]
    if name not in MODELS:
        raise OptionError(f"the zoo has no model {name!r}", fix=f"models: {', '.join(sorted(MODELS))}")
    return MODELS[name]()


def compile_with_progress(args: argparse.Namespace, model: Any) -> CompiledModel:
    """Compile as the arguments say, with progress on stderr."""
    from .. import compile as compile_model

    with Progress(f"compiling {args.model}"):
        return compile_model(model, **compile_options(args))


def spec_dicts(specs: Iterable[Any]) -> list[dict[str, Any]]:
    """Inputs or outputs as plain values."""
    return [{"name": s.name, "shape": list(s.shape), "dtype": str(s.dtype)} for s in specs]


def print_json(value: dict[str, Any]) -> None:
    """The one JSON document a verb prints."""
    print(json.dumps(value, indent=2, default=str))


def print_table(rows: Sequence[Sequence[object]]) -> None:
    """Rows of cells in aligned columns."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))] if cells else []
    for row in cells:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


class Progress:
    """Says on stderr what is going on once it has taken two seconds, and then every few seconds.

    On a terminal one line is rewritten and removed at the end; elsewhere lines are added.
    """

    first, interval = 2.0, 5.0

    def __init__(self, label: str) -> None:
        self.label = label
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._shown = False

    def tell(self, label: str) -> None:
        """Change what is going on."""
        self.label = label

    def __enter__(self) -> Progress:
        self._start = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._shown and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _watch(self) -> None:
        wait = self.first
        while not self._done.wait(wait):
            self._shown, terminal = True, sys.stderr.isatty()
            text = f"{self.label} ... {time.monotonic() - self._start:.0f} s"
            print(f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
            wait = 0.5 if terminal else self.interval
