"""Nodes over no elements, which stock converters and TVM's operators do not expect.

y = Expand(x, (0, 4)), y = Slice(x, 7, 3), y = Resize(x of 0 rows)   ->   a constant of no elements
y = ScatterND(x, no indices)                                         ->   y = x
y = ReduceMean(x of 0 rows)                                          ->   y = NaN, as in numpy; 0 of integers
y = ConvTranspose(x of 0 rows, w, b)                                 ->   y = b
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from ..core.graph.relax_graph import dtype_of, shape_of
from .checks.inference import dims_known
from .checks.refusal import Refusal
from .control_flow.subgraph import as_tensor, constant_of
from .reading.shapes import NO_NUMBERS, type_name
from .reading.walk import attribute

#: Operators that write some elements of their first input.
_SCATTERS = ("Scatter", "ScatterElements", "ScatterND")
#: Operators that divide by how many elements there are.
_MEANS = ("GlobalAveragePool", "ReduceMean")
_PICKS = ("ArgMax", "ArgMin")
#: Operators that read between elements, at places that are computed.
_SAMPLERS = ("GridSample", "MaxRoiPool", "RoiAlign")
#: Operators of which, as of Range, ONNX infers no elements where what they are told does not fit: converters say so.
_BLOCKS = ("DepthToSpace", "SpaceToDepth")
#: Operators that add products of elements to a bias for each channel, their third input.
_CONVOLUTIONS = ("Conv", "ConvTranspose")


def outputs_of_nothing(
    node: onnx.NodeProto, inputs: Sequence[Any], infer: Callable[[], Sequence[onnx.TypeProto]]
) -> list[Any] | None:
    """What a node makes, if no element of its operands has a part in it, or only those of its first one.

    Args:
        inputs: Relax expression of each input; None for one that is left out.
        infer: what ONNX infers of each output; nothing where it does not know.

    Returns:
        One expression an output; None if a converter has to say.

    Raises:
        Refusal: it picks, or repeats, one of no elements.
    """
    if node.op_type in _SCATTERS and is_empty(inputs[1]):
        return [as_tensor(inputs[0])]
    types = infer()
    shapes = [dims_known(kind) for kind in types]
    if (
        not types
        or any(shape is None or None in shape for shape in shapes)
        or any(type_name(t.tensor_type.elem_type) in NO_NUMBERS for t in types)
    ):
        return None
    if node.op_type == "Range" or (node.op_type in _BLOCKS and not is_empty(inputs[0])):
        return None
    if all(0 in (shape or ()) for shape in shapes):
        return [_filled(kind, 0) for kind in types]
    if node.op_type in _PICKS and is_empty(inputs[0]):
        raise Refusal("there is nothing to pick: the dimension it looks along has size 0")
    if node.op_type in _MEANS and is_empty(inputs[0]):
        return [_filled(types[0], math.nan if "float" in dtype_of(inputs[0]) else 0)]
    if _repeats(node) and is_empty(inputs[0]):
        raise Refusal("there is nothing to repeat: a dimension has size 0")
    if node.op_type in _SAMPLERS and is_empty(inputs[0]):
        raise Refusal("there is nothing to sample: a dimension has size 0")
    if node.op_type in _CONVOLUTIONS and any(map(is_empty, inputs[:2])):
        zeros, bias = _filled(types[0], 0), inputs[2] if len(inputs) > 2 else None
        return [zeros if bias is None else zeros + relax.op.reshape(bias, (-1, *[1] * (len(shapes[0] or ()) - 2)))]
    return None


def is_empty(x: Any) -> bool:
    """Whether an operand is a tensor of no elements."""
    return isinstance(x, relax.Expr) and bool(dtype_of(x)) and 0 in (shape_of(x) or ())


def _repeats(node: onnx.NodeProto) -> bool:
    """Whether it puts elements of its operand around it."""
    return node.op_type == "Pad" and attribute(node, "mode", b"constant") != b"constant"


def _filled(kind: onnx.TypeProto, value: float) -> Any:
    dtype = helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
    dims = [d.dim_value for d in kind.tensor_type.shape.dim]
    return constant_of(np.full(dims, value, dtype))
