"""Reductions, softmax, normalizations, cumulative sums, indices of extremes."""

import math

import numpy as np

from .graph import F32, FLOATS, HALVES, INTS, UNIT, Graph, Value, maker, squared

_EXACT = ("ReduceMax", "ReduceMin")
#: Reductions that take their axes as an input, and since which opset.
_AXES_INPUT = {"ReduceSum": 13}


def reduced(g: Graph, op: str, x: Value, axes: list[int], keep: int, **facts) -> Value:
    """A reduction, in the way its opset has it."""
    shape = [1 if a in axes else d for a, d in enumerate(x.shape) if keep or a not in axes]
    if g.opset >= _AXES_INPUT.get(op, 18):
        return g.node(op, [x, np.asarray(axes, np.int64)], shape, keepdims=keep, **facts)
    return g.node(op, [x], shape, keepdims=keep, axes=axes, **facts)


@maker(*FLOATS, rank=(1, 5), weight=8)
def reduce(g: Graph, x: Value) -> Value | None:
    axes = g.some(g.size(1, x.rank), x.rank)
    return _reduce(g, x, axes, int(g.chance(0.5)))


@maker(*F32, rank=(2, 5), weight=3, rows=True)
def reduce_rows(g: Graph, x: Value) -> Value | None:
    axes = [a + 1 for a in g.some(g.size(1, x.rank - 1), x.rank - 1)]
    return _reduce(g, x, axes, 1)


def _reduce(g: Graph, x: Value, axes: list[int], keep: int) -> Value | None:
    kinds = ["ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"]
    more = ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd"] if x.dtype == "float32" else []
    op, n = g.any([*kinds, *more]), math.prod(x.shape[a] for a in axes)
    if op in _EXACT:
        return reduced(g, op, x, axes, keep, terms=0)
    if op == "ReduceLogSumExp":
        return reduced(g, op, x, axes, keep, bound=x.bound + math.log(n), terms=8 + squared(n))
    if op == "ReduceProd":
        if n > 9 or max(x.bound, 1.0) ** n > 1e5:
            return None
        bound = max(x.bound, 1.0) ** n
        return reduced(g, op, x, axes, keep, bound=bound, gain=n * bound, terms=n)
    power = 2 if op == "ReduceSumSquare" else 1
    grown = n if op != "ReduceMean" else 1
    gain = 1.0 if op == "ReduceMean" else math.sqrt(n) if op == "ReduceL2" else n * power * x.bound ** (power - 1)
    bound = x.bound**power * (math.sqrt(n) if op == "ReduceL2" else grown)
    return reduced(g, op, x, axes, keep, bound=bound, gain=gain, terms=squared(n))


@maker(*INTS, rank=(1, 4))
def reduce_integers(g: Graph, x: Value) -> Value | None:
    axes = g.some(g.size(1, x.rank), x.rank)
    n = math.prod(x.shape[a] for a in axes)
    if n * x.bound > 2**30:
        return None
    return reduced(g, g.any(["ReduceSum", "ReduceMax", "ReduceMin"]), x, axes, g.size(0, 1), bound=n * x.bound)


@maker(*F32, rank=(1, 4), weight=2, exact=True, nan=False)
def extreme_index(g: Graph, x: Value) -> Value:
    axis, keep = g.size(0, x.rank - 1), g.size(0, 1)
    shape = [1 if a == axis else d for a, d in enumerate(x.shape) if keep or a != axis]
    return g.node(
        g.any(["ArgMax", "ArgMin"]), [x], shape, dtype="int64", bound=x.shape[axis], error=0.0, axis=axis,
        keepdims=keep, select_last_index=g.size(0, 1),
    )  # fmt: skip


@maker(*F32, rank=(1, 3), exact=True, nan=False)
def top(g: Graph, x: Value) -> Value:
    """The largest or smallest; their places too, among the values to choose from."""
    axis = g.size(0, x.rank - 1)
    k = g.size(1, x.shape[axis])
    shape = tuple(k if a == axis else d for a, d in enumerate(x.shape))
    outputs = [x._replace(shape=shape), Value("", shape, "int64", x.shape[axis])]
    values, places = g.emit("TopK", [x, np.asarray([k], np.int64)], outputs, axis=axis, largest=g.size(0, 1))
    g.values.append(places)
    return values


@maker(*HALVES, rank=(1, 4), weight=5, rows=True)
def softmax(g: Graph, x: Value) -> Value | None:
    first = 1 if g.rows else 0
    if x.rank <= first:
        return None
    op = g.any(["Softmax", "Softmax", "LogSoftmax"])
    axis = -1 if g.chance(0.6) else g.size(first, x.rank - 1)
    bound = 1.0 if op == "Softmax" else 2 * x.bound + math.log(x.shape[axis])
    return g.node(op, [x], x.shape, bound=bound, gain=2, terms=8 + squared(x.shape[axis]), axis=axis)


@maker(*F32, rank=(1, 3), exact=True, nan=False)
def hardmax(g: Graph, x: Value) -> Value:
    return g.node("Hardmax", [x], x.shape, bound=1, terms=0, axis=g.size(0, x.rank - 1) - x.rank)


