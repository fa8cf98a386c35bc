"""Operators of which values decide how much they make: kernels write the most that there can be, and count.

    y = NonZero(x), x of (2, 3)   ->   y of (2, 6), of which the first `count` columns mean something

What lies behind them is a valid index all the same.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ....core.graph.relax_graph import dtype_of, numpy_of
from ...checks.refusal import UNFIT, Refusal
from ...control_flow.counted import Counted
from ..base import Attributes, as_dtype, constant, converts, emit, graph_of, kernel, scalar, static_shape
from .sorting import order_key

#: Operators whose converters return a list: a value for each output, that they are asked for or not.
COUNTING = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
#: Levels of a merge sort of as many rows as a tensor may have.
_LEVELS = 31
#: Bounds of a box, lower ones first, and its area.
_CORNERS = 5


@converts("NonZero")
def non_zero(inputs: Any, attributes: Attributes, opset: int) -> list[Any]:
    """NonZero(x): coordinates of elements other than 0, in the order of memory; of a scalar (0, N), as ONNX says."""
    x = _wide(inputs[0])
    stated = static_shape(x, "the input of NonZero")
    shape = stated or (1,)
    mask = x if dtype_of(x) == "bool" else emit(relax.op.not_equal(x, scalar(0, x)))
    places, count = _places(emit(relax.op.reshape(mask, shape)), shape)
    places = places if stated else emit(relax.op.strided_slice(places, [0], [0], [0]))
    return _counted(attributes, count, (places, 1), decided_by=inputs[0])


@converts("Compress")
def compress(inputs: Any, attributes: Attributes, opset: int) -> list[Any]:
    """Compress(x, condition): the rows where the condition is true; exactly these where it is known."""
    x, condition, axis = inputs[0], inputs[1], attributes.get("axis")
    if axis is None:
        x, axis = _flat(x), 0
    shape, lengths = static_shape(x, "the input of Compress"), static_shape(condition, "the condition of Compress")
    axis, known = int(axis) % len(shape), numpy_of(condition)
    rows = np.zeros(0, np.int64) if known is None else np.flatnonzero(known)
    if len(lengths) != 1 or rows.max(initial=-1) >= shape[axis]:
        wrong = f"its condition of shape {lengths} picks from axis {axis} of {shape[axis]} elements"
        raise Refusal(wrong, fix=UNFIT)
    if known is not None:
        return [taken(x, constant(rows.astype(np.int64)), axis)]
    most = min(lengths[0], shape[axis])
    if not most:
        return [taken(x, constant(np.zeros(0, np.int64)), axis)]
    places, count = _places(emit(relax.op.strided_slice(condition, [0], [0], [most])), (most,))
    decided_by = condition if most == lengths[0] else None
    rows = taken(x, emit(relax.op.reshape(places, (most,))), axis)
    return _counted(attributes, count, (rows, axis), decided_by=decided_by)


@converts("Unique")
def unique(inputs: Any, attributes: Attributes, opset: int) -> list[Any]:
    """Unique(x): the different elements, or rows along an axis, in order, or as they come; NaN is one, and the last."""
    x, axis = inputs[0], attributes.get("axis")
    if axis is None:
        x, axis = _flat(x), 0
    shape = static_shape(x, "the input of Unique")
    axis = int(axis) % len(shape)
    first, inverse, counts, count = _grouped(_rows(x, axis), bool(attributes.get("sorted", 1)))
    y, first, counts = _counted(attributes, count, (taken(x, first, axis), axis), (first, 0), (counts, 0))
    return [y, first, inverse, counts]


@converts("NonMaxSuppression")
def non_max_suppression(inputs: Any, attributes: Attributes, opset: int) -> list[Any]:
    """NonMaxSuppression(boxes, scores, ...): (batch, class, box) of the best boxes that overlap no better one."""
    boxes, scores, most = inputs[0], inputs[1], inputs[2]
    (batch, count, _), (_, classes, _) = static_shape(boxes, "the boxes"), static_shape(scores, "the scores")
    limit = constant([0], "int64") if most is None else emit(relax.op.reshape(most, (1,)))
    known = numpy_of(limit if most is None else most)
    each = count if known is None else min(count, max(int(known.reshape(-1)[0]), 0))
    if not (rows := batch * classes * each):
        return _counted(attributes, constant(np.zeros(1, np.int64)), (constant(np.zeros((0, 3), np.int64)), 0))
    overlap, least = (None if x is None else emit(relax.op.reshape(x, (1,))) for x in (inputs[3], inputs[4]))
    overlap = constant([0], "float32") if overlap is None else overlap
    corners = _corners(boxes, bool(attributes.get("center_point_box", 0)))
    operands = [corners, scores, limit, overlap, *([] if least is None else [least])]
    body, shapes = functools.partial(_suppression, each), [(rows, 3), (1,), (count,)]
    selected, total, _ = _extern(body, shapes, ["int64", "int64", "int8"], *operands, name="non_max_suppression")
    return _counted(attributes, total, (selected, 0))


# ------------------------------------------------------------ what they share
def _counted(attributes: Attributes, count: Any, *tensors: tuple[Any, int], decided_by: Any = None) -> list[Any]:
    """Outputs of a node, of which there is as much along an axis each as one count says; tensors where it is none.

    Args:
        decided_by: the tensor of which this counts elements other than 0: all that do have one size.
    """
    if not any(static_shape(tensor, "what is counted")[axis] for tensor, axis in tensors):
        return [tensor for tensor, _ in tensors]
    graph = graph_of(attributes)
    size = graph.names.fresh(f"{next(filter(None, graph.node.output))}_count")
    if decided_by is not None:
        count, size = graph.sizes.setdefault(decided_by, (count, size))
    maker = f"node {graph.label!r} ({graph.node.op_type})"
    return [Counted(tensor, axis, count, size, maker) for tensor, axis in tensors]


def _flat(x: Any) -> Any:
    """All elements in one dimension, of which there may be none."""
    shape = static_shape(x, "x")
    return constant(np.zeros(0), dtype_of(x)) if 0 in shape else emit(relax.op.reshape(x, (math.prod(shape),)))


def _wide(x: Any) -> Any:
    """Narrow floats in float32."""
    return as_dtype(x, "float32") if "float" in dtype_of(x) and dtype_of(x) != "float64" else x


def taken(x: Any, rows: Any, axis: int) -> Any:
    """Rows of a tensor along an axis, which may have none."""
    shape, (count,) = static_shape(x, "x"), static_shape(rows, "the rows")
    if 0 in shape or not count:
        return constant(np.zeros((*shape[:axis], count, *shape[axis + 1 :])), dtype_of(x))
    return emit(relax.op.take(x, rows, axis, mode="wrap"))


def _extern(
    body: Callable[..., Any], shapes: Sequence[Any], dtypes: Sequence[str], *operands: Any, name: str
) -> list[Any]:
    """What a kernel in TIR writes: a variable for each shape.

    Args:
        body: takes the buffers of operands, and those of results, and returns the statement.
    """

    def compute(*tensors: te.Tensor) -> list[te.Tensor]:
        return list(te.extern(shapes, list(tensors), lambda ins, outs: body(ins, outs), dtype=list(dtypes)))

    results = emit(kernel(compute, *operands, name=name))
    return [emit(relax.TupleGetItem(results, i)) for i in range(len(shapes))]


def _places(mask: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """The coordinates (rank, elements) of what is true, int64, and how many they are."""
    elements = math.prod(shape)
    if not elements:
        return constant(np.zeros((len(shape), 0), np.int64)), constant(np.zeros(1, np.int64))
    shapes = (len(shape), elements), (1,)
    places, count = _extern(_scan, shapes, ["int64"] * 2, mask, name="places")
    return places, count


def _rows(x: Any, axis: int) -> Any:
    """Slices of a tensor along an axis, each as a row of int64 of its order; slices of no elements are equal."""
    shape = static_shape(x, "x")
    if 0 in shape:
        return constant(np.zeros((shape[axis], 1), np.int64))
    key = emit(relax.op.permute_dims(order_key(_wide(x)), [axis, *(d for d in range(len(shape)) if d != axis)]))
    return emit(relax.op.reshape(as_dtype(key, "int64"), (shape[axis], math.prod(shape) // shape[axis])))


def _grouped(key: Any, is_sorted: bool) -> list[Any]:
    """Of rows (count, columns) of whole numbers: the first row of each group of equal ones, the group of each row, how
    many each group has, and how many groups there are; the groups in order, or as they come."""
    rows, _ = static_shape(key, "the rows")
    shapes, kinds = [(rows,)] * 3, ["int64"] * 3
    if not rows:
        return [constant(np.zeros(0, np.int64))] * 3 + [constant(np.zeros(1, np.int64))]
    *groups, count, _ = _extern(
        _merge_sort, [*shapes, (1,), (2, rows)], [*kinds, "int64", "int32"], key, name="unique"
    )  # fmt: skip
    if not is_sorted:
        *groups, _ = _extern(_by_appearance, [*shapes, (rows,)], [*kinds, "int64"], *groups, name="by_appearance")
    return [*groups, count]


def _corners(boxes: Any, centered: bool) -> Any:
    """(batch, 5, boxes): where boxes begin and end, along x and y, and their areas."""
    batch, count, _ = static_shape(boxes, "the boxes")

    def compute(data: te.Tensor) -> te.Tensor:
        def corner(b: Any, which: Any, i: Any) -> Any:
            x, y = ((_centered if centered else _ends)(data, b, i, axis) for axis in (1, 0))
            values = [*x, *y, (x[1] - x[0]) * (y[1] - y[0])]
            value = values[-1]
            for number, corner_value in enumerate(values[:-1]):
                value = tirx.Select(which == number, corner_value, value)
            return value

        return te.compute((batch, _CORNERS, count), corner, name="out")

    return emit(kernel(compute, boxes, name="corners"))


def _ends(data: te.Tensor, b: Any, i: Any, axis: int) -> tuple[Any, Any]:
    """Where a box [y1, x1, y2, x2] begins and ends along y, 0, or x, 1."""
    one, other = data(b, i, axis), data(b, i, axis + 2)
    return tirx.min(one, other), tirx.max(one, other)


def _centered(data: te.Tensor, b: Any, i: Any, axis: int) -> tuple[Any, Any]:
    """Where a box [x, y, width, height] begins and ends along y, 0, or x, 1."""
    middle, half = data(b, i, 1 - axis), data(b, i, 3 - axis) / 2
    return middle - half, middle + half


# ------------------------------------------------------------ kernels
def _together() -> Any:
    """Around statements of a kernel: outside of a loop TVM's builder takes but one."""
    return T.serial(0, 1)


