"""A model in double precision, by ONNX's reference evaluator: how far float32 may be from the truth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class GlobalMaxPool(OpRun):
    """The evaluator's own one knows images only."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def float64_outputs(model: bytes, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name, of the model with float64 in the place of float32; seconds to minutes."""
    proto = in_double(onnx.ModelProto.FromString(model))
    feeds = {name: x.astype(np.float64) if x.dtype == np.float32 else x for name, x in inputs.items()}
    names = [output.name for output in proto.graph.output]
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(proto, new_ops=[GlobalMaxPool]).run(names, feeds)
    return dict(zip(names, map(np.asarray, found), strict=True))


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model without graphs inside nodes, with every float32 a float64."""
    return in_floats(model, TensorProto.DOUBLE)


def in_floats(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """A copy of a model without graphs inside nodes, with every float32 a float of another kind: so are exports in
    half precision."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    graph = proto.graph
    del graph.value_info[:]
    for tensor in graph.initializer:
        _convert(tensor, kind)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _convert(attribute.t, kind)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = kind
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    return proto


def _convert(tensor: TensorProto, kind: int) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
