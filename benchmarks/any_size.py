"""One program for all sizes against programs of one size, and against onnxruntime. Writes
results/MACHINE/any_size.*

Each size is a contest of its own: the same program of any size, a program compiled for that size,
and onnxruntime with free dimensions. A run of some models (--only) replaces their rows and keeps
the others.
"""

import itertools
import math
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
import tvm_ext
from tvm_ext.benchmarking.benchmark import REFERENCE
from tvm_ext.runtime.sizes.symbols import shape_at

from benchmarks.asked.settings import Settings, run_folder
from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_results
from benchmarks.common.rows import Row, prose
from benchmarks.measuring.contest import Contender, Standing, contest
from benchmarks.models.pinned import MINI_LM, PP_OCR

ANY, STATIC = "any size", "one size"
_NOTES = prose("""
    Medians of the rounds' ratios; geometric means of those of all sizes. Every program's outputs
    are compared with onnxruntime's.""")


@dataclass(frozen=True)
class Case:
    """A model with free dimensions.

    Attributes:
        title: for the table.
        shapes, dims: compile options.
        sizes: at which it runs.
        bars: of the time over a program of one size, as a geometric mean and for each size, and
            over onnxruntime's, as a geometric mean.
    """

    title: str
    shapes: Mapping[str, tuple[int | str, ...]]
    dims: Mapping[str, tuple[int, int]]
    sizes: Sequence[Mapping[str, int]]
    bars: tuple[float, float, float]


def _grid(**sizes: Sequence[int]) -> list[dict[str, int]]:
    return [dict(zip(sizes, point, strict=True)) for point in itertools.product(*sizes.values())]


_TOKENS = _grid(N=(1, 3, 8), S=(16, 37, 64, 128, 200, 384, 512))
_IMAGES = [{"N": 1, "H": 224, "W": 224}, {"N": 1, "H": 160, "W": 192}, {"N": 2, "H": 97, "W": 131},
           {"N": 1, "H": 320, "W": 256}]  # fmt: skip
_TEXT, _PICTURE = {"N": (1, 8), "S": (1, 512)}, {"N": (1, 4), "H": (32, 320), "W": (32, 320)}
CASES: Mapping[str, Case] = {
    "minilm": Case("MiniLM-L3", dict.fromkeys(("input_ids", "attention_mask"), ("N", "S")), _TEXT,
                   _TOKENS, (1.08, 1.25, 0.85)),
    "bert": Case("BERT layer", {"input": ("N", "S", 768)}, _TEXT, _TOKENS, (1.08, 1.25, 0.85)),
    "pp-ocr-rec": Case("PP-OCRv4 rec", {"x": ("N", 3, 48, "W")}, {"N": (1, 8), "W": (48, 2000)},
                       _grid(N=(1, 3), W=(48, 320, 333, 1000, 2000)), (1.15, 1.25, 0.85)),
    "resnet18": Case("ResNet-18", {"input": ("N", 3, "H", "W")}, _PICTURE, _IMAGES,
                     (1.15, 1.25, 0.85)),
    "mobilenet_v2": Case("MobileNetV2", {"input": ("N", 3, "H", "W")}, _PICTURE, _IMAGES,
                         (1.15, 1.25, 0.85)),
}  # fmt: skip


def main() -> int:
    """Measure; 1 if a bar was missed."""
    example = "any_size.py --only minilm --rounds 7"
    args = arguments.parser(
        __doc__, example, only=tuple(CASES), what="models", threads=2, rounds=5, seconds=0.2,
        output=RESULTS, small=(False, "two sizes of each model only"),
    ).parse_args()  # fmt: skip
    rows: list[Row] = []
    with run_folder("any-size") as folder:
        settings = Settings(folder, args.threads, args.rounds, args.seconds)
        for key in args.only:
            case = CASES[key]
            case = replace(case, sizes=case.sizes[::9][:2]) if args.small else case
            rows += _rows(key, case, _file(key, folder), settings)
    folder, titles = pathlib.Path(args.output), (f"{CASES[key].title}, " for key in args.only)
    return write_results(folder, "any_size", rows, {}, _NOTES, titles)