def _local(*dtypes: str) -> Any:
    """Variables of a kernel, each of one element."""
    variables = [T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local", layout=None)) for dtype in dtypes]
    return variables if len(variables) > 1 else variables[0]


def _scan(operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Each element writes its coordinates behind those that stay, which are one more if it is true."""
    shape = [int(d) for d in operands[0].shape]
    with IRBuilder() as builder, _together():
        m, p, c = map(T.buffer_proxy, (*operands, *results))
        n = _local("int32")
        with T.grid(*(int(d) for d in results[0].shape)) as (d, i):
            p[d, i] = tirx.const(0, "int64")
        n[0] = tirx.const(0, "int32")
        with T.grid(*shape) as loops:
            at = list(loops) if len(shape) > 1 else [loops]
            for axis, i in enumerate(at):
                p[axis, n[0]] = tirx.Cast("int64", i)
            n[0] = n[0] + tirx.Cast("int32", m[tuple(at)])
        c[0] = tirx.Cast("int64", n[0])
    return builder.get()


def _merge_sort(operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Row numbers in the order of their rows, merged from runs of 1, 2, 4 and so on; then groups of equal ones."""
    rows, columns = (int(d) for d in operands[0].shape)
    with IRBuilder() as builder, _together():
        k, f, v, c, total, w = map(T.buffer_proxy, (*operands, *results))
        run, side, left, right, sign, group = _local(*["int32"] * 6)
        run[0], side[0], group[0] = (tirx.const(value, "int32") for value in (1, 0, -1))
        with T.serial(0, rows) as i:
            w[0, i] = i
            f[i] = c[i] = tirx.const(0, "int64")
        with T.serial(0, _LEVELS), T.If(run[0] < rows), T.Then():
            with T.serial(0, rows) as at:
                start = at - tirx.floormod(at, run[0] * 2)
                middle, end = (tirx.min(start + run[0] * half, rows) for half in (1, 2))
                with T.If(at == start), T.Then():
                    left[0] = start
                    right[0] = middle
                _compare(
                    k, sign, w[side[0], tirx.min(right[0], rows - 1)], w[side[0], tirx.min(left[0], rows - 1)], columns
                )
                ours = tirx.all(left[0] < middle, tirx.any(right[0] >= end, sign[0] >= 0))
                with T.If(ours):
                    with T.Then():
                        w[1 - side[0], at] = w[side[0], left[0]]
                        left[0] = left[0] + 1
                    with T.Else():
                        w[1 - side[0], at] = w[side[0], right[0]]
                        right[0] = right[0] + 1
            side[0] = 1 - side[0]
            run[0] = run[0] * 2
        with T.serial(0, rows) as at:
            row = w[side[0], at]
            _compare(k, sign, row, w[side[0], tirx.max(at - 1, 0)], columns)
            with T.If(tirx.any(at == 0, sign[0] != 0)), T.Then():
                group[0] = group[0] + 1
                f[group[0]] = tirx.Cast("int64", row)
            v[row] = tirx.Cast("int64", group[0])
            c[group[0]] = c[group[0]] + 1
        total[0] = tirx.Cast("int64", group[0] + 1)
    return builder.get()


def _compare(key: Any, sign: Any, row: Any, other: Any, columns: int) -> None:
    """-1, 0 or 1: whether a row comes before another one, is equal to it, or comes behind it."""
    sign[0] = tirx.const(0, "int32")
    with T.serial(0, columns) as c, T.If(sign[0] == 0), T.Then():
        less, more = key[row, c] < key[other, c], key[row, c] > key[other, c]
        sign[0] = tirx.Select(less, tirx.const(-1, "int32"), tirx.Cast("int32", more))


def _by_appearance(operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Groups in the order of their first rows."""
    rows = int(operands[0].shape[0])
    with IRBuilder() as builder, _together():
        f, v, c, nf, nv, nc, to = map(T.buffer_proxy, (*operands, *results))
        n = _local("int32")
        n[0] = tirx.const(0, "int32")
        with T.serial(0, rows) as i:
            nf[i] = nc[i] = tirx.const(0, "int64")
        with T.serial(0, rows) as i:
            with T.If(f[v[i]] == i), T.Then():
                to[v[i]] = tirx.Cast("int64", n[0])
                nf[n[0]] = tirx.Cast("int64", i)
                nc[n[0]] = c[v[i]]
                n[0] = n[0] + 1
            nv[i] = to[v[i]]
    return builder.get()


def _suppression(each: int, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Of each class the best box that is left, `each` times at most, without those that it overlaps too much."""
    batch, _, count = (int(d) for d in operands[0].shape)
    classes = int(operands[1].shape[1])
    with IRBuilder() as builder, _together():
        corners, scores, limit, overlap, *least = map(T.buffer_proxy, operands)
        selected, total, left = map(T.buffer_proxy, results)
        n, taken, best, top = _local("int32", "int32", "int32", "float32")
        n[0] = tirx.const(0, "int32")
        with T.grid(*(int(d) for d in results[0].shape)) as (i, j):
            selected[i, j] = tirx.const(0, "int64")
        with T.grid(batch, classes) as (b, c):
            with T.serial(0, count) as i:
                score = scores[b, c, i]
                able = score > least[0][0] if least else score == score
                left[i] = tirx.Cast("int8", able)
            taken[0] = best[0] = tirx.const(0, "int32")
            with T.serial(0, each), T.If(tirx.all(best[0] >= 0, tirx.Cast("int64", taken[0]) < limit[0])), T.Then():
                best[0] = tirx.const(-1, "int32")
                with T.serial(0, count) as i, T.If(_is_better(left[i], scores[b, c, i], best[0], top[0])), T.Then():
                    best[0] = i
                    top[0] = scores[b, c, i]
                with T.If(best[0] >= 0), T.Then():
                    for place, index in enumerate((b, c, best[0])):
                        selected[n[0], place] = tirx.Cast("int64", index)
                    n[0] = n[0] + 1
                    taken[0] = taken[0] + 1
                    with T.serial(0, count) as i:
                        gone = tirx.any(i == best[0], _overlaps(corners, b, i, best[0], overlap[0]))
                        left[i] = tirx.Select(gone, tirx.const(0, "int8"), left[i])
        total[0] = tirx.Cast("int64", n[0])
    return builder.get()


def _is_better(left: Any, score: Any, best: Any, top: Any) -> Any:
    """Whether a box that is left has a higher score than the best so far, which is -1 if there is none."""
    return tirx.all(left != 0, tirx.any(best < 0, score > top))


def _overlaps(corners: Any, b: Any, i: Any, j: Any, most: Any) -> Any:
    """Whether two boxes have more in common than this part of what they cover together."""
    zero = tirx.const(0, "float32")
    width, height = (
        tirx.min(corners[b, end, i], corners[b, end, j]) - tirx.max(corners[b, end - 1, i], corners[b, end - 1, j])
        for end in (1, 3)
    )
    common, areas = width * height, [corners[b, _CORNERS - 1, at] for at in (i, j)]
    whole = areas[0] + areas[1] - common
    sizes = (width, height, common, *areas, whole)
    return tirx.all(*(size > zero for size in sizes), common / whole > most)
