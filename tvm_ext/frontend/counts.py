"""Values of which values decide the size, in a graph that is converted: who reads them, and their counts as outputs.

i = NonZero(x), an output   ->   main returns i at its largest size and, behind all outputs, how much of it there is
"""

from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import helper
from tvm import relax, topi

from ..runtime.interface import Count
from .checks.refusal import Refusal
from .control_flow.counted import Counted
from .control_flow.sequences import describe
from .control_flow.subgraph import Graph, as_tensor
from .converters import own_converter
from .converters.base import operands
from .trace import Trace


def check_counted(node: onnx.NodeProto, value: Callable[[str], Any]) -> None:
    """See that no operand of a node has a size that values decide.

    Args:
        value: what a name stands for.

    Raises:
        Refusal: names the operand.
    """
    for name in filter(None, node.input):
        if isinstance(operand := value(name), Counted):
            fix = (
                f"cut the model in two by onnx.utils.extract_model: one with {name!r} as an output, one with it as an "
            )
            fix += "input; or let onnxruntime run these nodes: fallback='onnxruntime'"
            raise Refusal(f"its input {name!r} is {describe(operand)}, which can only be an output", fix=fix)


def convert_counting(node: onnx.NodeProto, graph: Graph, inputs: Sequence[Any]) -> None:
    """Convert a node whose operator's own converter returns a list, and bind its outputs."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    convert = own_converter(node.op_type)
    assert convert is not None
    values = convert(operands(map(as_tensor, inputs)), {**attributes, "tvm_custom": {"graph": graph}}, graph.opset)
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
