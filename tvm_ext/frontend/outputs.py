"""Outputs of a graph as those of a program: tensors, those of sequences one by one.

s = SplitToSequence(x), an output   ->   main returns s[0], s[1], s[2]
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tvm import relax
from tvm.ir import GenericConst

from ..core.errors import UnsupportedError
from ..runtime.values import ABSENT, SEQUENCE, TENSOR, Value, element_of
from .control_flow.counted import at_most
from .control_flow.sequences import Nothing, TensorList, describe
from .control_flow.subgraph import as_tensor, constant_of
from .naming import Names
from .reading.shapes import onnx_type
from .trace import Trace
from .types import type_of

#: The name of the tensor that a program makes whose outputs have none.
_NO_TENSOR = "no_tensor"


def spread_outputs(outputs: Iterable[onnx.ValueInfoProto], values: dict[str, Any], trace: Trace, names: Names) -> None:
    """Say in `trace` which tensors the outputs are, by their names, and what they are of: `returned` and `signature`.

    Args:
        outputs: of the graph.
        values: name -> what stands for it; gets the elements of sequences, and a constant where there is no tensor.
        names: of all values.
    """
    results = []
    for output in outputs:
        value = values.get(output.name)
        stated = onnx_type(output.type)
        if isinstance(value, TensorList):
            tensors = _elements(output, values, trace)
            results.append(Value(output.name, SEQUENCE, stated or onnx_type(type_of(value)), tensors))
        elif isinstance(value, Nothing):
            results.append(Value(output.name, ABSENT, stated, ()))
        else:
            plain = output
            if output.type.HasField("optional_type"):
                plain = helper.make_value_info(output.name, output.type.optional_type.elem_type)
            trace.returned.append(plain)
            results.append(Value(output.name, TENSOR, stated or onnx_type(type_of(at_most(value))), (output.name,)))
    if any(value.kind != TENSOR or value.type.startswith("optional") for value in results):
        trace.signature = tuple(results)
    if not trace.returned and results:
        name = names.fresh(_NO_TENSOR)
        values[name] = constant_of(np.zeros((), np.int64))
        trace.returned.append(helper.make_tensor_value_info(name, TensorProto.INT64, ()))


def _elements(output: onnx.ValueInfoProto, values: dict[str, Any], trace: Trace) -> tuple[str, ...]:
    """Names of the elements of a sequence, which become tensors that are returned."""
    kind = output.type.optional_type.elem_type if output.type.HasField("optional_type") else output.type
    code = kind.sequence_type.elem_type.tensor_type.elem_type
    elements = values[output.name].elements
    names = tuple(element_of(output.name, place) for place in range(len(elements)))
    for name, element in zip(names, elements, strict=True):
        values[name] = element
        if output.name in trace.makers:
            trace.makers[name] = trace.makers[output.name]
        tensor = onnx.ValueInfoProto(name=name)
        tensor.type.tensor_type.elem_type = code
        trace.returned.append(tensor)
    return names


def tensor_of(output: str, value: Any, trace: Trace, model: str) -> Any:
    """The expression of an output that is a tensor.

    Raises:
        UnsupportedError: it is none.
    """
    tensor = as_tensor(at_most(value))
    if isinstance(tensor, (relax.Var, GenericConst)) and isinstance(tensor.ty, relax.TensorType):
        return tensor
    what = f"{model}: output {output!r} of node {trace.makers.get(output, '')!r}"
    raise UnsupportedError(f"{what} is {describe(tensor)}, not a tensor", fix="take another value as output")
