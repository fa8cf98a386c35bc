"""What reduced precision costs: errors against float32 on many inputs, and whether int8 answers as float32 does.

Nothing is timed here, so ours and onnxruntime run in this process; OpenVINO runs in its own.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import _openvino
import numpy as np
from _common import Row, Unavailable, say
from _nsfw_images import DESCRIPTION, difference, evaluation, scores
from _precision_models import MODELS, Inputs, outputs_of, quantized, with_powers_of_two

import tvm_ext
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.verification.layer_check import check_layers
from tvm_ext.verification.metrics import compare
from tvm_ext.verification.reference import onnxruntime_session

Outputs = Mapping[str, np.ndarray]
#: Inputs that errors are measured on. The mean of their largest errors counts: that of a text recognizer, behind a
#: softmax, is 1 % of the range on one line and 50 % on another, where two letters are about as likely.
SEEDS = range(64)
#: What the trained model gives for a sentence, and its least cosine with that of float32.
EMBEDDING, COSINE = "461", 0.9995
#: Largest mean difference of scores in 0..1.
MEAN = 0.01


#: What stands below the rows.
NOTES = (
    "Inputs are those of the models' tests: pictures, lines of text, sentences, all made by seed; ResNet-18's are "
    "standard normal.",
    "",
    f"Pictures of open-nsfw: {DESCRIPTION}.",
)


def accuracy(folder: pathlib.Path, threads: int) -> list[Row]:
    """Rows of all models that have a bar."""
    rows = [_errors(key, folder, threads) for key in ("resnet18", "minilm", "pp-ocr-rec")]
    return [*rows, _cosine(folder, threads), *_exactness(folder, threads), *_scores(folder, threads)]


def _errors(key: str, folder: pathlib.Path, threads: int) -> Row:
    """bf16 against onnxruntime's float32, beside OpenVINO's own error on the same inputs."""
    model = MODELS[key]
    say(f"  {key}: errors on {len(SEEDS)} inputs")
    path, sets = model.write(folder), [model.inputs(seed) for seed in SEEDS]
    wanted = _onnxruntime(path, sets, threads)
    ours = [error(*pair) for pair in zip(_ours(path, sets, threads, precision="bf16"), wanted, strict=True)]
    what = f"{model.title}: largest error of bf16, of the range; mean of {len(SEEDS)} inputs"
    try:
        found = _openvino.outputs(path, outputs_of(path), sets, threads)
    except Unavailable as missing:
        return Row(what, "OpenVINO's", f"{np.mean(ours):.3%}; {missing}", False, {"ours": ours})
    theirs = [error(*pair) for pair in zip(found, wanted, strict=True)]
    text = f"{_spread(ours)}; OpenVINO's: {_spread(theirs)}"
    met = bool(np.mean(ours) <= np.mean(theirs))
    return Row(what, f"OpenVINO's: {np.mean(theirs):.3%}", text, met, {"ours": ours, "openvino": theirs})


def _spread(errors: Sequence[float]) -> str:
    return f"{np.mean(errors):.3%} (median {np.median(errors):.3%}, largest {max(errors):.2%})"


def error(found: Outputs, wanted: Outputs) -> float:
    """Largest error of an output that is not all integers, of that output's range."""
    floats = [name for name, array in wanted.items() if array.dtype.kind == "f"]
    return max(compare(name, np.asarray(found[name]), wanted[name]).of_range for name in floats)


def _cosine(folder: pathlib.Path, threads: int) -> Row:
    model = MODELS["minilm"]
    path, sets = model.write(folder), [model.inputs(seed) for seed in SEEDS]
    pairs = zip(_ours(path, sets, threads, precision="bf16"), _onnxruntime(path, sets, threads), strict=True)
    least = min(compare(EMBEDDING, a[EMBEDDING], b[EMBEDDING]).cosine for a, b in pairs)
    what = "MiniLM embeddings, bf16 against f32: least cosine"
    return Row(what, f"{COSINE} or more", f"{least:.6f} ({len(sets)} sentences)", least >= COSINE)


