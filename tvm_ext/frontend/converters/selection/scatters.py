"""ScatterElements, which was Scatter, and ScatterND of truth values."""

import functools
from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of, shape_of
from ...checks.refusal import Refusal
from ..base import Attributes, Converter, as_dtype, constant, converts, emit, operands, static_shape, stock, text

#: The version that renamed Scatter to ScatterElements; and that with "min" and "max", which onnxruntime takes before.
_SCATTERS, _ORDERS = 11, 18
#: What changes nothing by a reduction; the others take an element's own value twice without harm.
_NEUTRAL = {"add": 0, "mul": 1}


@converts("Scatter")
def scatter_elements(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ScatterElements whose indices do not reach to the end of the data in some dimension other than the axis.

    TVM's kernel takes their shapes for equal there. Rows that get nothing therefore get updates that change nothing:
    their own first element, or 0 to add, or 1 to multiply by.
    """
    data, indices, updates = inputs[0], inputs[1], inputs[2]
    shape, reach = static_shape(data, "the data of ScatterElements"), static_shape(indices, "its indices")
    if len(reach) != len(shape) or static_shape(updates, "its updates") != reach:
        raise Refusal(f"indices of shape {reach} and updates of shape {shape_of(updates)} for data of shape {shape}")
    axis = int(attributes.get("axis", 0)) % len(shape)
    if 0 in reach:
        return data
    neutral = _NEUTRAL.get(text(attributes, "reduction", "none"))
    done = list(reach)
    for d, size in enumerate(shape):
        if d == axis or done[d] == size:
            continue
        rest = [size - done[d] if a == d else n for a, n in enumerate(done)]
        if neutral is None:
            begin = [done[d] if a == d else 0 for a in range(len(shape))]
            end = [1 if a == axis else size if a == d else n for a, n in enumerate(done)]
            more = relax.op.broadcast_to(relax.op.strided_slice(data, list(range(len(shape))), begin, end), rest)
        else:
            more = constant(np.full(rest, neutral), dtype_of(data))
        indices = emit(relax.op.concat([indices, constant(np.zeros(rest), dtype_of(indices))], d))
        updates = emit(relax.op.concat([updates, more], d))
        done[d] = size
    return stock("ScatterElements", [data, indices, updates], attributes, _version(attributes, opset))


def scatter_nd(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ScatterND, with truth values reduced as numbers."""
    return stock("ScatterND", inputs, attributes, _version(attributes, opset))


def _version(attributes: Attributes, opset: int) -> int:
    return max(opset, _ORDERS if text(attributes, "reduction", "none") in ("min", "max") else _SCATTERS)


def _of_numbers(convert: Converter) -> Converter:
    """The converter, by which truth values are reduced as numbers: TVM has no largest one of them."""

    @functools.wraps(convert)
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        if dtype_of(inputs[0]) != "bool" or text(attributes, "reduction", "none") == "none":
            return convert(inputs, attributes, opset)
        data, updates = (as_dtype(x, "int32") for x in (inputs[0], inputs[2]))
        return as_dtype(emit(convert(operands([data, inputs[1], updates]), attributes, opset)), "bool")

    return converter


converts("ScatterElements")(_of_numbers(scatter_elements))
converts("ScatterND")(_of_numbers(scatter_nd))
