"""Values of which values decide the size, in a graph that is converted: who reads them, and their counts as outputs.

i = NonZero(x), an output   ->   main returns i at its largest size and, behind all outputs, how much of it there is
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper
from tvm import relax, topi

from ..core.graph.relax_graph import dtype_of, shape_of
from ..ops import Kind, of
from ..runtime.interface import Count
from .checks.inference import types_of_outputs
from .checks.refusal import Refusal
from .control_flow.counted import Counted, at_most
from .control_flow.sequences import describe
from .control_flow.subgraph import Graph, as_tensor
from .converters import own_converter
from .converters.base import emit, operands
from .converters.selection.along import ALONG, mixed_axes, reaches
from .converters.selection.parts import PARTS, cleared, neutral, reduced_axes
from .reading.walk import attribute
from .trace import Trace

Convert = Callable[[onnx.NodeProto], None]
#: Operators that pick from their first input, where an index below 0 counts from its end.
_PICKS = ("Gather", "GatherND")
#: Operators that place elements, hand them on, or make each row of a result of one row of an operand.
_HANDED_ON = (
    *_PICKS,
    "Cast",
    "Concat",
    "Expand",
    "Gemm",
    "Identity",
    "MatMul",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)


def carry(node: onnx.NodeProto, graph: Graph, convert: Convert) -> bool:
    """Convert a node that reads what has a size that values decide, if its outputs have that size along an axis.

    Args:
        convert: converts the node, whose operands have their largest sizes meanwhile.

    Returns:
        Whether there is such an operand.

    Raises:
        Refusal: there is, and the node does more than hand on element by element what there is of it.
    """
    counted = {name: value for name in node.input if name and isinstance(value := graph.value(name), Counted)}
    if not counted:
        return False
    (name, first), *_ = counted.items()
    if _reduces(node, graph, counted, convert) or _makes_parts(node, graph, counted):
        return True
    if _works_along(node, graph, counted, convert):
        return True
    axes = _axes(node, graph, counted)
    if len(axes) < len([output for output in node.output if output]):
        fix = f"cut the model in two by onnx.utils.extract_model: one with {name!r} as an output, one with it as an "
        fix += "input; or let onnxruntime run these nodes: fallback='onnxruntime'"
        raise Refusal(f"its input {name!r} is {describe(first)}: such a node needs to know how much there is", fix=fix)
    _convert_as(node, graph, counted, {}, convert)
    for output, axis in axes.items():
        tensor = graph.value(output)
        tensor = emit(tensor) if isinstance(tensor, (relax.Call, relax.TupleGetItem)) else tensor
        graph.bind(output, dataclasses.replace(first, tensor=tensor, axis=axis))
    return True


def _convert_as(
    node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], tensors: Mapping[str, Any], convert: Convert
) -> None:
    """Convert a node with tensors in the place of operands; others that are counted have their largest sizes."""
    tensors = {**{operand: value.tensor for operand, value in counted.items()}, **tensors}
    before = {operand: graph.value(operand) for operand in tensors}
    try:
        for operand, tensor in tensors.items():
            graph.bind(operand, tensor)
        convert(node)
    finally:
        for operand, value in before.items():
            graph.bind(operand, value)


def _reduces(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: Convert) -> bool:
    """Convert a reduction over the axis that is counted, of what there is; whether it is one."""
    value = counted.get(node.input[0])
    if value is None or node.domain not in ("", "ai.onnx"):
        return False
    filling = neutral(node.op_type, dtype_of(value.tensor))
    axes = reduced_axes(node, graph, len(shape_of(value.tensor) or ()))
    if filling is None or axes is None or value.axis not in axes:
        return False
    _convert_as(node, graph, counted, {node.input[0]: cleared(value, filling)}, convert)
    return True


def _makes_parts(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> bool:
    """Convert a node whose operator takes a part of what there can be for what there is; whether it is one."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in PARTS:
        return False
    if (result := PARTS[node.op_type](node, graph, counted)) is None:
        return False
    graph.bind(node.output[0], result)
    return True


