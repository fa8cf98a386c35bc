"""Narrow forms of the models: float16 within, as converters export them, and quantized."""

import functools
import itertools
import pathlib

import numpy as np
import onnx
import tvm_ext
from onnx import TensorProto, helper, numpy_helper
from tests.oracles.float64 import in_floats

from benchmarks.common.results import say
from benchmarks.models.models import MODELS
from benchmarks.models.nsfw_images import QUANTIZE, calibration


@functools.cache
def half(key: str, folder: pathlib.Path) -> pathlib.Path:
    """A model whose tensors are float16, and its file in a folder; what is beyond float16 is its
    largest number.

    Args:
        key: of :data:`.models.MODELS`.
    """
    path = folder / f"{key}-float16.onnx"
    proto = in_floats(onnx.load(MODELS[key].write(folder)), TensorProto.FLOAT16)
    graph = proto.graph
    constants = (a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute)
    for tensor in itertools.chain(graph.initializer, constants):
        if tensor.data_type == TensorProto.FLOAT16:
            array = np.nan_to_num(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    _cast_ends(graph)
    onnx.save(proto, path)
    return path


def _cast_ends(graph: onnx.GraphProto) -> None:
    """Make the inputs and outputs of a graph float32 again."""
    ends = {"input": list(graph.input), "output": list(graph.output)}
    casts: dict[str, list[onnx.NodeProto]] = {"input": [], "output": []}
    for side, infos in ends.items():
        for info in infos:
            if info.type.tensor_type.elem_type != TensorProto.FLOAT16:
                continue
            inner, kind = f"{info.name}_half", TensorProto.FLOAT
            for names in (names for node in graph.node for names in (node.input, node.output)):
                names[:] = [inner if name == info.name else name for name in names]
            pair = ([info.name], [inner]) if side == "input" else ([inner], [info.name])
            to = TensorProto.FLOAT16 if side == "input" else kind
            casts[side].append(helper.make_node("Cast", *pair, f"cast_{info.name}", to=to))
            info.type.tensor_type.elem_type = kind
    nodes = [*casts["input"], *graph.node, *casts["output"]]
    del graph.node[:]
    graph.node.extend(nodes)


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
