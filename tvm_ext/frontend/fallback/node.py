"""The ONNX node that a region of others becomes: what stands for it in a model, and the call that it is in a program.

y = tvm_ext.fallback.Region(x) {program, nodes, ops, reasons, makers, types}   ->   y = call_tir(region, (program, x))
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from ...byoc.kernel import kernel_of
from ...byoc.region import Region, Value
from ...core.graph.offload_plan import OffloadedRegion
from ...core.graph.relax_graph import dtype_of, shape_of
from ..reading.walk import attribute

Type = tuple[tuple[int, ...], str]
"""Shape and dtype."""
#: Of the node; no model of anybody else has it.
DOMAIN = "tvm_ext.fallback"
_OPERATOR = "Region"


def region_node(
    name: str, program: bytes, inputs: Sequence[str], outputs: Mapping[str, tuple[str, onnx.TypeProto]],
    nodes: Mapping[str, tuple[str, str]],
) -> onnx.NodeProto:  # fmt: skip
    """The node of a region.

    Args:
        name: a valid identifier.
        program: what its driver gets.
        inputs: values that it reads.
        outputs: value that it makes -> label of the node that makes it, and its type.
        nodes: label of each node in it -> its operator, and why it is there.
    """
    return helper.make_node(
        _OPERATOR, inputs, list(outputs), name, domain=DOMAIN, program=program, nodes=list(nodes),
        ops=[op for op, _ in nodes.values()], reasons=[why for _, why in nodes.values()],
        makers=[maker for maker, _ in outputs.values()], types=[kind for _, kind in outputs.values()],
    )  # fmt: skip


def is_region(node: onnx.NodeProto) -> bool:
    """Whether a node stands for a region."""
    return node.domain == DOMAIN and node.op_type == _OPERATOR


def types_of_region(node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
    """Output -> type; nothing of any other node."""
    return dict(zip(node.output, attribute(node, "types"), strict=True)) if is_region(node) else {}


def labels_of(node: onnx.NodeProto, label: str) -> list[str]:
    """Labels of the nodes whose work a node is: that of itself, or of those in a region."""
    return _texts(node, "nodes") if is_region(node) else [label]


def makers_of(node: onnx.NodeProto, label: str) -> dict[str, str]:
    """Output -> label of the node that makes it."""
    if is_region(node):
        return dict(zip(node.output, _texts(node, "makers"), strict=True))
    return dict.fromkeys(node.output, label)


def operators_of(node: onnx.NodeProto, label: str) -> dict[str, str]:
    """Label of each node that this one stands for -> its operator."""
    if is_region(node):
        return dict(zip(_texts(node, "nodes"), _texts(node, "ops"), strict=True))
    return {label: node.op_type}


def call_of(node: onnx.NodeProto, inputs: Sequence[Any]) -> tuple[list[Any], OffloadedRegion]:
    """The call that a region becomes, and what the report says of it.

    Args:
        node: of a region.
        inputs: Relax expression of each of its inputs: tensors.

    Returns:
        The expression of each output, and the region.
    """
    from ...byoc.onnxruntime.backend import BACKEND
    from ..checks.inference import static_type

    nodes = zip(operators_of(node, "").items(), _texts(node, "reasons"), strict=True)
    return emit_call(
        node.name, (BACKEND.name, BACKEND.module), attribute(node, "program"), inputs,
        [static_type(kind) or ((), "") for kind in types_of_region(node).values()],
        {label: (op, why) for (label, op), why in nodes},
    )  # fmt: skip


def _texts(node: onnx.NodeProto, name: str) -> list[str]:
    return [text.decode() for text in attribute(node, name)]


def emit_call(
    name: str, driver: tuple[str, str], code: bytes, inputs: Sequence[Any], outputs: Sequence[Type],
    nodes: Mapping[str, tuple[str, str]], facts: Mapping[str, Any] | None = None,
) -> tuple[list[Any], OffloadedRegion]:  # fmt: skip
    """Emit the call of a region into the function that is being built.

    Args:
        name: of the region: a valid identifier.
        driver: name of its back end, and the module whose import registers its driver.
        code: its program.
        inputs: Relax expression of each of its inputs: tensors.
        outputs: what it makes.
        nodes: label of each ONNX node in it -> its operator, and why it is there.
        facts: more of it for the report.

    Returns:
        The expression of each output, and the region.
    """
    builder = relax.BlockBuilder.current()
    inputs = inputs or [relax.const(np.zeros(1, np.uint8))]  # TVM takes a kernel of one argument for a reshape
    reads = [Value(f"x{i}", shape_of(x) or (), dtype_of(x)) for i, x in enumerate(inputs)]
    makes = [Value(f"y{i}", *kind) for i, kind in enumerate(outputs)]
    kernel = builder.add_func(kernel_of(Region(name, (), tuple(reads), tuple(makes)), len(code)), name)
    program = relax.const(np.frombuffer(code, np.uint8))
    types = [relax.TensorType(*kind) for kind in outputs]
    call = builder.emit(relax.call_tir(kernel, [program, *inputs], types if len(types) > 1 else types[0]))
    results = [relax.TupleGetItem(call, i) for i in range(len(types))] if len(types) > 1 else [call]
    reasons = {node: why for node, (_, why) in nodes.items()}
    ops = tuple(op for op, _ in nodes.values())
    region = OffloadedRegion(
        name, *driver, program, kernel.name_hint, tuple(nodes), (("nodes", ops),), None, None,
        {"reasons": reasons, **(facts or {})},
    )  # fmt: skip
    return results, region
