"""What reduced precision costs: errors against float32 on many inputs, and whether int8 answers as
float32 does.

Nothing is timed here, so ours and onnxruntime run in this process; OpenVINO runs in its own.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ext
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.verification.layer_check import check_layers
from tvm_ext.verification.metrics import compare
from tvm_ext.verification.reference import onnxruntime_session

from benchmarks.asked.settings import Settings
from benchmarks.common.results import say
from benchmarks.common.rows import Row, Unavailable
from benchmarks.measuring import openvino
from benchmarks.models.models import MODELS, Inputs, outputs_of
from benchmarks.models.narrow import quantized, with_powers_of_two
from benchmarks.models.nsfw_images import DESCRIPTION, difference, evaluation, scores

Outputs = Mapping[str, np.ndarray]
#: Inputs that errors are measured on. The mean of their largest errors counts: that of a text
#: recognizer, behind a softmax, is 1 % of the range on one line and 50 % on another, where two
#: letters are about as likely.
SEEDS = range(64)
#: What the trained model gives for a sentence, and its least cosine with that of float32.
EMBEDDING, COSINE = "461", 0.9995
#: Largest mean difference of scores in 0..1.
MEAN = 0.01

#: What stands below the rows.
NOTES = (
    "Inputs are those of the models' tests: pictures, lines of text, sentences, all made by seed; "
    "ResNet-18's are standard normal.",
    "",
    f"Pictures of open-nsfw: {DESCRIPTION}.",
)


def accuracy(settings: Settings) -> list[Row]:
    """Rows of all models that have a bar."""
    rows = [_errors(key, settings) for key in ("resnet18", "minilm", "pp-ocr-rec")]
    return [*rows, _cosine(settings), *_exactness(settings), *_scores(settings)]


def _errors(key: str, settings: Settings) -> Row:
    """bf16 against onnxruntime's float32, beside OpenVINO's own error on the same inputs."""
    say(f"  {key}: errors on {len(SEEDS)} inputs")
    path, sets = _inputs(key, settings)
    wanted = _onnxruntime(path, sets, settings)
    ours = _error_of_each(_ours(path, sets, settings, precision="bf16"), wanted)
    count = f"mean of {len(SEEDS)} inputs"
    what = f"{MODELS[key].title}: largest error of bf16, of the range; {count}"
    try:
        outputs = openvino.outputs(path, outputs_of(path), sets, settings.threads)
    except Unavailable as missing:
        text = f"{np.mean(ours):.3%}; {missing}"
        return Row(what, "OpenVINO's", text, False, {"ours": ours})
    theirs = _error_of_each(outputs, wanted)
    text, bar = (
        f"{_spread(ours)}; OpenVINO's: {_spread(theirs)}",
        f"OpenVINO's: {np.mean(theirs):.3%}",
    )
    met = bool(np.mean(ours) <= np.mean(theirs))
    return Row(what, bar, text, met, {"ours": ours, "openvino": theirs})


def _spread(errors: Sequence[float]) -> str:
    largest = f"median {np.median(errors):.3%}, largest {max(errors):.2%}"
    return f"{np.mean(errors):.3%} ({largest})"


def error(outputs: Outputs, wanted: Outputs) -> float:
    """Largest error of an output that is not all integers, of that output's range."""
    floats = [name for name, array in wanted.items() if array.dtype.kind == "f"]
    return max(compare(name, np.asarray(outputs[name]), wanted[name]).of_range for name in floats)


def _error_of_each(outputs: Sequence[Outputs], wanted: Sequence[Outputs]) -> list[float]:
    return [error(*pair) for pair in zip(outputs, wanted, strict=True)]


def _cosine(settings: Settings) -> Row:
    path, sets = _inputs("minilm", settings)
    sides = _ours(path, sets, settings, precision="bf16"), _onnxruntime(path, sets, settings)
    pairs = zip(*([outputs[EMBEDDING] for outputs in side] for side in sides), strict=True)
    least = min(compare(EMBEDDING, *pair).cosine for pair in pairs)
    what, text = "MiniLM embeddings, bf16 against f32: least cosine", f"{least:.6f}"
    return Row(what, f"{COSINE} or more", f"{text} ({len(sets)} sentences)", least >= COSINE)


