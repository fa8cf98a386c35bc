"""Random small ONNX models from a seed: a few operators of many kinds, odd sizes, shared values, several outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
_LARGEST = 4096


class Value(NamedTuple):
    """A float32 tensor of the graph; `bound` is about the largest magnitude its elements reach."""

    name: str
    shape: Shape
    bound: float


class RandomModel:
    """Grows a graph one random node at a time from values made before.

    Constants are scaled so that values stay of the order of one: errors are judged by an output's range, and a
    difference of large values would have none of it left.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([2024, seed])
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[Value] = []
        self._values: list[Value] = []
        self._used: set[str] = set()

    # ------------------------------------------------------------------------------------------------ the graph
    def build(self, nodes: int) -> onnx.ModelProto:
        """A model of about so many nodes; every value that nothing reads is an output, and now and then another."""
        image = (int(self._rng.integers(1, 3)), self._size(1, 20), self._size(3, 13), self._size(3, 13))
        self._input(image)
        if self._chance(0.3):
            self._input(image if self._chance(0.5) else (self._size(1, 4), self._size(2, 40)))
        for _ in range(nodes):
            self._grow()
        outputs = [v for v in self._values if v.name not in self._used] or self._values[-1:]
        inner = [v for v in self._values if v.name in self._used and v not in self._inputs]
        if inner and self._chance(0.3):
            outputs.append(self._any(inner))
        graph = helper.make_graph(
            self._nodes, "random", [_info(v) for v in self._inputs], [_info(v) for v in outputs], self._weights
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model

    def _input(self, shape: Shape) -> None:
        self._inputs.append(Value(f"x{len(self._inputs)}", shape, 4.0))
        self._values.append(self._inputs[-1])

    def _grow(self) -> None:
        """One node on a recent value, so that chains form as often as branches."""
        x = self._values[-1] if self._chance(0.7) else self._any(self._values)
        rank = len(x.shape)
        makers = [*_ANY_RANK, *(_WITH_AXES if rank else ()), *_BY_RANK.get(rank, ())]
        made = self._any(makers)(self, x)
        if made is not None and math.prod(made.shape) <= _LARGEST:
            self._values.append(made)

    def node(
        self, op_type: str, inputs: Sequence[Value | np.ndarray | None], shape: Sequence[int], bound: float,
        **attributes: Any,
    ) -> Value:  # fmt: skip
        """A node with one output; arrays become initializers, None an input left out."""
        names = [self._name(value) for value in inputs]
        index = len(self._nodes)
        self._nodes.append(helper.make_node(op_type, names, [f"v{index}"], f"{op_type.lower()}_{index}", **attributes))
        return Value(f"v{index}", tuple(int(d) for d in shape), bound)

    def _name(self, value: Value | np.ndarray | None) -> str:
        if value is None:
            return ""
        if isinstance(value, Value):
            self._used.add(value.name)
            return value.name
        self._weights.append(numpy_helper.from_array(value, f"w{len(self._weights)}"))
        return self._weights[-1].name

    # ------------------------------------------------------------------------------------------------ random things
    def _chance(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def _size(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))

    def _any(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._rng.integers(len(choices)))]

    def _array(self, *shape: int, scale: float = 1.0, low: float | None = None) -> np.ndarray:
        array = self._rng.standard_normal(shape) * scale
        return (array if low is None else np.abs(array) + low).astype(np.float32)

    def _other(self, x: Value) -> Value | np.ndarray:
        """An operand that broadcasts against `x` without making it larger: a value, or a constant."""
        fitting = [v for v in self._values if _broadcasts(v.shape, x.shape)]
        if fitting and self._chance(0.6):
            return self._any(fitting)
        rank = self._size(0, len(x.shape))
        shape = [d if self._chance(0.6) else 1 for d in x.shape[len(x.shape) - rank :]]
        return self._array(*shape)


def _info(value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, TensorProto.FLOAT, value.shape)


def _broadcasts(shape: Shape, target: Shape) -> bool:
    return len(shape) <= len(target) and all(
        d in (1, t) for d, t in zip(reversed(shape), reversed(target), strict=False)
    )


