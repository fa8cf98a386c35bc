"""The models of `precision.py` and `questions.py`: ResNets, three trained models, a product of matrices; and their
quantized forms."""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from _common import FOLDER, say
from _models import MODELS as SUITE
from _nsfw_images import QUANTIZE, calibration

sys.path.insert(0, str(FOLDER.parent))

import tvm_ext
from tests.real_models.models import MODELS as REAL

Inputs = dict[str, np.ndarray]
#: Seeds of the inputs that ranges are calibrated on; no measurement uses them. Those of open-nsfw are pictures.
CALIBRATION = range(1000, 1016)


@dataclass(frozen=True)
class Model:
    """A float32 model.

    Attributes:
        title: for the table.
        write: puts it into a folder, or finds it, and returns its path; raises Unavailable where it cannot.
        inputs: seed -> inputs by name, all of the same shapes.
    """

    title: str
    write: Callable[[pathlib.Path], pathlib.Path]
    inputs: Callable[[int], Inputs]


def real(title: str, key: str) -> Model:
    """A trained model, with the first size and the inputs of its test."""
    model = REAL[key]
    return Model(title, lambda _: model.file(), lambda seed: model.inputs(model.sizes[0], seed))


def drawn(title: str, key: str, shape: tuple[int, ...]) -> Model:
    """A model of the suite whose one input is standard normal."""

    def inputs(seed: int) -> Inputs:
        return {"input": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}

    return Model(title, SUITE[key].write, inputs)


MODELS: dict[str, Model] = {
    **{key: drawn(title, key, (1, 3, 224, 224))
       for key, title in (("resnet18", "ResNet-18"), ("resnet34", "ResNet-34"), ("resnet50", "ResNet-50"))},
    "open-nsfw": real("open-nsfw (trained)", "open-nsfw"),
    "minilm": real("paraphrase-MiniLM-L3 (trained), 64 tokens", "minilm-l3"),
    "pp-ocr-rec": real("PP-OCRv4 rec (trained), 1x3x48x320", "pp-ocr-rec"),
    "matmul": drawn("MatMul 512x512x512, constant weights", "matmul-512-weights", (512, 512)),
}  # fmt: skip


def outputs_of(path: pathlib.Path) -> list[str]:
    """Names of a model's outputs."""
    return [output.name for output in onnx.load(path, load_external_data=False).graph.output]


@functools.cache
def quantized(key: str, folder: pathlib.Path, activations: str) -> pathlib.Path:
    """A model as QDQ, by `tvm_ext.quantize` as it comes; open-nsfw with what it needs (`_nsfw_images.py`).

    Args:
        key: of :data:`MODELS`.
        folder: where it is written.
        activations: "uint8" or "int8".
    """
    path, model = folder / f"{key}-{activations}.onnx", MODELS[key]
    say(f"  quantizing {key}, {activations} activations")
    inputs, options = [model.inputs(seed) for seed in CALIBRATION], {}
    if key == "open-nsfw":
        inputs, options = calibration(), QUANTIZE
    tvm_ext.quantize(model.write(folder), calibration=inputs, activations=activations, **options).save(path)
    return path


def with_powers_of_two(path: pathlib.Path) -> pathlib.Path:
    """The same QDQ model with every scale the next power of two: then onnxruntime's float32 sums are exact, so that
    half-way cases, which occur all the time, are rounded as the standard says."""
    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    scales = {node.input[1] for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    for name in scales:
        values = np.exp2(np.ceil(np.log2(onnx.numpy_helper.to_array(weights[name])))).astype(np.float32)
        weights[name].CopyFrom(onnx.numpy_helper.from_array(values, name))
    changed = path.with_stem(f"{path.stem}-powers")
    onnx.save(model, changed)
    return changed