def _exactness(settings: Settings) -> list[Row]:
    """int8 ResNet-18 against onnxruntime, node by node as it stands: the whole of it with scales of
    powers of two, and, as it was quantized, each kernel on onnxruntime's own operands; there
    onnxruntime's float32 sums round, and a value that lies half-way between two integers may become
    either."""
    say("  resnet18: int8 against onnxruntime without graph optimizations")
    folder, model = settings.folder, MODELS["resnet18"]
    sets = [model.inputs(folder, seed) for seed in SEEDS[:16]]
    paths = [quantized("resnet18", folder, activations) for activations in ("uint8", "int8")]
    wrong = total = 0
    for path in map(with_powers_of_two, paths):
        wanted = _onnxruntime(path, sets, settings, optimized=False)
        for a, b in zip(_ours(path, sets, settings), wanted, strict=True):
            wrong += sum(int(np.count_nonzero(a[name] != b[name])) for name in b)
            total += sum(array.size for array in b.values())
    what = "ResNet-18 int8 against onnxruntime, graph optimizations off"
    whole, alone = f"{wrong} of {total:,}", _by_kernel(paths, sets[0], settings)
    some = f"{what}: integers that differ, kernel by kernel, scales as quantized"
    return [
        Row(f"{what}: outputs that differ, scales of powers of two", "0", whole, wrong == 0),
        Row(some, "(told)", alone, True),
    ]


def _by_kernel(paths: Sequence[pathlib.Path], inputs: Inputs, settings: Settings) -> str:
    """How many integers of all kernels' results differ, each kernel on onnxruntime's operands."""
    differ = total = 0
    largest = 0.0
    for path in paths:
        rows = check_layers(_compiled(path, inputs, settings), str(path), inputs).rows
        # of integers, which may be one apart
        comparisons = [row.alone for row in rows if row.alone is not None and row.tolerance == 1]
        bins = [pair for comparison in comparisons for pair in comparison.bins]
        differ += sum(count for start, count in bins if start is not None)
        total += sum(count for _, count in bins)
        largest = max([largest, *(comparison.largest for comparison in comparisons)])
    return f"{differ} of {total:,}, by {largest:g} at most"


def _scores(settings: Settings) -> list[Row]:
    """open-nsfw on pictures: int8 scores against float32's."""
    images, folder = evaluation(), settings.folder
    say(f"  open-nsfw: scores of {len(images)} pictures")
    paths = MODELS["open-nsfw"].write(folder), quantized("open-nsfw", folder, "uint8")
    sides = [scores(_compiled(path, images[0], settings).run, images) for path in paths]
    differences = difference(*sides)
    title = f"open-nsfw scores on {len(images)} pictures, int8 (largest maps in f32) against f32"
    scale = f"scores {differences.low:.3f} to {differences.high:.3f}"
    text = f"{differences.mean:.4f} (largest {differences.largest:.4f}; {scale})"
    sides = f"{differences.crossed} ({differences.above} are above it)"
    return [
        Row(
            f"{title}: mean difference",
            f"{MEAN} or less",
            text,
            differences.mean <= MEAN,
            vars(differences),
        ),
        Row(f"{title}: on another side of 0.5", "0", sides, differences.crossed == 0),
    ]


def _inputs(key: str, settings: Settings) -> tuple[pathlib.Path, list[Inputs]]:
    """A model's file, and inputs of all seeds."""
    model, folder = MODELS[key], settings.folder
    return model.write(folder), [model.inputs(folder, seed) for seed in SEEDS]


def _compiled(path: pathlib.Path, inputs: Inputs, settings: Settings, **more: Any) -> CompiledModel:
    shapes = {name: array.shape for name, array in inputs.items()}
    options = {"shapes": shapes, "threads": settings.threads, "records": None, **more}
    return tvm_ext.compile(str(path), **options)


def _ours(
    path: pathlib.Path, sets: Sequence[Inputs], settings: Settings, **options: Any
) -> list[dict[str, np.ndarray]]:
    compiled = _compiled(path, sets[0], settings, **options)
    return [{name: np.array(a) for name, a in compiled.run(feeds).items()} for feeds in sets]


def _onnxruntime(
    path: pathlib.Path, sets: Sequence[Inputs], settings: Settings, optimized: bool = True
) -> list[dict[str, np.ndarray]]:
    session = onnxruntime_session(str(path), settings.threads, optimized=optimized)
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, feeds), strict=True)) for feeds in sets]
