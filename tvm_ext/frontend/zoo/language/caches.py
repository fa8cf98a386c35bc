"""What the caches of a language model hold: numbers of float32, or of float16, which are half as many bytes to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import OptionError
from ....runtime.language.options import CACHES

if TYPE_CHECKING:
    import onnx

_ATTENTION = ("GroupQueryAttention", "PagedAttention")


def check_cache(cache: str) -> None:
    """Raise an OptionError for a type that caches cannot hold."""
    if cache not in CACHES:
        raise OptionError(f"cache={cache!r}: {' or '.join(CACHES)}", fix="cache='float16'")


def with_caches(model: onnx.ModelProto, cache: str) -> onnx.ModelProto:
    """A language model of float32, whose caches hold this type: of float16 the attentions compute as a whole.

    That is the form in which onnxruntime has it: queries, new keys and values, cosines and sines are rounded in front
    of an attention, and its result is of float32 again.
    """
    from onnx import TensorProto, helper, numpy_helper

    if cache == "float32":
        return model
    graph = model.graph
    for tensor in (*graph.input, *graph.output):
        if tensor.name.startswith(("past_key_values.", "present.")):
            tensor.type.tensor_type.elem_type = TensorProto.FLOAT16
    for index, tensor in enumerate(graph.initializer):
        if tensor.name in ("rope.cos", "rope.sin"):
            halves = numpy_helper.to_array(tensor).astype(np.float16)
            graph.initializer[index].CopyFrom(numpy_helper.from_array(halves, tensor.name))
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.op_type not in _ATTENTION:
            graph.node.append(node)
            continue
        for index, name in enumerate(node.input[:3]):
            if name:
                node.input[index] = f"{name}.float16"
                graph.node.append(
                    helper.make_node("Cast", [name], [node.input[index]], f"{name}.cast", to=TensorProto.FLOAT16)
                )
        result, node.output[0] = node.output[0], f"{node.output[0]}.float16"
        cast = helper.make_node("Cast", [node.output[0]], [result], f"{result}.cast", to=TensorProto.FLOAT)
        graph.node.extend([node, cast])
    return model
