"""Operators along an axis that is counted: what lies behind the count changes no result, and no index means it.

ArgMax(x), x = [3, 7 | 9, 9] of which there are 2   ->   ArgMax([3, 7, -inf, -inf])
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from ....core.graph.relax_graph import dtype_of
from ...control_flow.counted import Counted
from ...control_flow.subgraph import Graph, as_tensor
from ...reading.walk import attribute
from ..base import as_dtype, constant, emit, scalar, static_shape
from ..reductions import extreme_of_nothing
from .parts import PARTS, cleared, part

#: Converts the node with these tensors as operands; others that are counted have their largest size.
ConvertWith = Callable[[Mapping[str, Any]], None]
#: Binds the outputs of a node of which inputs are counted; whether it could.
Along = Callable[[onnx.NodeProto, Graph, Mapping[str, Counted], ConvertWith], bool]
#: The version from which a softmax is of one axis.
_ONE_AXIS = 13
_SOFTMAX = ("Hardmax", "LogSoftmax", "Softmax")
_NORMS = ("LayerNormalization", "RMSNormalization")
#: Axes that nodes have that state none, beside those of softmax.
_DEFAULTS = {"ArgMax": 0, "ArgMin": 0, "GatherElements": 0, "Split": 0, "TopK": -1, **dict.fromkeys(_NORMS, -1)}


def mixed_axes(node: onnx.NodeProto, graph: Graph, rank: int) -> set[int] | None:
    """Axes of the first operand of which a result takes several elements; None of other operators, and if not known.

    Args:
        rank: of the first operand.
    """
    op = node.op_type
    if op in ("CumProd", "CumSum"):
        known = graph.known(node.input[1])
        return None if known is None else {int(known.reshape(-1)[0]) % rank}
    if op == "Pad":
        pads = _pads(node, graph, rank)
        return None if pads is None else {a for a, both in pads.items() if any(both)}
    if op not in (*_SOFTMAX, *_DEFAULTS):
        return None
    joined = op in _SOFTMAX and graph.opset < _ONE_AXIS
    axis = attribute(node, "axis", _DEFAULTS.get(op, 1 if joined else -1)) % rank
    return set(range(axis, rank)) if joined or op in _NORMS else {axis}


def _bound(graph: Graph, name: str) -> Any:
    """What a name stands for, as a variable."""
    value = graph.value(name)
    return emit(value) if isinstance(value, (relax.Call, relax.TupleGetItem)) else value


def _count(value: Counted) -> Any:
    return emit(relax.op.reshape(value.count, ()))


# ------------------------------------------------------------ what changes nothing
def _keeps(filling: Callable[[str], float | int | bool]) -> Along:
    """A result of as much as the operand.

    Args:
        filling: dtype -> what changes nothing.
    """

    def convert_along(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
        value = _mixed(node, graph, counted)
        if value is None:
            return False
        convert({node.input[0]: cleared(value, filling(dtype_of(value.tensor)))})
        graph.bind(node.output[0], dataclasses.replace(value, tensor=_bound(graph, node.output[0])))
        return True

    return convert_along


def _mixed(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> Counted | None:
    """The first operand, if it is the only one that is counted, along an axis that the operator mixes."""
    value = counted.get(node.input[0])
    if value is None or len(counted) > 1:
        return None
    mixed = mixed_axes(node, graph, len(static_shape(value.tensor, "x")))
    return None if mixed is None or value.axis not in mixed else value


def _arg_extreme(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    """The index of an extreme; of the last one of several at most that of the last element."""
    if (value := _mixed(node, graph, counted)) is None:
        return False
    filling = extreme_of_nothing(dtype_of(value.tensor), largest=node.op_type == "ArgMax")
    convert({node.input[0]: cleared(value, filling)})
    last = emit(relax.op.maximum(emit(_count(value) - constant(1)), constant(0)))
    graph.bind(node.output[0], emit(relax.op.minimum(_bound(graph, node.output[0]), last)))
    return True


def _top_k(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    """The k first of what there is in order; all where these are less."""
    if (value := _mixed(node, graph, counted)) is None:
        return False
    x, *operands = node.input  # k is an attribute before opset 10
    dtype, size, largest = (
        dtype_of(value.tensor),
        static_shape(value.tensor, "x")[value.axis],
        attribute(node, "largest", 1),
    )
    known = graph.known(operands[0]) if operands else np.array([attribute(node, "k", 0)])
    most = size if known is None else min(size, int(known.reshape(-1)[0]))
    if most < 1:
        return False
    last = math.nan if "float" in dtype and not largest else extreme_of_nothing(dtype, largest=bool(largest))
    wanted = as_tensor(graph.value(operands[0])) if operands else constant(known)
    count = emit(relax.op.minimum(_count(value), emit(relax.op.reshape(wanted, ()))))
    convert({x: cleared(value, last), **{k: constant([most]) for k in operands}})
    first: Counted | None = None
    for name in filter(None, node.output):
        tensor = _bound(graph, name)
        first = part(graph, node, value, tensor, value.axis, count) if first is None else first
        graph.bind(name, dataclasses.replace(first, tensor=tensor))
    return True


def _pads(node: onnx.NodeProto, graph: Graph, rank: int) -> dict[int, tuple[int, int]] | None:
    """Axis -> elements that a Pad adds before and behind; None where they are not known."""
    if len(node.input) < 2 or (pads := graph.known(node.input[1])) is None:
        return None
    axes = graph.known(node.input[3]) if len(node.input) > 3 and node.input[3] else np.arange(rank)
    if axes is None:
        return None
    before, behind = pads.reshape(2, -1).tolist()
    return {int(a) % rank: both for a, both in zip(axes, zip(before, behind, strict=True), strict=True)}


def _pad(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    """A number before and behind what there is."""
    value = _mixed(node, graph, counted)
    number = graph.known(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    if value is None or number is None or attribute(node, "mode", b"constant") != b"constant":
        return False
    pads = _pads(node, graph, len(static_shape(value.tensor, "x")))
    if pads is None or min(pads[value.axis]) < 0:
        return False
    convert({node.input[0]: cleared(value, number.astype(dtype_of(value.tensor)).reshape(-1)[0].item())})
    count = emit(_count(value) + constant(sum(pads[value.axis])))
    graph.bind(node.output[0], part(graph, node, value, _bound(graph, node.output[0]), value.axis, count))
    return True


def _tile(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    """What there is, several times: along its axis, or along others."""
    value, repeats = counted.get(node.input[0]), graph.known(node.input[1])
    if value is None or repeats is None or (times := int(repeats[value.axis])) < 1:
        return False
    if times == 1:
        convert({})
        graph.bind(node.output[0], dataclasses.replace(value, tensor=_bound(graph, node.output[0])))
        return True
    joint = helper.make_node("Concat", [node.input[0]] * times, node.output, axis=value.axis)
    if repeats.prod() == times:
        graph.bind(node.output[0], PARTS["Concat"](joint, graph, counted))
    return bool(repeats.prod() == times)


# ------------------------------------------------------------ what counts again
def _non_zero(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    value = counted[node.input[0]]
    convert({node.input[0]: cleared(value, False if dtype_of(value.tensor) == "bool" else 0)})
    return True


def _compress(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    """What there is where the condition is true, as far as there is a condition."""
    x, condition = node.input
    data, mask, axis = counted.get(x), counted.get(condition), attribute(node, "axis")
    kept = mask.tensor if mask else as_tensor(graph.value(condition))
    if data is not None:
        shape, each = static_shape(data.tensor, "x"), 1
        if axis is None and math.prod(shape[: data.axis]) == 1:
            each = math.prod(shape[data.axis + 1 :])
        elif axis is None or axis % len(shape) != data.axis:
            return False
        count = emit(_count(data) * constant(each))
        kept = cleared(dataclasses.replace(data, tensor=kept, axis=0, count=count), False)
    convert({condition: kept if mask is None else cleared(dataclasses.replace(mask, tensor=kept), False)})
    return True


def _non_max_suppression(
    node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith
) -> bool:
    """The best boxes of those that there are: others have no number as their score."""
    boxes, scores = (counted.get(name) for name in node.input[:2])
    if boxes is None or scores is None or len(counted) > 2 or boxes.size != scores.size:
        return False
    if (boxes.axis, scores.axis) != (1, 2):
        return False
    convert({node.input[1]: cleared(scores, math.nan)})
    return True


# ------------------------------------------------------------ indices
def _inside(indices: Any, sizes: Any) -> Any:
    """Indices from 0 on, int64, of those of which some count from the end; of one beyond it, the nearest.

    Args:
        sizes: int64, a number, or one for each coordinate, the last dimension.
    """
    i = as_dtype(as_tensor(indices), "int64")
    i = emit(relax.op.where(emit(relax.op.less(i, constant(0))), emit(i + sizes), i))
    return emit(relax.op.maximum(emit(relax.op.minimum(i, emit(sizes - constant(1)))), constant(0)))


def _sizes(value: Any, coordinates: int) -> Any:
    """The sizes of the first dimensions of a tensor, of which one may be counted."""
    shape = static_shape(value.tensor if isinstance(value, Counted) else value, "what it picks from")[:coordinates]
    if not isinstance(value, Counted) or value.axis >= coordinates:
        return constant(np.array(shape, np.int64))
    is_counted = constant(np.arange(coordinates) == value.axis)
    return emit(relax.op.where(is_counted, emit(relax.op.reshape(value.count, (1,))), constant(np.array(shape))))


def _picks(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    """Elements of what there is, as many as there are indices."""
    data, index = (counted.get(name) for name in node.input[:2])
    if data is None:
        return False
    indices = index.tensor if index else as_tensor(graph.value(node.input[1]))
    shape, reach = static_shape(data.tensor, "x"), static_shape(indices, "the indices")
    if node.op_type == "GatherND":
        if attribute(node, "batch_dims", 0) or (data.axis >= reach[-1] and index is not None):
            return False
        sizes, axis = _sizes(data, reach[-1]), 0
        left = data.axis - reach[-1] + len(reach) - 1 if data.axis >= reach[-1] else None
    else:
        axis, left = attribute(node, "axis", 0) % len(shape), None
        if axis != data.axis or (node.op_type == "GatherElements" and not reaches(shape, reach, axis)):
            return False
        sizes, axis = _count(data), axis if node.op_type == "Gather" else 0
    if index is not None and node.op_type == "GatherND" and index.axis == len(reach) - 1:
        return False
    convert({node.input[1]: _inside(indices, sizes)})
    result = _bound(graph, node.output[0])
    if index is not None:
        result = dataclasses.replace(index, tensor=result, axis=axis + index.axis)
    elif left is not None:
        result = dataclasses.replace(data, tensor=result, axis=left)
    graph.bind(node.output[0], result)
    return True


def reaches(shape: Sequence[int], reach: Sequence[int], axis: int) -> bool:
    """Whether indices of GatherElements or ScatterElements stay within the other dimensions."""
    return all(a == axis or there <= size for a, (size, there) in enumerate(zip(shape, reach, strict=True)))


def _scatter(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted], convert: ConvertWith) -> bool:
    """Updates in their places; those behind the count go into a row behind the last one, which is dropped."""
    data, index, update = (counted.get(name) for name in node.input)
    if index is None or update is None or (index.size, index.axis) != (update.size, update.axis):
        return False
    x = data.tensor if data else as_tensor(graph.value(node.input[0]))
    shape, reach = static_shape(x, "the data"), static_shape(index.tensor, "the indices")
    if by_vectors := node.op_type == "ScatterND":
        axis, sizes = 0, _sizes(data or x, reach[-1])
        fits = index.axis < len(reach) - 1 and reach[-1] and (data is None or data.axis < reach[-1])
    else:
        axis = attribute(node, "axis", 0) % len(shape)
        fits = reaches(shape, reach, axis) and (data is None or data.axis == axis)
        sizes = _count(data) if data else constant(shape[axis])
    if not fits or 0 in shape:
        return False
    places = cleared(dataclasses.replace(index, tensor=_inside(index.tensor, sizes)), -1)
    outside = constant(np.array([shape[0], *[0] * (reach[-1] - 1)], np.int64)) if by_vectors else constant(shape[axis])
    places = emit(relax.op.where(emit(relax.op.less(places, constant(0))), outside, places))
    row = emit(relax.op.full((*shape[:axis], 1, *shape[axis + 1 :]), scalar(0, x), dtype_of(x)))
    convert({node.input[0]: emit(relax.op.concat([x, row], axis)), node.input[1]: places})
    result = emit(relax.op.strided_slice(_bound(graph, node.output[0]), [axis], [0], [shape[axis]]))
    graph.bind(node.output[0], dataclasses.replace(data, tensor=result) if data else result)
    return True


def _lowest(dtype: str) -> float | int | bool:
    return extreme_of_nothing(dtype, largest=True)


#: Operator -> what converts a node that works along an axis that is counted, or by indices that are.
ALONG: dict[str, Along] = {
    "ArgMax": _arg_extreme, "ArgMin": _arg_extreme, "Compress": _compress, "CumProd": _keeps(lambda dtype: 1),
    "CumSum": _keeps(lambda dtype: 0), "Gather": _picks, "GatherElements": _picks, "GatherND": _picks,
    "NonMaxSuppression": _non_max_suppression, "NonZero": _non_zero, "Pad": _pad, "ScatterElements": _scatter,
    "ScatterND": _scatter, "Tile": _tile, "TopK": _top_k, **dict.fromkeys(_SOFTMAX, _keeps(_lowest)),
}  # fmt: skip