@maker(*F32, *INTS, rank=(1, 3))
def cumulative(g: Graph, x: Value) -> Value | None:
    axis = g.size(0, x.rank - 1)
    n = x.shape[axis]
    if x.bound * n > 1e6:
        return None
    return g.node(
        "CumSum", [x, np.asarray(axis, g.any([np.int64, np.int32]))], x.shape, bound=n * x.bound, gain=n,
        terms=squared(n) if x.dtype in UNIT else 0, exclusive=g.size(0, 1), reverse=g.size(0, 1),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ normalizations
def _normalized(g: Graph, op: str, inputs: list, x: Value, count: int, epsilon: float, **attributes) -> Value:
    """Error grows by one over the deviation, whose least is epsilon's root."""
    gain, bound = 4 / math.sqrt(epsilon), 3.5 * math.sqrt(count) + 3.5
    return g.node(
        op, inputs, x.shape, bound=bound, gain=gain, terms=squared(count) * (1 + x.bound / math.sqrt(epsilon) / bound),
        epsilon=epsilon, **attributes,
    )  # fmt: skip


@maker(*F32, rank=(2, 4), weight=3, rows=True, since=17)
def layer_norm(g: Graph, x: Value) -> Value:
    axis = g.size(1, x.rank - 1) if g.chance(0.3) else x.rank - 1
    shape = x.shape[axis:]
    scale, shift = g.array(*shape), [g.array(*shape)] if g.chance(0.7) else []
    epsilon = g.any([1e-1, 1e-2, 1e-5])
    return _normalized(g, "LayerNormalization", [x, scale, *shift], x, math.prod(shape), epsilon, axis=axis - x.rank)


@maker(*F32, rank=(2, 4), weight=2, rows=True)
def norm_written_out(g: Graph, x: Value) -> Value:
    """Layer norm or RMS norm in single operators, over the last axis."""
    n, epsilon, axes = x.shape[-1], g.any([1e-1, 1e-2]), [x.rank - 1]
    if g.chance(0.5):
        mean = reduced(g, "ReduceMean", x, axes, 1, terms=squared(n))
        x = g.node("Sub", [x, mean], x.shape, bound=2 * x.bound)
    squares = g.node("Pow", [x, np.asarray(2, np.float32)], x.shape, bound=x.bound**2, gain=2 * x.bound)
    variance = reduced(g, "ReduceMean", squares, axes, 1, terms=squared(n))
    safe = g.node("Add", [variance, np.asarray(epsilon, np.float32)], variance.shape, bound=variance.bound + epsilon)
    deviation = g.node("Sqrt", [safe], safe.shape, bound=math.sqrt(safe.bound), gain=0.5 / math.sqrt(epsilon))
    bound = math.sqrt(n)
    error = x.error / math.sqrt(epsilon) + bound * deviation.error / math.sqrt(epsilon) + 2.0**-23 * bound
    normal = g.node("Div", [x, deviation], x.shape, bound=bound, error=error)
    return g.node("Mul", [normal, g.array(n)], x.shape, bound=3.5 * bound, gain=3.5)


@maker(*F32, rank=(3, 5), weight=2, rows=True)
def instance_norm(g: Graph, x: Value) -> Value:
    channels, count = x.shape[1], math.prod(x.shape[2:])
    inputs = [x, g.array(channels), g.array(channels)]
    return _normalized(g, "InstanceNormalization", inputs, x, count, g.any([1e-1, 1e-2]))


@maker(*F32, rank=(3, 4), weight=4, since=21, rows=True)
def group_norm(g: Graph, x: Value) -> Value:
    channels = x.shape[1]
    groups = g.any([d for d in range(1, channels + 1) if channels % d == 0])
    count = channels // groups * math.prod(x.shape[2:])
    inputs = [x, g.array(channels), g.array(channels)]
    return _normalized(g, "GroupNormalization", inputs, x, count, g.any([1e-1, 1e-2]), num_groups=groups)


@maker(*F32, rank=(2, 4), weight=2, rows=True)
def batch_norm(g: Graph, x: Value) -> Value:
    c = x.shape[1]
    inputs = [g.array(c), g.array(c), g.array(c), g.array(c, low=0.5)]
    return g.node("BatchNormalization", [x, *inputs], x.shape, bound=6 * x.bound + 21, gain=6, terms=8)


@maker(*F32, rank=(4, 4), rows=True)
def local_response(g: Graph, x: Value) -> Value:
    return g.node("LRN", [x], x.shape, gain=2, terms=20, size=g.any([1, 3, 5]), alpha=0.1, beta=0.75, bias=1.0)


@maker(*F32, rank=(2, 4), nan=False)
def unit_length(g: Graph, x: Value) -> Value:
    """x / |x|, of a length that is not small."""
    axis, p = g.size(0, x.rank - 1), g.size(1, 2)
    far = g.node("Add", [g.node("Abs", [x], x.shape), np.asarray(0.5, np.float32)], x.shape, bound=x.bound + 0.5)
    return g.node("LpNormalization", [far], x.shape, bound=1, gain=4, terms=squared(x.shape[axis]), axis=axis, p=p)