def _rows(key: str, case: Case, model: pathlib.Path, settings: Settings) -> list[Row]:
    """The row of each size, and those of all."""
    standings = []
    for number, sizes in enumerate(case.sizes):
        say(f"{key} {dict(sizes)} ...")
        own = replace(settings, folder=settings.folder / f"{key}{number}")
        standings.append(_contest(case, model, sizes, own))
    ratios = [[_ratio(each, other) for each in standings] for other in (STATIC, REFERENCE)]
    mean, each, theirs = case.bars
    rows = [
        _row(
            f"{case.title}, {_text(sizes)}, over one size", each, ratio, of_size, onnxruntime=other
        )
        for sizes, ratio, other, of_size in zip(case.sizes, *ratios, standings, strict=True)
    ]
    return [
        _row(f"{case.title}, over one size, all", mean, statistics.geometric_mean(ratios[0])),
        _row(f"{case.title}, over onnxruntime, all", theirs, statistics.geometric_mean(ratios[1])),
        *rows,
    ]


def _contest(
    case: Case, model: pathlib.Path, sizes: Mapping[str, int], settings: Settings
) -> Standing:
    shapes = {name: shape_at(shape, sizes) for name, shape in case.shapes.items()}
    contenders = [
        Contender(ANY, ANY, "tvm_ext", model, "f32", {"shapes": case.shapes, "dims": case.dims}),
        Contender(STATIC, STATIC, "tvm_ext", model, "f32", {"shapes": shapes}),
        Contender(REFERENCE, "onnxruntime", REFERENCE, model, "f32"),
    ]
    outputs = [output.name for output in onnx.load(model, load_external_data=False).graph.output]
    return contest(contenders, _inputs(shapes), outputs, settings)


def _inputs(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Tokens with a mask that hides the last of them, or standard normal numbers."""
    rng = np.random.default_rng(0)
    inputs: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        if name == "input_ids":
            inputs[name] = rng.integers(0, 30_000, shape)
        elif name == "attention_mask":
            kept = rng.integers(1, shape[1] + 1, (shape[0], 1))
            inputs[name] = (np.arange(shape[1]) < kept).astype("int64")
        else:
            inputs[name] = rng.standard_normal(shape).astype("float32")
    return inputs


def _ratio(standing: Standing, other: str) -> float:
    return statistics.median(standing.ratios(ANY, other) or [math.nan])


def _row(what: str, bar: float, ratio: float, standing: Standing | None = None, **more: Any) -> Row:
    reasons = [row.reason for row in standing.rows.values() if row.reason] if standing else []
    text = f"{ratio:.2f}" if not math.isnan(ratio) else "; ".join(reasons) or "-"
    text += "".join(f", over {name} {value:.2f}" for name, value in more.items())
    met = None if math.isnan(ratio) else ratio <= bar
    return Row(what, f"{bar:g}", text, met, {"ratio": ratio, **more})


def _text(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


def _file(key: str, folder: pathlib.Path) -> pathlib.Path:
    """The model with free dimensions, as a file."""
    if key == "minilm":
        return MINI_LM.file()
    if key == "pp-ocr-rec":
        return PP_OCR.file("ch_PP-OCRv4_rec_infer.onnx")
    model = tvm_ext.zoo.MODELS[key]()
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in enumerate(CASES[key].shapes.get(value.name, ("N",))):
            if isinstance(name, str) and axis < len(value.type.tensor_type.shape.dim):
                value.type.tensor_type.shape.dim[axis].dim_param = name
    nodes = model.graph.node
    targets = {node.input[1] for node in nodes if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        if tensor.name in targets:
            _copy_leading(tensor)
    for node in nodes:
        if node.op_type == "Constant" and node.output[0] in targets:
            _copy_leading(node.attribute[0].t)
    del model.graph.value_info[:]
    path = folder / f"{key}.onnx"
    onnx.save(model, path)
    return path


def _copy_leading(shape: onnx.TensorProto) -> None:
    """The target of a reshape that keeps its first two dimensions, whatever they are."""
    kept = onnx.numpy_helper.to_array(shape).copy()
    kept[:2] = 0
    shape.CopyFrom(onnx.numpy_helper.from_array(kept, shape.name))


if __name__ == "__main__":
    sys.exit(main())
