"""The ONNX model as text, as the import reads it: inputs frozen, functions inlined, nodes in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.options import CompileOptions
from ..frontend.checks.checker import check_model
from ..frontend.reading.freezing import frozen_source
from ..frontend.reading.reader import Source
from ..frontend.reading.tensors import type_name

if TYPE_CHECKING:
    import onnx

#: Elements of a tensor that is written out.
SHOWN_ELEMENTS = 16


def onnx_text(source: Source, options: CompileOptions) -> str:
    """The model in ONNX's own text syntax, after lines about the tensors whose values are left out.

    Raises:
        ModelError, OptionError, UnsupportedError: as the import says them.
    """
    import onnx.printer

    converted = options.fallback == "error"  # else some nodes may be none that can be
    checked = check_model(frozen_source(source, options.freeze), dict(options.shapes), operators=converted)
    model = type(source.proto)()
    model.ir_version, model.producer_name = source.proto.ir_version, source.proto.producer_name
    for domain, version in checked.opsets.items():
        model.opset_import.add(domain=domain, version=version)
    _fill(model.graph, checked.graph)
    left_out = []
    for node in checked.nodes:
        if (elements := _large(node)) is None:
            model.graph.node.add().CopyFrom(node)
        else:
            left_out.append(f"{elements} {node.output[0]}, by {node.op_type}")
    for tensor in checked.graph.initializer:
        if np.prod(tensor.dims, dtype=np.int64) <= SHOWN_ELEMENTS:
            model.graph.initializer.add().CopyFrom(tensor)
        else:
            left_out.append(f"{_type_text(tensor)} {tensor.name}")
    head = (
        [f"# {source.name}: tensors without their values:", *(f"#   {line}" for line in left_out)] if left_out else []
    )
    return "\n".join([*head, onnx.printer.to_text(model)]).rstrip() + "\n"


def _fill(graph: onnx.GraphProto, source: onnx.GraphProto) -> None:
    graph.name = source.name or "graph"
    weights = {tensor.name for tensor in source.initializer}
    graph.input.extend(value for value in source.input if value.name not in weights)
    graph.output.extend(source.output)


def _large(node: onnx.NodeProto) -> str | None:
    """Type and shape of a constant that is too large to write out; None for any other node."""
    if node.op_type != "Constant":
        return None
    tensors = [attribute.t for attribute in node.attribute if attribute.name == "value"]
    large = [tensor for tensor in tensors if np.prod(tensor.dims, dtype=np.int64) > SHOWN_ELEMENTS]
    return _type_text(large[0]) if large else None


def _type_text(tensor: onnx.TensorProto) -> str:
    return f"{type_name(tensor.data_type).lower()}{list(tensor.dims)}"
