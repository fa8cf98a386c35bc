"""Which converter made a value of another number of dimensions than ONNX infers for its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...core.graph.relax_graph import dtype_of, shape_of
from ..known_values import value_of
from ..naming import node_label

if TYPE_CHECKING:
    import onnx

#: Elements of an operand that inference may want to see: shapes, axes.
_SMALL = 1024


def wrong_rank(nodes: Sequence[onnx.NodeProto], values: Mapping[str, Any], opset: int) -> str:
    """The first node whose output has another number of dimensions than ONNX infers from the node's own operands.

    Args:
        nodes: of the graph, in order.
        values: name -> Relax expression, of every value of the graph.
        opset: version of the standard operators.

    Returns:
        A sentence; "" if there is no such node. Nodes that inference knows nothing of are passed over.
    """
    for node in nodes:
        for name, rank in _inferred_ranks(node, values, opset).items():
            shape = _shape(values.get(name))
            if shape is not None and len(shape) != rank:
                return f"node {node_label(node)!r} ({node.op_type}) makes {name!r} with shape {shape}, not {rank}-D"
    return ""


def _inferred_ranks(node: onnx.NodeProto, values: Mapping[str, Any], opset: int) -> dict[str, int]:
    import onnx

    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain or not onnx.defs.has(node.op_type, opset):
        return {}
    schema = onnx.defs.get_schema(node.op_type, opset)
    given = {name: values[name] for name in node.input if name in values}
    data = {name: tensor for name, value in given.items() if (tensor := _data(value)) is not None}
    types = {name: kind for name, value in given.items() if (kind := _type(value)) is not None}
    imports = [onnx.helper.make_opsetid("", opset)]
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
    except Exception:  # it is about a wrong rank that is looked for, and what follows from it
        return {}
    return {name: len(kind.tensor_type.shape.dim) for name, kind in found.items()
            if kind.tensor_type.HasField("shape")}  # fmt: skip


def _type(value: Any) -> onnx.TypeProto | None:
    import onnx

    if (shape := _shape(value)) is None:
        return None
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value)))
    return onnx.helper.make_tensor_type_proto(code, shape)


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor; None of anything else, such as a sequence."""
    return shape_of(value) if isinstance(value, relax.Expr) and dtype_of(value) else None


def _data(value: Any) -> onnx.TensorProto | None:
    """The value of a small constant."""
    from onnx import numpy_helper

    known = value_of(value)
    return numpy_helper.from_array(known) if known is not None and known.size <= _SMALL else None
