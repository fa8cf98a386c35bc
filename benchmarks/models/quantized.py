"""Quantized forms of the models."""

import functools
import pathlib

import numpy as np
import onnx
import tvm_ext

from benchmarks.common.results import say
from benchmarks.models.models import MODELS
from benchmarks.models.nsfw_images import QUANTIZE, calibration

#: Seeds of the inputs that ranges are calibrated on; no measurement uses them. Those of open-nsfw
#: are pictures.
CALIBRATION = range(1000, 1016)


@functools.cache
def quantized(key: str, folder: pathlib.Path, activations: str) -> pathlib.Path:
    """A model as QDQ, by `tvm_ext.quantize` as it comes; open-nsfw with what it needs
    (`nsfw_images.py`).

    Args:
        key: of :data:`.models.MODELS`.
        folder: where it is written.
        activations: "uint8" or "int8".
    """
    path, model = folder / f"{key}-{activations}.onnx", MODELS[key]
    say(f"  quantizing {key}, {activations} activations")
    if key == "open-nsfw":
        inputs, options = calibration(), QUANTIZE
    else:
        inputs, options = [model.inputs(folder, seed) for seed in CALIBRATION], {}
    source, more = model.write(folder), {"activations": activations, **options}
    tvm_ext.quantize(source, calibration=inputs, **more).save(path)
    return path


def with_powers_of_two(path: pathlib.Path) -> pathlib.Path:
    """The same QDQ model with every scale the next power of two: then onnxruntime's float32 sums
    are exact, so that half-way cases, which occur all the time, are rounded as the standard
    says."""
    model, arrays = onnx.load(path), onnx.numpy_helper
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    kinds = ("QuantizeLinear", "DequantizeLinear")
    for name in {node.input[1] for node in model.graph.node if node.op_type in kinds}:
        values = np.exp2(np.ceil(np.log2(arrays.to_array(weights[name])))).astype(np.float32)
        weights[name].CopyFrom(arrays.from_array(values, name))
    changed = path.with_stem(f"{path.stem}-powers")
    onnx.save(model, changed)
    return changed
