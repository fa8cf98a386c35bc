"""What verbs share: inputs, models by path or zoo name, tables, JSON, progress."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionError
from ...core.progress import Progress
from ...core.settings.flags import join_named, setting
from ...runtime.table import Column, Table
from .options import compile_options

if TYPE_CHECKING:
    from ...runtime.model import CompiledModel

ZOO = "zoo:"


def input_argument(text: str) -> tuple[str, str]:
    """Parse NAME=file.npy, or NAME=file.npz of a sequence."""
    name, equals, path = text.partition("=")
    if not (equals and name and path):
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=file.npy is needed")
    return name, path


def size_argument(text: str) -> dict[str, int]:
    """Parse NAME=N,NAME=N."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not (name.isidentifier() and size.isdecimal()) or name in sizes:
            raise argparse.ArgumentTypeError(f"{text!r}: NAME=N of each symbolic dimension is needed, as N=3,S=37")
        sizes[name] = int(size)
    return sizes


def setting_argument(option: str, text: str) -> tuple[str, Any]:
    """KEY=VALUE behind an option.

    Raises:
        OptionError: it has another form.
    """
    try:
        return setting(text)
    except ValueError:
        raise OptionError(f"{option} {text!r}: KEY=VALUE is needed", fix=f"as in {option} words_per_cycle=8") from None


def add_input_arguments(
    parser: argparse.ArgumentParser, *, sizes: str = "", several: bool = False, seed: bool = True
) -> None:
    """`--input`: arrays instead of random ones; `--seed`: of these; `--size`: of symbolic dimensions.

    Args:
        sizes: of a verb that takes `--size`: which sizes there are without it, for the help.
        several: whether `--size` may be given several times.
        seed: whether there is one seed.
    """
    parser.add_argument(
        "--input", metavar="NAME=FILE.npy", type=input_argument, action="append", default=[],
        help="an input's array, or FILE.npz, those of a sequence; once per input (default: random arrays of --seed)",
    )  # fmt: skip
    if seed:
        parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    if sizes:
        more, action = ("; any number of times", "append") if several else ("", "store")
        parser.add_argument(
            "--size", metavar="NAME=N,...", dest="sizes", type=size_argument, action=action,
            help=f"size of each symbolic dimension, such as N=3,S=37{more} (default: {sizes})",
        )  # fmt: skip


def add_tolerance_argument(parser: argparse.ArgumentParser) -> None:
    """`--tolerance`: of a comparison with onnxruntime."""
    parser.add_argument(
        "--tolerance", type=float, metavar="PART",
        help="largest error of the output's range (default: by dtype; 1e-5 for float32)",
    )  # fmt: skip


def given_inputs(args: argparse.Namespace) -> dict[str, Any] | None:
    """The arrays of `--input`, lists of them for sequences; None if there are none.

    Raises:
        OptionError: sizes are stated beside them, which have their own.
    """
    if args.input and getattr(args, "sizes", None):
        raise OptionError("--size and --input: the inputs have sizes of their own", fix="give one of both")
    from ...verification.arrays import load_npy, load_npz

    paths = join_named("--input", args.input)
    return {
        name: list(load_npz(path).values()) if path.endswith(".npz") else load_npy(path) for name, path in paths.items()
    } or None


def model_of(text: str) -> Any:
    """A model argument: the path as it is, or the ModelProto of `zoo:NAME`.

    Raises:
        OptionError: the zoo has no such model.
    """
    if not text.startswith(ZOO):
        return text
    from ...frontend.zoo import MODELS

    name = text[len(ZOO) :]
    if name not in MODELS:
        raise OptionError(f"the zoo has no model {name!r}", fix=f"models: {', '.join(sorted(MODELS))}")
    return MODELS[name]()


def compile_with_progress(args: argparse.Namespace, model: Any) -> CompiledModel:
    """Compile as the arguments say, with progress on stderr."""
    from ... import compile as compile_model

    with Progress(f"compiling {args.model}") as progress:
        measure_with_progress(args, model, progress)
        return compile_model(model, **compile_options(args))


def measure_with_progress(args: argparse.Namespace, model: Any, progress: Progress) -> None:
    """With `--choose measure`: measure what the timing cache lacks, and say what is measured."""
    if (keywords := compile_options(args)).get("choose") != "measure":
        return
    from ...core.options import CompileOptions
    from ...tuning.choose import measure_choices

    label, options = progress.label, CompileOptions.of(**keywords)
    measure_choices(model, options, tell=lambda text: progress.tell(f"{label}: {text}"))
    progress.tell(label)


def spec_dicts(specs: Iterable[Any]) -> list[dict[str, Any]]:
    """Inputs or outputs as plain values."""
    return [{"name": s.name, "shape": list(s.shape), "dtype": str(s.dtype)} for s in specs]


def value_dicts(values: Iterable[Any]) -> list[dict[str, Any]]:
    """Sequences and optionals among inputs or outputs as plain values."""
    nested = [value for value in values if not value.type.startswith("tensor(")]
    return [{"name": v.name, "kind": v.kind, "type": v.type, "tensors": list(v.tensors)} for v in nested]


def print_json(value: dict[str, Any]) -> None:
    """The one JSON document a verb prints."""
    print(json.dumps(value, indent=2, default=str))


def print_result(args: argparse.Namespace, values: dict[str, Any], *texts: object, code: int = 0) -> int:
    """The result of a verb: its values with --json, else its texts but for empty ones; and its exit code."""
    if args.json:
        print_json(values)
    else:
        print(*filter(None, map(str, texts)), sep="\n")
    return code


def table_text(columns: Sequence[Column | str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows in aligned columns; no column has a title where there are no heads to print."""
    return Table(columns, rows).text(head=any(columns))