def _exactness(folder: pathlib.Path, threads: int) -> list[Row]:
    """int8 ResNet-18 against onnxruntime, node by node as it stands: the whole of it with scales of powers of two, and,
    as it was quantized, each kernel on onnxruntime's own operands; there onnxruntime's float32 sums round, and a value
    that lies half-way between two integers may become either."""
    say("  resnet18: int8 against onnxruntime without graph optimizations")
    sets = [MODELS["resnet18"].inputs(seed) for seed in SEEDS[:16]]
    paths = [quantized("resnet18", folder, activations) for activations in ("uint8", "int8")]
    wrong = total = 0
    for path in map(with_powers_of_two, paths):
        found, wanted = _ours(path, sets, threads), _onnxruntime(path, sets, threads, optimized=False)
        pairs = [(a[name], b[name]) for a, b in zip(found, wanted, strict=True) for name in b]
        wrong += sum(int(np.count_nonzero(a != b)) for a, b in pairs)
        total += sum(b.size for _, b in pairs)
    what = "ResNet-18 int8 against onnxruntime, graph optimizations off"
    return [
        Row(f"{what}: outputs that differ, scales of powers of two", "0", f"{wrong} of {total:,}", wrong == 0),
        Row(f"{what}: integers that differ, kernel by kernel, scales as quantized", "(told)",
            _by_kernel(paths, sets[0], threads), True),
    ]  # fmt: skip


def _by_kernel(paths: Sequence[pathlib.Path], inputs: Inputs, threads: int) -> str:
    """How many integers of all kernels' results differ, each kernel on onnxruntime's operands."""
    differ = total = 0
    largest = 0.0
    for path in paths:
        compiled = _compiled(path, inputs, threads)
        report = check_layers(compiled, str(path), inputs)
        found = [row.alone for row in report.rows if row.alone is not None and row.tolerance == 1]  # one integer apart
        differ += sum(count for one in found for start, count in one.bins if start is not None)
        total += sum(count for one in found for _, count in one.bins)
        largest = max([largest, *(one.largest for one in found)])
    return f"{differ} of {total:,}, by {largest:g} at most"


def _scores(folder: pathlib.Path, threads: int) -> list[Row]:
    """open-nsfw on pictures: int8 scores against float32's."""
    images = evaluation()
    say(f"  open-nsfw: scores of {len(images)} pictures")
    plain, small = MODELS["open-nsfw"].write(folder), quantized("open-nsfw", folder, "uint8")
    f32, int8 = (scores(_compiled(path, images[0], threads).run, images) for path in (plain, small))
    found = difference(f32, int8)
    title = f"open-nsfw scores on {len(images)} pictures, int8 (largest maps in f32) against f32"
    text = f"{found.mean:.4f} (largest {found.largest:.4f}; scores {found.low:.3f} to {found.high:.3f})"
    sides = f"{found.crossed} ({found.above} are above it)"
    return [
        Row(f"{title}: mean difference", f"{MEAN} or less", text, found.mean <= MEAN, vars(found)),
        Row(f"{title}: on another side of 0.5", "0", sides, found.crossed == 0),
    ]


def _compiled(path: pathlib.Path, inputs: Inputs, threads: int, **options: str) -> CompiledModel:
    shapes = {name: array.shape for name, array in inputs.items()}
    return tvm_ext.compile(str(path), shapes=shapes, threads=threads, records=None, **options)


def _ours(path: pathlib.Path, sets: Sequence[Inputs], threads: int, **options: str) -> list[dict[str, np.ndarray]]:
    compiled = _compiled(path, sets[0], threads, **options)
    return [{name: np.array(array) for name, array in compiled.run(one).items()} for one in sets]


def _onnxruntime(
    path: pathlib.Path, sets: Sequence[Inputs], threads: int, optimized: bool = True
) -> list[dict[str, np.ndarray]]:
    session = onnxruntime_session(str(path), threads, optimized=optimized)
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, one), strict=True)) for one in sets]
