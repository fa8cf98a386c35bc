"""Types of values inside a graph, by ONNX's inference, for definitions of operators that depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..runtime.spec import TensorSpec

if TYPE_CHECKING:
    import onnx

#: Elements of an initializer that inference may want to see: shapes, axes.
_SMALL = 1024


def value_types(
    proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], inputs: Iterable[TensorSpec]
) -> dict[str, onnx.TypeProto]:
    """Value -> type, for every value that inference knows.

    Args:
        proto: the model; of its graph only initializers are read.
        nodes: what is to be looked at in the place of the graph's nodes.
        inputs: names, dtypes and bound shapes of the inputs.
    """
    import onnx

    graph = onnx.GraphProto(name="types")
    graph.node.extend(nodes)
    for spec in inputs:
        dtype = onnx.helper.np_dtype_to_tensor_dtype(spec.numpy_dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(spec.name, dtype, spec.shape))
    for tensor in proto.graph.initializer:
        value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        graph.input.append(value)
        if max(tensor.dims, default=1) <= _SMALL:
            graph.initializer.append(tensor)
    model = onnx.ModelProto(ir_version=proto.ir_version, graph=graph, opset_import=proto.opset_import)
    found = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    return {value.name: value.type for value in (*found.input, *found.value_info)}
