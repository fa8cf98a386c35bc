"""Half precision forms of the models, as converters export them: float16 within, float32 at the
inputs and outputs."""

import functools
import itertools
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.oracles.float64 import in_floats

from benchmarks.models.models import MODELS


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