def _works_along(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: Convert) -> bool:
    """Convert a node that works along what is counted, or by indices that are; whether it is one."""
    reads = [name for name in node.input if name]
    if node.domain not in ("", "ai.onnx") or node.op_type not in ALONG or len({*reads}) < len(reads):
        return False
    return ALONG[node.op_type](
        node, graph, counted, lambda tensors: _convert_as(node, graph, counted, tensors, convert)
    )


def _axes(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> dict[str, int]:
    """Output -> its axis of the size that values decide, as ONNX infers it; nothing of one that has none or two."""
    sizes, reads = {value.size for value in counted.values()}, [name for name in node.input if name]
    picked = counted.get(node.input[0]) if node.op_type in _PICKS else None
    axis = attribute(node, "axis", 0) if node.op_type == "Gather" else None
    behind_the_end = picked is not None and (axis is None or axis % len(shape_of(picked.tensor) or (1,)) == picked.axis)
    if len(sizes) > 1 or behind_the_end or not _is_elementwise(node, graph, counted):
        return {}
    known = {name: value for name in reads if (value := graph.known(name)) is not None}
    types = types_of_outputs(node, graph.opsets, {name: graph.type_of(name) for name in reads}, known)
    axes = {name: [a for a, d in enumerate(kind.tensor_type.shape.dim) if d.dim_param in sizes]
            for name, kind in types.items()}  # fmt: skip
    return {name: places[0] for name, places in axes.items() if len(places) == 1}


def _is_elementwise(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> bool:
    """Whether each element of what a node makes is of one element of each operand along what is counted."""
    row = of(node.op_type)
    over_axes = row.kind is Kind.REDUCTION and row.shape_operands.get(1) == "axes"
    known = node.op_type in _HANDED_ON or over_axes or row.kind is Kind.ELEMENTWISE
    return node.domain in ("", "ai.onnx") and (known or _works_across(node, graph, counted))


def _works_across(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> bool:
    """Whether a node works along other axes than those that are counted."""
    value = counted.get(node.input[0])
    if value is None:
        if node.op_type != "GatherElements":
            return False
        shape, reach = (shape_of(at_most(graph.value(name))) or () for name in node.input)
        return reaches(shape, reach, attribute(node, "axis", 0) % len(reach))
    mixed = mixed_axes(node, graph, len(shape_of(value.tensor) or (1,)))
    return mixed is not None and value.axis not in mixed


def convert_counting(node: onnx.NodeProto, graph: Graph, inputs: Sequence[Any]) -> None:
    """Convert a node whose operator's own converter returns a list, and bind its outputs."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    convert = own_converter(node.op_type)
    assert convert is not None
    values = convert(operands([*map(as_tensor, inputs)]), {**attributes, "tvm_custom": {"graph": graph}}, graph.opset)
    for name, value in zip(node.output, values, strict=False):
        if name:
            graph.bind(name, value)


def add_counts(outputs: Sequence[onnx.ValueInfoProto], values: dict[str, Any], trace: Trace) -> list[str]:
    """Make the counts of outputs of the graph outputs of the program, behind all others.

    Args:
        outputs: of the graph, whose variables `trace.outputs` has.
        values: name -> what stands for it; gets the counts.

    Returns:
        The names of the counts.
    """
    numbers: dict[str, int] = {}
    for output in outputs:
        if not isinstance(value := values.get(output.name), Counted):
            continue
        if value.size not in numbers:
            numbers[value.size] = len(trace.outputs)
            builder = relax.BlockBuilder.current()
            var = builder.emit(builder.call_te(topi.identity, value.count, primfunc_name_hint="count"))
            trace.results[var] = (value.size, [trace.makers[output.name]] if output.name in trace.makers else [])
            trace.outputs.append(var)
            values[value.size] = var
        trace.counts[output.name] = Count(value.axis, numbers[value.size])
    return list(numbers)
