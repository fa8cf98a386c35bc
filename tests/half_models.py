"""float32 models as exporters of half precision write them: every float32 tensor of the graph becomes float16."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper


def in_half(model: onnx.ModelProto, dtype: int = TensorProto.FLOAT16) -> onnx.ModelProto:
    """A copy of the model in float16 (or another narrow type): inputs, outputs, initializers, constants and casts."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    graph = half.graph
    del graph.value_info[:]
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = dtype
    for tensor in [*graph.initializer, *_constants(graph)]:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(dtype))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = dtype
    return half


def in_half_of(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs of the model in float16."""
    return {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in inputs.items()}


def _constants(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    for node in graph.node:
        yield from (a.t for a in node.attribute if a.type == AttributeProto.TENSOR)
