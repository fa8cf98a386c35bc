"""Operators that move elements: shapes, transposes, joins, slices, pads, gathers and scatters, resizes."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import ANY, F32, FLOATS, HALVES, INTS, Graph, Shape, Value, maker

_MOVED = (*FLOATS, *INTS, "bool", "uint8")


def _moved(g: Graph, op: str, x: Value, more: list[Any], shape: Sequence[int], **attributes: Any) -> Value:
    return g.node(op, [x, *more], shape, terms=0, **attributes)


def _ints(*numbers: int) -> np.ndarray:
    return np.asarray(numbers, np.int64)


@maker(*_MOVED, weight=3)
def reshape(g: Graph, x: Value) -> Value:
    first = g.any([d for d in range(1, min(x.size, 12) + 1) if x.size % d == 0])
    rest = x.size // first
    shape = g.any([(x.size,), (first, rest), (1, first, rest), (first, 1, rest, 1), (1, rest, first, 1)])
    target = list(shape)
    if g.chance(0.3):
        target[g.size(0, len(shape) - 1)] = -1
    return _moved(g, "Reshape", x, [_ints(*target)], shape)


@maker(*_MOVED, rank=(2, 5), rows=True)
def reshape_rows(g: Graph, x: Value) -> Value:
    rest = math.prod(x.shape[1:])
    return _moved(g, "Reshape", x, [_ints(0, -1)], (x.shape[0], rest))


@maker(*_MOVED, rank=(1, 5), empty=True, weight=3)
def transpose(g: Graph, x: Value) -> Value:
    order = g.order(x.rank)
    return _moved(g, "Transpose", x, [], [x.shape[a] for a in order], perm=order)


@maker(*_MOVED, rank=(3, 5), rows=True)
def transpose_rows(g: Graph, x: Value) -> Value:
    order = [0, *(a + 1 for a in g.order(x.rank - 1))]
    return _moved(g, "Transpose", x, [], [x.shape[a] for a in order], perm=order)


@maker(*_MOVED, rank=(1, 5), empty=True)
def flatten(g: Graph, x: Value) -> Value:
    axis = g.size(0, x.rank)
    return _moved(g, "Flatten", x, [], (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), axis=axis)


@maker(*_MOVED, rank=(0, 4), empty=True)
def unsqueeze(g: Graph, x: Value) -> Value:
    axis = g.size(0, x.rank)
    return _moved(g, "Unsqueeze", x, [_ints(axis)], (*x.shape[:axis], 1, *x.shape[axis:]))


@maker(*_MOVED, rank=(1, 6), empty=True)
def squeeze(g: Graph, x: Value) -> Value | None:
    ones = [a for a, d in enumerate(x.shape) if d == 1]
    if not ones:
        return None
    axis = g.any(ones)
    return _moved(g, "Squeeze", x, [_ints(axis - x.rank)], x.shape[:axis] + x.shape[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + (-1,) + shape[axis + 1 :]


@maker(*_MOVED, rank=(1, 5), empty=True, rows=True, weight=4)
def concat(g: Graph, x: Value) -> Value | None:
    first = 1 if g.rows else 0
    if x.rank <= first:
        return None
    axis = g.size(first, x.rank - 1)
    fitting = [v for v in g.values if v.dtype == x.dtype and v.rank == x.rank]
    fitting = [v for v in fitting if _without(v.shape, axis) == _without(x.shape, axis)]
    parts = [x, *(g.any(fitting) for _ in range(g.size(1, 2)) if fitting)]
    if g.chance(0.3) and not g.rows:
        shape = [g.size(0, 3) if a == axis else d for a, d in enumerate(x.shape)]
        parts.append(g.literal(g.elements(shape, x.dtype)))
    length = sum(p.shape[axis] for p in parts)
    bound, error = max(p.bound for p in parts), max(p.error for p in parts)
    shape = [length if a == axis else d for a, d in enumerate(x.shape)]
    return g.node("Concat", parts, shape, bound=bound, error=error, axis=axis)


@maker(*_MOVED, rank=(1, 5), empty=True, rows=True, weight=3)
def slice_(g: Graph, x: Value) -> Value | None:
    """One or two axes; forwards or backwards; ends from the end, or beyond it."""
    first = 1 if g.rows else 0
    if x.rank <= first:
        return None
    axes = [a + first for a in g.some(g.size(1, min(2, x.rank - first)), x.rank - first)]
    starts, stops, steps = [], [], []
    for axis in axes:
        size, backwards = x.shape[axis], g.chance(0.25)
        start, stop = sorted((g.size(0, size), g.size(0, size)))
        if start == stop and not g.chance(0.05):  # an empty result now and then
            start, stop = 0, size
        if backwards:
            start, stop = stop - 1, start - 1 - size if start else -size - 1
        elif g.chance(0.3):
            start, stop = start - size, 2**31 if stop == size else stop
        starts.append(start)
        stops.append(stop)
        steps.append(g.size(1, 3) * (-1 if backwards else 1))
    inputs = [_ints(*v) for v in (starts, stops, axes, steps)]
    index = [slice(None)] * x.rank
    for axis, *ends in zip(axes, starts, stops, steps, strict=True):
        index[axis] = slice(*ends)
    shape = np.empty(x.shape, np.int8)[tuple(index)].shape
    return _moved(g, "Slice", x, inputs, shape)


@maker(*FLOATS, *INTS, rank=(1, 5), weight=2)
def pad(g: Graph, x: Value) -> Value:
    mode = g.any(["constant", "constant", "edge", "reflect"])
    limits = [d - 1 if mode == "reflect" else 2 for d in x.shape]
    amounts = [g.size(0, min(2, limits[i % x.rank])) for i in range(2 * x.rank)]
    shape = [d + amounts[a] + amounts[a + x.rank] for a, d in enumerate(x.shape)]
    value = [np.asarray(g.any([0, 1, -2]), x.dtype)] if mode == "constant" and g.chance(0.7) else []
    return g.node("Pad", [x, _ints(*amounts), *value], shape, bound=max(x.bound, 2.0), terms=0, mode=mode)


@maker(*FLOATS, *INTS, rank=(1, 5), weight=2)
def split(g: Graph, x: Value) -> Value | None:
    """Two or three parts; one is the value, the others stand among those to choose from."""
    axis = g.size(0, x.rank - 1)
    size = x.shape[axis]
    if size < 2:
        return None
    cuts = sorted({0, *(g.size(1, size - 1) for _ in range(g.size(1, 2))), size})
    lengths = [b - a for a, b in itertools.pairwise(cuts)]
    outputs = [x._replace(shape=tuple(n if a == axis else d for a, d in enumerate(x.shape))) for n in lengths]
    parts = g.emit("Split", [x, _ints(*lengths)], outputs, axis=axis)
    last = parts.pop(g.size(0, len(parts) - 1))
    g.values.extend(parts)
    return last


@maker(*_MOVED, rank=(1, 4), weight=2)
def gather(g: Graph, x: Value) -> Value:
    axis = g.size(0, x.rank - 1)
    size, dtype = x.shape[axis], g.any(["int64", "int32"])
    index = g.integers(-size, size - 1, *g.any([(), (1,), (3,), (5,), (2, 3)]), dtype=dtype)
    return _moved(g, "Gather", x, [index], (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), axis=axis)


@maker(*FLOATS, *INTS, rank=(1, 4))
def gather_elements(g: Graph, x: Value) -> Value:
    axis = g.size(0, x.rank - 1)
    shape = [g.size(1, 4) if a == axis else g.size(1, d) for a, d in enumerate(x.shape)]
    index = g.integers(-x.shape[axis], x.shape[axis] - 1, *shape)
    return _moved(g, "GatherElements", x, [index], shape, axis=axis)


@maker(*FLOATS, *INTS, rank=(1, 4))
def gather_nd(g: Graph, x: Value) -> Value:
    depth, count = g.size(1, x.rank), g.size(1, 4)
    index = np.stack([g.integers(0, d - 1, count) for d in x.shape[:depth]], -1)
    return _moved(g, "GatherND", x, [index], (count, *x.shape[depth:]))


@maker("int32", "int64", weight=3, nan=False)
def embed(g: Graph, x: Value) -> Value:
    """Rows of a table, by computed numbers."""
    rows, columns = g.size(2, 9), g.size(1, 17)
    index = g.node("Mod", [x, np.asarray(rows, x.dtype)], x.shape, bound=rows)
    table = g.array(rows, columns)
    return g.node("Gather", [table, index], (*x.shape, columns), dtype="float32", bound=3.5, error=0.0)


@maker(*F32, rank=(1, 4))
def scatter_elements(g: Graph, x: Value) -> Value:
    """Distinct places along an axis: an order of several updates of one place is not defined."""
    axis = g.size(0, x.rank - 1)
    shape = [g.size(1, d) for d in x.shape]
    rows = np.broadcast_to(np.arange(x.shape[axis]), (*shape[:axis], *shape[axis + 1 :], x.shape[axis]))
    order = g.numbers().permuted(rows, axis=-1)
    index = np.ascontiguousarray(np.moveaxis(order[..., : shape[axis]], -1, axis)).astype(np.int64)
    kind = {"reduction": "add"} if g.opset >= 16 and g.chance(0.4) else {}
    return g.node(
        "ScatterElements", [x, index, g.array(*shape)], x.shape, bound=x.bound + 3.5, terms=1 if kind else 0,
        axis=axis, **kind,
    )  # fmt: skip


@maker(*F32, rank=(1, 4))
def scatter_nd(g: Graph, x: Value) -> Value:
    depth = g.size(1, x.rank)
    places = math.prod(x.shape[:depth])
    count = g.size(1, min(4, places))
    chosen = g.numbers().choice(places, count, replace=False)
    index = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1).astype(np.int64)
    updates = g.array(count, *x.shape[depth:])
    return g.node("ScatterND", [x, index, updates], x.shape, bound=max(x.bound, 3.5), terms=0)


@maker(*FLOATS, *INTS, "bool", rank=(0, 4))
def expand(g: Graph, x: Value) -> Value:
    shape = [g.size(2, 4) if d == 1 and g.chance(0.6) else d for d in x.shape]
    shape = [*([g.size(1, 3)] if g.chance(0.3) else []), *shape]
    target = [d if g.chance(0.7) else 1 for d in shape]
    target = [d if s != (x.shape[i - len(shape) + x.rank] if i >= len(shape) - x.rank else 1) else v
             for i, (d, s, v) in enumerate(zip(shape, shape, target, strict=True))]  # fmt: skip
    return _moved(g, "Expand", x, [_ints(*target)], shape)


@maker(*FLOATS, *INTS, rank=(1, 4), weight=2)
def tile(g: Graph, x: Value) -> Value:
    repeats = [g.any([1, 1, 2, 3]) for _ in x.shape]
    return _moved(g, "Tile", x, [_ints(*repeats)], [d * r for d, r in zip(x.shape, repeats, strict=True)])


@maker(*FLOATS, rank=(4, 4), weight=3)
def depth_space(g: Graph, x: Value) -> Value:
    """Blocks of pixels become channels, or the other way round, of as much of the image as makes whole ones."""
    b = g.size(2, 3)
    n, c, h, w = x.shape
    if c >= b * b and g.chance(0.6):
        c -= c % (b * b)
        x = _cut(g, x, (n, c, h, w))
        shape, mode = (n, c // (b * b), h * b, w * b), {"mode": g.any(["DCR", "CRD"])}
        return _moved(g, "DepthToSpace", x, [], shape, blocksize=b, **mode)
    b = min(b, h, w)
    x = _cut(g, x, (n, c, h - h % b, w - w % b))
    return _moved(g, "SpaceToDepth", x, [], (n, c * b * b, h // b, w // b), blocksize=b)


def _cut(g: Graph, x: Value, shape: Shape) -> Value:
    """The first elements of each dimension."""
    if shape == x.shape:
        return x
    axes = _ints(*range(x.rank))
    return _moved(g, "Slice", x, [_ints(*[0] * x.rank), _ints(*shape), axes], shape)


@maker(*FLOATS, rank=(4, 4), weight=2)
def shuffle_channels(g: Graph, x: Value) -> Value:
    """Channels of groups take turns, as ShuffleNet has it."""
    n, c, h, w = x.shape
    groups = g.any([d for d in range(1, c + 1) if c % d == 0])
    apart = _moved(g, "Reshape", x, [_ints(n, groups, c // groups, h, w)], (n, groups, c // groups, h, w))
    turned = _moved(g, "Transpose", apart, [], (n, c // groups, groups, h, w), perm=[0, 2, 1, 3, 4])
    return _moved(g, "Reshape", turned, [_ints(n, c, h, w)], x.shape)


@maker(*F32, rank=(4, 4), weight=3, rows=True, nan=False)
def resize(g: Graph, x: Value) -> Value | None:
    """By sizes or scales whose places no rounding moves: powers of two, or the floor of whole multiples."""
    n, c, h, w = x.shape
    mode = g.any(["nearest", "nearest", "linear", "cubic"])
    where = g.any(["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"])
    up = (g.size(1, 3), g.size(1, 3)) if mode == "nearest" and where == "asymmetric" else (g.any([1, 2]), g.any([1, 2]))
    if mode == "nearest" and where != "asymmetric":
        where, up = "half_pixel", up
    free = mode != "nearest" and not g.rows and g.chance(0.4)
    shape = (n, c, g.size(1, 17), g.size(1, 17)) if free else (n, c, h * up[0], w * up[1])
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attrs["nearest_mode"] = "floor" if where == "asymmetric" else "round_prefer_floor"
    if free or (g.chance(0.5) and not g.rows):
        more = [None, None, _ints(*shape)]
    else:
        more = [None, np.asarray([1, 1, *up], np.float32)]
    # a place has float32's precision times the size, and from place to place values differ by twice the bound
    terms, gain = (0, 1) if mode == "nearest" else (24 + 8 * max(*shape[2:], h, w), 2.5)
    return g.node("Resize", [x, *more], shape, bound=x.bound * gain, gain=gain, terms=terms, **attrs)


@maker(*HALVES, rank=(2, 4), since=14)
def trilu(g: Graph, x: Value) -> Value:
    return _moved(g, "Trilu", x, [np.asarray(g.size(-1, 2), np.int64)], x.shape, upper=g.size(0, 1))


@maker("int64", rank=(1, 2), weight=4)
def one_hot(g: Graph, x: Value) -> Value:
    depth = g.size(2, 7)
    values = np.asarray([g.any([0.0, -1.0]), 1.0], np.float32)
    axis = g.size(0, x.rank) if g.chance(0.4) else -1
    at = x.rank if axis == -1 else axis
    shape = (*x.shape[:at], depth, *x.shape[at:])
    return g.node(
        "OneHot", [x, np.asarray(depth, np.int64), values], shape, dtype="float32", bound=1, error=0.0, axis=axis
    )


@maker(*F32, rank=(2, 4))
def shape_of(g: Graph, x: Value) -> Value:
    """Reshape to what nodes compute of the shape, as exporters of PyTorch write it."""
    shape = g.node("Shape", [x], (x.rank,), dtype="int64", bound=4096, error=0.0)
    first = g.node("Gather", [shape, np.asarray([0], np.int64)], (1,))
    target = g.node("Concat", [first, _ints(-1)], (2,), axis=0)
    return _moved(g, "Reshape", x, [target], (x.shape[0], x.size // x.shape[0]))


@maker(*F32, rank=(1, 3))
def made_of_shape(g: Graph, x: Value) -> Value:
    """A constant of the value's shape, added to it."""
    import onnx

    shape = g.node("Shape", [x], (x.rank,), dtype="int64", bound=4096, error=0.0)
    value = onnx.numpy_helper.from_array(np.asarray([0.5], np.float32))
    node = g.node("ConstantOfShape", [shape], x.shape, dtype="float32", bound=0.5, error=0.0, value=value)
    return g.node("Add", [x, node], x.shape, bound=x.bound + 0.5)


@maker(*ANY, empty=True, rows=True)
def nothing(g: Graph, x: Value) -> Value:
    return _moved(g, "Identity", x, [], x.shape)
