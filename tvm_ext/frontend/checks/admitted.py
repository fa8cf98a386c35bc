"""Sizes of free dimensions that a model admits: those that its weights state, and the least at which windows fit.

    MatMul of x[N, D] by weights of 1575 rows              ->  D is 1575
    Conv 3x3 without padding, twice, of x[1, 1, T, F]      ->  T is 5 or more

ONNX's shape inference says which shapes a model has at some sizes. Where a node cannot take its operands, an extent of
one of them is compared with the extent that it needs, and the size at which both are equal is searched: extents grow
with sizes.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...core.options import DEFAULT_SIZE, CompileOptions
from ...ops.operator import Kind
from ...ops.table import of
from ..reading.walk import attribute
from .inference import SMALL, dims_known, types_of_outputs

#: The largest size that is searched.
_MOST = 1 << 16
#: Nodes that are inferred in all, some ten thousand a second; what is behind them is not known.
_MOST_INFERRED = 60_000
#: How often sizes are changed, and how far from one another it is seen whether an extent depends on it.
_STEPS, _FAR = 32, 64
#: The largest size of a dimension without bounds whose least is larger than usual, as a multiple of the least.
_TIMES_LEAST = 4

Dims = tuple[int, ...] | None
Gap = tuple[int, bool]
"""What an extent has too much, below 0 too little; and whether more is as good."""
Types = dict[str, onnx.TypeProto]


def admitted(model: onnx.ModelProto, options: CompileOptions) -> CompileOptions:
    """The options with sizes and bounds of symbolic dimensions that the model takes.

    Dimensions with bounds or exact sizes of one's own stay as they are.

    Args:
        options: with a name for each free dimension.
    """
    stated = {*dict(options.dims), *dict(options.specialize)}
    symbols = {symbol.name: symbol for symbol in options.symbols if symbol.name not in stated}
    largest = {symbol.name: min(symbol.high, _MOST) for symbol in options.symbols}
    shapes, bounds = _Shapes(model, options), dict[str, tuple[int, int]]()
    for small in ({}, *({name: symbol.low} for name, symbol in symbols.items())):
        for _ in range(_STEPS):
            sizes = {**largest, **small}
            sizes |= {name: min(max(sizes[name], low), high) for name, (low, high) in bounds.items()}
            fixed = {name for name, (low, high) in bounds.items() if low >= high}
            solved = _first_solved(shapes, sizes, [name for name in symbols if name not in fixed])
            if solved is None:
                break
            name, low, high = solved
            bounds[name] = max(low, bounds.get(name, (0, 0))[0]), min(high, bounds.get(name, (0, _MOST))[1])
    if any(low > high for low, high in bounds.values()):
        return options
    free = options.at({name: low for name, (low, high) in bounds.items() if low == high})
    wide = {
        name: (low, high if high < _MOST else max(largest[name], DEFAULT_SIZE[1], _TIMES_LEAST * low))
        for name, (low, high) in bounds.items() if low < high
    }  # fmt: skip
    return free.with_dims({**dict(free.dims), **wide})


def _first_solved(shapes: "_Shapes", sizes: Mapping[str, int], names: Sequence[str]) -> tuple[str, int, int] | None:
    """Of the first gap on which one dimension decides: that dimension, the least size without one, and the largest.

    Args:
        sizes: of all dimensions.
        names: of those that may have other sizes.
    """
    for place in shapes.gaps(sizes):
        now = shapes.gap_at(place, sizes)
        if now is None:
            continue

        extents = {n: functools.partial(shapes.gap_with, place, sizes, n) for n in names}
        steps = {n: (max(sizes[n] // 2, 1) + 2, max(sizes[n] // _FAR, 1) + _FAR) for n in names}
        deciding = [n for n in names if any(extents[n](size) not in (now, None) for size in steps[n])]
        if len(deciding) == 1:
            (name,) = deciding
            if (bounds := _without_gap(extents[name], sizes[name], now[1])) is not None:
                return name, *bounds
    return None


def _without_gap(gap: Callable[[int], Gap | None], size: int, more: bool) -> tuple[int, int] | None:
    """The least and the largest size without a gap; None if there is none.

    Args:
        gap: grows with sizes.
        size: at which it is known; far from there nodes before may not take theirs.
        more: sizes may be as large as one likes.
    """

    def first(too_small: Callable[[int], bool]) -> int:
        low, high = 0, _MOST
        while high - low > 1:
            middle = (low + high) // 2
            there = gap(middle)
            small = middle < size if there is None else too_small(there[0])
            low, high = (middle, high) if small else (low, middle)
        return high

    least = first(lambda extra: extra < 0)
    if (at := gap(least)) is None or at[0] != 0:
        return None
    return least, _MOST if more else first(lambda extra: extra <= 0) - 1


class _Shapes:
    """The shapes of a model's values by the sizes of its inputs.

    Args:
        model: whose weights are not read.
        options: with a shape of numbers and names for each input of free dimensions.
    """

    def __init__(self, model: onnx.ModelProto, options: CompileOptions) -> None:
        graph = model.graph
        self._nodes, self._inputs, self._named = list(graph.node), list(graph.input), dict(options.shapes)
        self._versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
        within = [(name, attribute(n, "value")) for n in graph.node if n.op_type == "Constant" for name in n.output]
        constants = [*((t.name, t) for t in graph.initializer), *((name, t) for name, t in within if t is not None)]
        small = ((name, t) for name, t in constants if math.prod(t.dims) <= SMALL)
        self._constants = {name: array for name, t in small if (array := _array(t)) is not None}
        self._weights = {name: helper.make_tensor_type_proto(t.data_type, t.dims) for name, t in constants}
        self._types: dict[tuple[tuple[str, int], ...], list[Types]] = {}
        self._left = _MOST_INFERRED

    def gaps(self, sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """Places of extents that nodes cannot take: number of the node, and of the extent there."""
        for number in range(len(self._nodes)):
            for which, (extra, more) in enumerate(self._gaps(number, sizes)):
                if extra < 0 or (extra > 0 and not more):
                    yield number, which

    def gap_at(self, place: tuple[int, int], sizes: Mapping[str, int]) -> Gap | None:
        """What an extent has too much or too little; None where shapes of its node are not known."""
        number, which = place
        gaps = self._gaps(number, sizes)
        return gaps[which] if which < len(gaps) else None

    def gap_with(self, place: tuple[int, int], sizes: Mapping[str, int], name: str, size: int) -> Gap | None:
        """:meth:`gap_at` with another size of one dimension."""
        return self.gap_at(place, {**sizes, name: size})

    def _gaps(self, number: int, sizes: Mapping[str, int]) -> tuple[Gap, ...]:
        node = self._nodes[number]
        rule = _rule_of(node)
        types = self._known(number, sizes) if rule is not None else {}
        shapes = [_shape(types.get(name)) for name in node.input]
        if rule is None or not shapes or shapes[0] is None:
            return ()
        constants = [self._constants.get(name) for name in node.input]
        try:
            return tuple(rule(node, shapes, constants))
        except (IndexError, ValueError):  # no valid node: it was refused, and no size mends it
            return ()

    def _known(self, number: int, sizes: Mapping[str, int]) -> Types:
        """Value -> type, of all values up to those of a node."""
        key = tuple(sorted(sizes.items()))
        if key not in self._types:
            self._types[key] = [{**{value.name: self._type(value, sizes) for value in self._inputs}, **self._weights}]
        steps = self._types[key]  # one more for each node that was asked
        known = steps[0]
        for node in self._nodes[len(steps) - 1 : number + 1] if self._left > 0 else ():
            self._left -= 1
            known.update(types_of_outputs(node, self._versions, known, self._constants))
            steps.append(known)
        return known

    def _type(self, value: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> onnx.TypeProto:
        if value.name not in self._named:
            return value.type
        dims = [sizes.get(str(d), d) for d in self._named[value.name]]
        return helper.make_tensor_type_proto(value.type.tensor_type.elem_type, dims)


def _array(tensor: onnx.TensorProto) -> np.ndarray | None:
    """The elements of a tensor; None of one that is damaged."""
    try:
        return numpy_helper.to_array(tensor)
    except (TypeError, ValueError):
        return None


def _shape(kind: onnx.TypeProto | None) -> Any:
    """Dimensions of a type; None where one is not known."""
    dims = None if kind is None else dims_known(kind)
    return None if dims is None or None in dims else dims


# -------------------------------------------------------------------------------------------- what operators can take
Rule = Callable[[onnx.NodeProto, Sequence[Dims], Sequence[Any]], Iterator[Gap]]
"""Of a node, by the shapes of its inputs and by constants among them: gaps of extents."""


def _of_matmul(node: onnx.NodeProto, inputs: Sequence[Dims], constants: Sequence[Any]) -> Iterator[Gap]:
    left, right = inputs[:2]
    if left and right and len(right) > 1:
        yield left[-1] - right[-2], False


def _of_gemm(node: onnx.NodeProto, inputs: Sequence[Dims], constants: Sequence[Any]) -> Iterator[Gap]:
    left, right = inputs[:2]
    if left and right:
        yield left[0 if attribute(node, "transA", 0) else 1] - right[1 if attribute(node, "transB", 0) else 0], False


def _of_window(node: onnx.NodeProto, inputs: Sequence[Dims], constants: Sequence[Any]) -> Iterator[Gap]:
    data, weight = inputs[0] or (), inputs[1] if node.op_type == "Conv" else None
    if weight:
        yield data[1] - weight[1] * attribute(node, "group", 1), False
    window = attribute(node, "kernel_shape") or (weight or ())[2:]
    if not attribute(node, "auto_pad", b"").startswith(b"SAME"):
        steps = attribute(node, "dilations") or [1] * len(window)
        pads = attribute(node, "pads") or [0] * 2 * len(window)
        around = map(sum, zip(pads, pads[len(window) :], strict=False))
        for extent, size, step, pad in zip(data[2:], window, steps, around, strict=True):
            yield min(extent + pad - step * (size - 1) - 1, 0), True


def _of_recurrence(node: onnx.NodeProto, inputs: Sequence[Dims], constants: Sequence[Any]) -> Iterator[Gap]:
    data, weight, state = inputs[0], inputs[1], inputs[5] if len(inputs) > 5 else None
    if data and weight:
        yield data[2] - weight[2], False
        if state:
            batch = 0 if attribute(node, "layout", 0) else 1
            yield data[batch] - state[batch], False


def _of_broadcast(node: onnx.NodeProto, inputs: Sequence[Dims], constants: Sequence[Any]) -> Iterator[Gap]:
    left, right = inputs[0] or (), inputs[1] if len(inputs) > 1 else None
    for own, other in zip(reversed(left), reversed(right or ()), strict=False):
        yield (0 if 1 in (own, other) else own - other), False


def _of_squeeze(node: onnx.NodeProto, inputs: Sequence[Dims], constants: Sequence[Any]) -> Iterator[Gap]:
    """Axes have one element; where none are stated, those of some sizes have two or more."""
    data, axes = inputs[0] or (), constants[1] if len(constants) > 1 else attribute(node, "axes")
    if axes is not None:
        yield from ((data[int(axis)] - 1, False) for axis in np.reshape(axes, -1))
    elif len(node.input) < 2 or not node.input[1]:
        yield from ((min(extent - 2, 0), True) for extent in data)


def _of_reshape(node: onnx.NodeProto, inputs: Sequence[Dims], constants: Sequence[Any]) -> Iterator[Gap]:
    """Elements are those of the target; where its first extent follows, rows stay rows."""
    data, target = inputs[0] or (), constants[1]
    if target is not None and target.ndim == 1 and not attribute(node, "allowzero", 0):
        wanted = [int(n) or data[axis] for axis, n in enumerate(target)]
        rows = 1 if wanted[:1] == [-1] else 0
        if -1 not in wanted[rows:]:
            yield math.prod(data[rows:]) - math.prod(wanted[rows:]), False


_RULES: Mapping[str, Rule] = {
    "MatMul": _of_matmul, "Gemm": _of_gemm, "Squeeze": _of_squeeze, "Reshape": _of_reshape, "Conv": _of_window,
    "MaxPool": _of_window, "AveragePool": _of_window, "LpPool": _of_window, "LSTM": _of_recurrence,
    "GRU": _of_recurrence, "RNN": _of_recurrence,
}  # fmt: skip


def _rule_of(node: onnx.NodeProto) -> Rule | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    return _RULES.get(node.op_type, _of_broadcast if of(node.op_type).kind is Kind.ELEMENTWISE else None)