# ---------------------------------------------------------------------------------------------------- elementwise
def _unary(g: RandomModel, x: Value) -> Value:
    kind = g._any(["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "LeakyRelu", "Elu", "Softplus", "HardSwish"])
    bound = 1.0 if kind in ("Sigmoid", "Tanh", "Erf") else x.bound
    return g.node(kind, [x], x.shape, bound)


def _clip(g: RandomModel, x: Value) -> Value:
    low, high = sorted(float(v) for v in g._rng.uniform(-2, 2, 2))
    ends = [np.float32(low), np.float32(high)]
    given: list[Any] = [np.asarray(e) if g._chance(0.8) else None for e in ends]
    return g.node("Clip", [x, *given], x.shape, x.bound)


def _exp(g: RandomModel, x: Value) -> Value:
    return g.node("Exp", [g.node("Tanh", [x], x.shape, 1.0)], x.shape, 3.0)


def _root(g: RandomModel, x: Value) -> Value:
    kind = g._any(["Sqrt", "Log"])
    squares = g.node("Mul", [x, x], x.shape, x.bound**2)
    return g.node(kind, [g.node("Add", [squares, np.float32(1).reshape(())], x.shape, x.bound**2)], x.shape, x.bound)


def _binary(g: RandomModel, x: Value) -> Value:
    kind = g._any(["Add", "Add", "Add", "Sub", "Mul", "Max", "Min", "Div"])
    other = g._other(x)
    if kind == "Div" or (kind == "Mul" and x.bound > 8):
        return g.node("Div", [x, g._array(*x.shape[-1:], low=0.5)], x.shape, 2 * x.bound)
    operands = [x, other] if g._chance(0.5) else [other, x]
    bound = other.bound if isinstance(other, Value) else 3.0
    return g.node(kind, operands, x.shape, x.bound * bound if kind == "Mul" else x.bound + bound)


def _double(g: RandomModel, x: Value) -> Value:
    return g.node("Add", [x, x], x.shape, 2 * x.bound)


# ------------------------------------------------------------------------------------------------ shapes and joins
def _reshape(g: RandomModel, x: Value) -> Value:
    total = math.prod(x.shape)
    first = g._any([d for d in range(1, min(total, 12) + 1) if total % d == 0])
    shape = g._any([(total,), (first, total // first), (1, first, total // first), (first, 1, total // first, 1)])
    return g.node("Reshape", [x, np.asarray(shape, np.int64)], shape, x.bound)


def _transpose(g: RandomModel, x: Value) -> Value:
    order = [int(a) for a in g._rng.permutation(len(x.shape))]
    return g.node("Transpose", [x], [x.shape[a] for a in order], x.bound, perm=order)


def _flatten(g: RandomModel, x: Value) -> Value:
    axis = g._size(0, len(x.shape))
    return g.node("Flatten", [x], (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), x.bound, axis=axis)


def _concat(g: RandomModel, x: Value) -> Value:
    axis = g._size(0, len(x.shape) - 1)
    rest = [v for v in g._values if _without(v.shape, axis) == _without(x.shape, axis) and len(v.shape) > axis]
    other = g._any(rest) if g._chance(0.7) else g._array(*(g._size(1, 3) if a == axis else d for a, d in _axes(x)))
    shape = [d + other.shape[a] if a == axis else d for a, d in _axes(x)]
    return g.node("Concat", [x, other], shape, x.bound + 3, axis=axis)


def _slice(g: RandomModel, x: Value) -> Value | None:
    axis = g._size(0, len(x.shape) - 1)
    size = x.shape[axis]
    if size < 2:
        return None
    start = g._size(0, size - 1)
    stop, step = g._size(start + 1, size), g._size(1, 2)
    given = [np.asarray([v], np.int64) for v in (start, stop, axis, step)]
    length = -(-(stop - start) // step)
    return g.node("Slice", [x, *given], [length if a == axis else d for a, d in _axes(x)], x.bound)


def _pad(g: RandomModel, x: Value) -> Value:
    amounts = [g._size(0, 2) for _ in range(2 * len(x.shape))]
    shape = [d + amounts[a] + amounts[a + len(x.shape)] for a, d in _axes(x)]
    return g.node("Pad", [x, np.asarray(amounts, np.int64), np.asarray(0.5, np.float32)], shape, x.bound)


def _axes(x: Value) -> list[tuple[int, int]]:
    return list(enumerate(x.shape))


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + (-1,) + shape[axis + 1 :]


# ----------------------------------------------------------------------------------------------------- reductions
def _reduce(g: RandomModel, x: Value) -> Value:
    kind, keep = g._any(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"]), int(g._chance(0.5))
    axes = sorted(int(a) for a in g._rng.permutation(len(x.shape))[: g._size(1, len(x.shape))])
    shape = [1 if a in axes else d for a, d in _axes(x) if keep or a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    scaled = x if kind != "ReduceSum" else g.node("Mul", [x, np.float32(1 / count).reshape(())], x.shape, x.bound)
    if kind == "ReduceSum":  # its axes are an input since opset 13, those of the others since 18
        return g.node(kind, [scaled, np.asarray(axes, np.int64)], shape, x.bound, keepdims=keep)
    return g.node(kind, [scaled], shape, x.bound, keepdims=keep, axes=axes)


def _softmax(g: RandomModel, x: Value) -> Value:
    kind = g._any(["Softmax", "Softmax", "LogSoftmax"])
    axis = -1 if g._chance(0.7) else g._size(0, len(x.shape) - 1)
    return g.node(kind, [x], x.shape, 1.0 if kind == "Softmax" else x.bound + 4, axis=axis)


# --------------------------------------------------------------------------------------------------------- matmul
def _gemm(g: RandomModel, x: Value) -> Value:
    columns, (rows, depth) = g._size(1, 24), x.shape
    turned = g._chance(0.5)
    weight = g._array(*((columns, depth) if turned else (depth, columns)), scale=depth**-0.5)
    bias = g._any([[], [g._array(columns)], [g._array(1, columns)], [g._array(rows, 1)], [g._array(1)]])
    return g.node("Gemm", [x, weight, *bias], (rows, columns), x.bound + 3, transB=int(turned))


def _matmul(g: RandomModel, x: Value) -> Value:
    columns, depth = g._size(1, 24), x.shape[-1]
    weight = g._array(depth, columns, scale=depth**-0.5)
    return g.node("MatMul", [x, weight], (*x.shape[:-1], columns), x.bound)


def _gram(g: RandomModel, x: Value) -> Value:
    """x times its own transpose: a matmul of two values."""
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    turned = g.node("Transpose", [x], [x.shape[a] for a in order], x.bound, perm=order)
    product = g.node("MatMul", [x, turned], (*x.shape[:-1], x.shape[-2]), x.bound**2 * x.shape[-1])
    return g.node("Mul", [product, np.float32(1 / x.shape[-1]).reshape(())], product.shape, x.bound**2)


# --------------------------------------------------------------------------------------------------------- images
def _conv(g: RandomModel, x: Value) -> Value | None:
    n, channels, height, width = x.shape
    kernel, strides = (g._size(1, 4), g._size(1, 4)), (g._size(1, 3), g._size(1, 3))
    pads, dilations = [g._size(0, 2) for _ in range(4)], (g._size(1, 2), g._size(1, 2))
    size = [
        (d + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, d in enumerate((height, width))
    ]
    if min(size) < 1:
        return None
    depthwise = g._chance(0.15)
    filters = channels if depthwise else g._size(1, 40)
    depth = 1 if depthwise else channels
    weight = g._array(filters, depth, *kernel, scale=(depth * math.prod(kernel)) ** -0.5)
    bias = [g._array(filters)] if g._chance(0.5) else []
    return g.node(
        "Conv", [x, weight, *bias], (n, filters, *size), x.bound + 3, kernel_shape=kernel, strides=strides, pads=pads,
        dilations=dilations, group=channels if depthwise else 1,
    )  # fmt: skip


def _plain_conv(g: RandomModel, x: Value) -> Value:
    """Keeps height and width, so that a residual add is possible; half of them keep the channels too."""
    n, channels, height, width = x.shape
    filters, k = channels if g._chance(0.5) else g._size(1, 40), g._any([1, 3])
    weight = g._array(filters, channels, k, k, scale=(channels * k * k) ** -0.5)
    return g.node("Conv", [x, weight], (n, filters, height, width), x.bound, kernel_shape=[k, k], pads=[k // 2] * 4)


def _residual(g: RandomModel, x: Value) -> Value:
    y = _plain_conv(g, x)
    if y.shape != x.shape:
        return y
    total = g.node("Add", [y, x] if g._chance(0.5) else [x, y], x.shape, x.bound + y.bound)
    return g.node("Relu", [total], x.shape, total.bound)


def _batch_norm(g: RandomModel, x: Value) -> Value:
    channels = x.shape[1]
    given = [g._array(channels), g._array(channels), g._array(channels), g._array(channels, low=0.5)]
    return g.node("BatchNormalization", [x, *given], x.shape, 2 * x.bound + 3)


def _pool(g: RandomModel, x: Value) -> Value | None:
    kind, sizes = g._any(["MaxPool", "AveragePool"]), x.shape[2:]
    kernel, strides = (g._size(1, 4), g._size(1, 4)), (g._size(1, 3), g._size(1, 3))
    pads = [g._size(0, kernel[i % 2] - 1) for i in range(4)]
    size = [(d + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i, d in enumerate(sizes)]
    if min(size) < 1:
        return None
    more = {"count_include_pad": g._size(0, 1)} if kind == "AveragePool" else {}
    return g.node(kind, [x], (*x.shape[:2], *size), x.bound, kernel_shape=kernel, strides=strides, pads=pads, **more)


def _global_pool(g: RandomModel, x: Value) -> Value:
    kind = g._any(["GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    return g.node(kind, [x], (*x.shape[:2], 1, 1), x.bound)


Maker = Callable[[RandomModel, Value], "Value | None"]
_ANY_RANK: tuple[Maker, ...] = (_unary, _clip, _exp, _double, _reshape)
#: No constant meets a scalar: TVM's converters make a vector of them.
_WITH_AXES: tuple[Maker, ...] = (
    _unary, _root, _binary, _binary, _binary, _transpose, _flatten, _concat, _slice, _pad, _reduce, _softmax,
)  # fmt: skip
_BY_RANK: dict[int, tuple[Maker, ...]] = {
    2: (_gemm, _gemm, _matmul, _gram),
    3: (_matmul, _matmul, _gram),
    4: (_conv,) * 6
    + (_plain_conv,) * 3
    + (_residual,) * 4
    + (_batch_norm,) * 3
    + (_pool,) * 4
    + (_global_pool,) * 2
    + (_matmul,),
}
