"""Operators over tensors of which values decide how much there is: shapes, reductions, joints, slices, other shapes.

    z = Concat(y, y), y of 2 columns of at most 6   ->   z of 4 columns of at most 12: y[0], y[1], y[0], y[1], anything

What lies behind a count is left out of sums, and moved behind what means something.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ....ops import of
from ...control_flow.counted import Counted
from ...control_flow.subgraph import Graph
from ...reading.walk import attribute
from ..base import as_dtype, constant, emit, kernel, scalar, static_shape
from ..reductions import extreme_of_nothing
from .counting import taken

#: Converts a node of which inputs are counted; nothing where it cannot.
Parts = Callable[[onnx.NodeProto, Graph, Mapping[str, Counted]], Any]


def neutral(op_type: str, dtype: str) -> float | int | bool | None:
    """What an element counts as that a reduction leaves out; None of other operators, and of numbers that have none."""
    number = of(op_type).left_out
    if number is None or math.isfinite(number):
        return number
    if op_type == "ReduceLogSumExp":
        return number if "float" in dtype else None
    return extreme_of_nothing(dtype, largest=number < 0)


def reduced_axes(node: onnx.NodeProto, graph: Graph, rank: int) -> set[int] | None:
    """The axes of a reduction, all by default; None where they are not known."""
    stated = attribute(node, "axes")
    if stated is None and len(node.input) > 1 and node.input[1]:
        if (value := graph.known(node.input[1])) is None:
            return None
        stated = value.reshape(-1)
    axes = {int(a) % rank for a in (() if stated is None else stated)}
    return axes or (set() if attribute(node, "noop_with_empty_axes", 0) else set(range(rank)))


def cleared(value: Counted, filling: float | int | bool) -> Any:
    """The tensor, with a number for what lies behind the count."""
    shape = static_shape(value.tensor, "x")
    places = constant(np.arange(shape[value.axis]).reshape([-1 if a == value.axis else 1 for a in range(len(shape))]))
    inside = emit(relax.op.less(places, _int64(value.count)))
    return emit(relax.op.where(inside, value.tensor, scalar(filling, value.tensor)))


def _mean(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> Any:
    value = counted.get(node.input[0])
    if value is None or "float" not in (dtype := dtype_of(value.tensor)):
        return None
    shape = static_shape(value.tensor, "x")
    axes = reduced_axes(node, graph, len(shape))
    if axes is None or value.axis not in axes:
        return None
    wide = as_dtype(cleared(value, 0), "float64" if dtype == "float64" else "float32")
    total = emit(relax.op.sum(wide, sorted(axes), bool(attribute(node, "keepdims", 1))))
    each = math.prod(shape[a] for a in axes - {value.axis})
    count = emit(relax.op.reshape(_int64(value.count) * constant([each]), ()))
    return as_dtype(emit(total / as_dtype(count, dtype_of(wide))), dtype)


def _int64(count: Any) -> Any:
    return emit(relax.op.reshape(count, (1,)))


def _shape(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> Any:
    (value,) = counted.values()
    sizes = static_shape(value.tensor, "x")
    dims = [_int64(value.count) if axis == value.axis else constant([size]) for axis, size in enumerate(sizes)]
    dims = dims[slice(attribute(node, "start", 0), attribute(node, "end"))]
    return relax.op.concat(dims, 0) if dims else constant(np.zeros(0, np.int64))


def _size(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> Any:
    (value,) = counted.values()
    each = _rest(value)
    return relax.op.reshape(_int64(value.count) * constant([each]), ())


def _rest(value: Counted) -> int:
    """Elements of each of what is counted."""
    shape = static_shape(value.tensor, "x")
    return math.prod(shape[: value.axis] + shape[value.axis + 1 :])


# ------------------------------------------------------------ joints and slices
def _concat(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> Counted | None:
    """Tensors beside each other along the axis of their counts."""
    values = [graph.value(name) for name in node.input]
    first = next(iter(counted.values()))
    shape = static_shape(first.tensor, "x")
    axis = attribute(node, "axis") % len(shape)
    if any(value.axis != axis for value in counted.values()):
        return None
    parts = [value.tensor if isinstance(value, Counted) else value for value in values]
    sizes = [static_shape(part, "a part")[axis] for part in parts]
    counts = [_int64(v.count) if isinstance(v, Counted) else constant([n]) for v, n in zip(values, sizes, strict=True)]
    whole = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
    total = counts[0]
    for count in counts[1:]:
        total = emit(total + count)
    if 0 in whole:
        return part(graph, node, first, constant(np.zeros(whole), dtype_of(parts[0])), axis, total)

    def compute(*operands: te.Tensor) -> te.Tensor:
        tensors, numbers = operands[: len(parts)], operands[len(parts) :]

        def element(*i: Any) -> Any:
            start, value, places = tirx.const(0, "int32"), None, []
            for tensor, number, size in zip(tensors, numbers, sizes, strict=True):
                if size:
                    at = tirx.max(tirx.min(i[axis] - start, size - 1), 0)
                    places.append((tensor(*i[:axis], at, *i[axis + 1 :]), start))
                start = start + tirx.Cast("int32", number[0])
            value = places[0][0]
            for other, begin in places[1:]:
                value = tirx.Select(i[axis] >= begin, other, value)
            return value

        return te.compute(whole, element, name="out")

    return part(graph, node, first, kernel(compute, *parts, *counts, name="join"), axis, total)


def _slice(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> Counted | None:
    """A slice along the axis of a count, of which an index below 0 counts from the end."""
    value, stated = counted.get(node.input[0]), _bounds(node, graph)
    shape = static_shape(counted[node.input[0]].tensor, "x") if value is not None else ()
    if value is None or stated is None or [a % len(shape) for a in stated[0]] != [value.axis]:
        return None
    start, end, step = (int(np.clip(v[0], -(1 << 62), 1 << 62)) for v in stated[1:])
    sign, count, most = 1 if step > 0 else -1, _int64(value.count), shape[value.axis]
    begin, stop = (_clipped(count, at, min(sign, 0)) for at in (start, end))
    length = emit(relax.op.floor_divide(emit(stop - begin + constant([step - sign])), constant([step])))
    length = emit(relax.op.maximum(length, constant([0])))
    bound = -(-most // abs(step))
    if (start < 0) == (end < 0):
        bound = min(bound, max(-((start - end) // step), 0))
    places = constant(np.arange(bound) * step)
    if bound:
        places = emit(relax.op.clip(emit(places + begin), 0, most - 1))
    return part(graph, node, value, taken(value.tensor, places, value.axis), value.axis, length)


def _bounds(node: onnx.NodeProto, graph: Graph) -> tuple[list[int], ...] | None:
    """Axes, starts, ends and steps of a Slice; None where they are not known."""
    if len(node.input) == 1:
        starts, ends, axes, steps = (attribute(node, name) for name in ("starts", "ends", "axes", "steps"))
    else:
        names = [*node.input[1:5], "", ""][:4]
        values = [graph.known(name) if name else None for name in names]
        if any(name and value is None for name, value in zip(names, values, strict=True)):
            return None
        starts, ends, axes, steps = (None if value is None else value.reshape(-1).tolist() for value in values)
    return list(axes or range(len(starts))), list(starts), list(ends), list(steps or [1] * len(starts))


def _clipped(count: Any, at: int, low: int) -> Any:
    """Where a slice begins or ends: from the end if it is below 0, and from `low` to as much as `low` below the end."""
    place = constant([at]) if at >= 0 else emit(count + constant([at]))
    return emit(relax.op.maximum(relax.op.minimum(place, emit(count + constant([low]))), constant([low])))


# ------------------------------------------------------------ other shapes
def _reshape(node: onnx.NodeProto, graph: Graph, counted: Mapping[str, Counted]) -> Counted | None:
    """Another shape, of which one dimension is a multiple of the count."""
    value = counted.get(node.input[0])
    new = None if value is None else _new_shape(node, graph, value)
    if value is None or new is None:
        return None
    shape, to = static_shape(value.tensor, "x"), new.index(-1)
    factor, left = divmod(_rest(value), math.prod(d for d in new if d != -1) or 1)
    if left or 0 in (*shape, *new):
        return None
    whole = [shape[value.axis] * factor if d == -1 else d for d in new]
    count = value.count if factor == 1 else emit(_int64(value.count) * constant([factor]))
    if math.prod(shape[: value.axis]) == 1 and math.prod(whole[:to]) == 1:  # what there is comes first in memory
        return part(graph, node, value, relax.op.reshape(value.tensor, whole), to, count)
    return part(graph, node, value, _moved(value, shape, whole, to, factor), to, count)


def _new_shape(node: onnx.NodeProto, graph: Graph, value: Counted) -> list[int] | None:
    """The shape that a node states, with one -1 where the count is; None where it states none, or none with a count."""
    shape = static_shape(value.tensor, "x")
    if node.op_type == "Flatten":
        at = slice(attribute(node, "axis", 1)).indices(len(shape))[1]
        sides = range(at), range(at, len(shape))
        return [-1 if value.axis in side else math.prod(shape[a] for a in side) for side in sides]
    if (target := graph.known(node.input[1])) is None or attribute(node, "allowzero", 0):
        return None
    new = [int(d) for d in target.reshape(-1)]
    if any(d == 0 and i >= len(shape) for i, d in enumerate(new)):
        return None
    kept = value.axis < len(new) and new[value.axis] == 0
    new = [shape[i] if d == 0 else d for i, d in enumerate(new)]
    if kept:
        others = math.prod(d for i, d in enumerate(new) if i != value.axis and d != -1)
        new = [-1 if i == value.axis else _rest(value) // max(others, 1) if d == -1 else d for i, d in enumerate(new)]
        return new if math.prod(d for d in new if d != -1) == _rest(value) else None
    return new if new.count(-1) == 1 else None


def _moved(value: Counted, shape: Sequence[int], whole: Sequence[int], to: int, factor: int) -> Any:
    """The elements in the order that they have where a dimension is as large as the count, and not as it can be."""

    def compute(data: te.Tensor, number: te.Tensor) -> te.Tensor:
        there = tirx.max(tirx.Cast("int32", number[0]), 1)
        sizes = [there if axis == value.axis else size for axis, size in enumerate(shape)]
        news = [there * factor if axis == to else size for axis, size in enumerate(whole)]

        def element(*i: Any) -> Any:
            at, index = tirx.const(0, "int32"), []
            for place, size in zip(i, news, strict=True):
                at = at * size + place
            for size in reversed(sizes):
                index.append(tirx.floormod(at, size))
                at = tirx.floordiv(at, size)
            return data(*(tirx.min(place, size - 1) for place, size in zip(reversed(index), shape, strict=True)))

        return te.compute(whole, element, name="out")

    return kernel(compute, value.tensor, _int64(value.count), name="reshape_part")


def part(graph: Graph, node: onnx.NodeProto, value: Counted, tensor: Any, axis: int, count: Any) -> Counted:
    """What a node makes of a counted tensor; of another size if it has another count."""
    bound = emit(tensor) if isinstance(tensor, relax.Call) else tensor
    size = value.size if count is value.count else graph.names.fresh(f"{node.output[0]}_count")
    return dataclasses.replace(value, tensor=bound, axis=axis, count=count, size=size)


#: Operator -> what converts a node that does more than hand on what there is, element by element.
PARTS: dict[str, Parts] = {
    "Concat": _concat, "Flatten": _reshape, "ReduceMean": _mean, "Reshape": _reshape, "Shape": _shape, "Size": _size,
    "Slice": _slice,
}  # fmt: skip
