"""`tvm-ext run`: run an ONNX model or an exported artifact once, on given or seeded inputs."""

from __future__ import annotations

import argparse
from itertools import count
from typing import TYPE_CHECKING, Any

from ..runtime.files import make_folder
from .shared.common import add_input_arguments, compile_with_progress, given_inputs, model_of, print_result, table_text
from .shared.options import add_compile_arguments, compile_options, refuse_compile_options

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model import CompiledModel

EXAMPLE = """\
  tvm-ext run resnet18.so --input input=image.npy -o outputs.npz
  tvm-ext run zoo:resnet18 --seed 3
  tvm-ext run bert.onnx --dims S=1,384 --size N=3,S=37"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL|ARTIFACT", help="path of an ONNX file or an artifact, or zoo:NAME")
    add_input_arguments(parser, sizes="the largest")
    parser.add_argument("-o", "--output", metavar="OUT.npz", help="write all outputs by name to one file")
    parser.add_argument("--output-dir", metavar="DIR", help="write each output to DIR/NAME.npy")
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run, save, print a line per output."""
    import numpy as np

    from ..core.sample_inputs import seeded_inputs
    from ..runtime.values import spread
    from ..verification.sizes import sizes_of

    feeds = given_inputs(args)
    compiled = opened(args)
    if feeds is None:
        feeds = seeded_inputs(compiled.inputs, args.seed, sizes=sizes_of(compiled, args.sizes))
    outputs = compiled.run(feeds)
    tensors = spread(outputs)
    written = _save(args, tensors)
    rows = [_summary(name, value) for name, value in tensors.items()]
    rows += [
        _no_tensor(name, value) for name, value in outputs.items() if not isinstance(value, np.ndarray) and not value
    ]
    table = table_text(tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows])
    values = {"ok": True, "model": args.model, "outputs": rows, "written": written}
    return print_result(args, values, table, *(f"wrote {path}" for path in written))


def opened(args: argparse.Namespace) -> CompiledModel:
    """The artifact, loaded, or the model, compiled.

    Raises:
        OptionError: compile options for an artifact, which is compiled already.
    """
    from ..runtime.library import is_artifact

    if not (is_artifact(args.model) or args.model.endswith(".so")):
        return compile_with_progress(args, model_of(args.model))
    refuse_compile_options(args, args.model)
    from .. import load

    return load(args.model, threads_wait=compile_options(args).get("threads_wait"))


def _save(args: argparse.Namespace, outputs: dict[str, np.ndarray]) -> list[str]:
    from ..verification.arrays import save_npy, save_npz

    written = []
    if args.output:
        save_npz(args.output, outputs)
        written.append(args.output)
    if args.output_dir:
        folder = make_folder(args.output_dir)
        for name, value in outputs.items():
            stem = name.replace("/", "_") or "_"
            path = next(p for n in count() if str(p := folder / f"{stem}{'_' * n}.npy") not in written)
            save_npy(path, value)
            written.append(str(path))
    return written


def _no_tensor(name: str, value: list[Any] | None) -> dict[str, Any]:
    """The row of an output that is an empty sequence, or absent."""
    what = "absent" if value is None else "empty sequence"
    return {"name": name, "dtype": what, "shape": None, "min": "-", "max": "-", "not_finite": 0, "first": ""}


def _summary(name: str, value: np.ndarray) -> dict[str, Any]:
    import numpy as np

    first = [str(v) for v in value.ravel()[:4]]
    row: dict[str, Any] = {"name": name, "dtype": value.dtype.name, "shape": list(value.shape)}
    if value.size and value.dtype.kind in "iufb":
        finite = value[np.isfinite(value)]
        low, high = (str(finite.min()), str(finite.max())) if finite.size else ("-", "-")
        row |= {"min": low, "max": high, "not_finite": int(value.size - finite.size)}
    else:
        row |= {"min": "-", "max": "-", "not_finite": 0}
    return {**row, "first": " ".join(first)}
