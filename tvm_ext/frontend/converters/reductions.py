"""Largest and smallest values and their places, sums of functions, and running products.

ReduceMax over nothing, or of nothing but -inf, is -inf; TVM's maximum starts from the largest finite number.
ArgMax starts from no element: from a value, a row of nothing but that value has no largest element in TVM
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ...core.graph.relax_graph import dtype_of
from .base import (
    Attributes,
    Converter,
    constant,
    converts,
    emit,
    kernel,
    known,
    scalar,
    static_shape,
    stock,
    takes_integers,
)


def _extreme(largest: bool) -> Converter:
    function = relax.op.max if largest else relax.op.min

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        x, dtype = inputs[0], dtype_of(inputs[0])
        axes = _axes(inputs, attributes)
        if not axes:
            return x
        keep = bool(attributes.get("keepdims", 1))
        shape = static_shape(x, "the input of a reduction")
        if 0 in shape:
            left = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
            return constant(np.full(left, extreme_of_nothing(dtype, largest)), dtype)
        if dtype == "bool":
            return relax.op.astype(function(emit(relax.op.astype(x, "int8")), axes, keep), dtype)
        if dtype == "float64":
            return kernel(lambda data: _reduced(data, axes, keep, largest), x, name="reduce")
        return function(x, axes, keep)

    return converter


def _axes(inputs: Any, attributes: Attributes) -> list[int]:
    """The axes; none with `noop_with_empty_axes`, all of them by default."""
    rank = int(inputs[0].ty.ndim)
    stated = attributes.get("axes", ()) if inputs[1] is None else known(inputs[1], "axes").reshape(-1)
    axes = sorted({int(a) % rank for a in stated})
    return axes or ([] if attributes.get("noop_with_empty_axes", 0) else list(range(rank)))


def extreme_of_nothing(dtype: str, largest: bool) -> float | int | bool:
    """The largest, or the smallest, element of none: what a maximum or a minimum starts from."""
    if dtype == "bool":
        return not largest
    if "int" in dtype:
        return int(np.iinfo(dtype).min if largest else np.iinfo(dtype).max)
    return -math.inf if largest else math.inf


def extreme_reducer(largest: bool) -> Any:
    """A reduction of `te` to the largest or the smallest, which starts from infinity."""
    combine = tirx.max if largest else tirx.min
    first = functools.partial(extreme_of_nothing, largest=largest)
    return te.comm_reducer(lambda a, b: combine(a, b), lambda dtype: tirx.const(first(dtype), dtype))


def _reduced(data: te.Tensor, axes: list[int], keep: bool, largest: bool) -> te.Tensor:
    reducer = extreme_reducer(largest)
    over = {a: te.reduce_axis((0, data.shape[a]), name=f"r{a}") for a in axes}
    kept = [i for i in range(len(data.shape)) if i not in axes]
    shape = [1 if i in axes else d for i, d in enumerate(data.shape) if keep or i not in axes]

    def element(*i: Any) -> Any:
        outer = dict(zip(range(len(data.shape)) if keep else kept, i, strict=True))
        return reducer(data(*({**outer, **over}[d] for d in range(len(data.shape)))), axis=list(over.values()))

    return te.compute(shape, element, name="out")


def _arg_extreme(largest: bool) -> Converter:
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        return place_of_extreme(
            inputs[0], int(attributes.get("axis", 0)), largest, bool(attributes.get("keepdims", 1)),
            bool(attributes.get("select_last_index", 0)),
        )  # fmt: skip

    return converter


def place_of_extreme(x: Any, axis: int, largest: bool, keep: bool, last: bool = False) -> Any:
    """ArgMax or ArgMin: int64 indices of the first, or last, extreme along an axis.

    An element takes the place of the best before it where it compares better, as in onnxruntime: NaN never does, and
    nothing takes the place of one that comes first.
    """
    shape = static_shape(x, f"the input of {'ArgMax' if largest else 'ArgMin'}")
    if not shape:
        return constant(np.zeros((), np.int64))
    axis %= len(shape)
    better = {(True, False): tirx.GT, (True, True): tirx.GE, (False, False): tirx.LT, (False, True): tirx.LE}

    def pick(best: Any, new: Any) -> Any:
        takes = tirx.any(best[0] < 0, better[largest, last](new[1], best[1]))
        return tirx.Select(takes, new[0], best[0]), tirx.Select(takes, new[1], best[1])

    over = te.comm_reducer(pick, lambda i, v: (tirx.const(-1, i), tirx.const(0, v)), name="place")

    def compute(data: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, shape[axis]), name="k")

        def element(*i: Any) -> Any:
            at = (*i[:axis], k, *i[axis + 1 if keep else axis :])
            return over((k.astype("int64"), data(*at)), axis=k)

        kept = [1] if keep else []
        index, _ = te.compute([*shape[:axis], *kept, *shape[axis + 1 :]], element, name="places")
        return te.compute(index.shape, lambda *i: index(*i), name="out")

    return kernel(compute, x, name="arg_extreme")


@converts("CumSum")
def cumulative_sum(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """CumSum along an axis that is known."""
    known(inputs[1], "axis")
    return stock("CumSum", inputs, attributes, opset)


@converts("CumProd")
def cumulative_product(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """CumProd: each element by the product of those before it, itself included unless `exclusive`."""
    x = inputs[0]
    shape = static_shape(x, "the input of CumProd")
    axis = int(known(inputs[1], "axis").reshape(-1)[0]) % len(shape)
    exclusive, reverse = bool(attributes.get("exclusive", 0)), bool(attributes.get("reverse", 0))
    dtype = dtype_of(x)
    product = te.comm_reducer(lambda a, b: a * b, lambda kind: tirx.const(1, kind))

    def compute(data: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, shape[axis]), name="k")

        def element(*i: Any) -> Any:
            here, at = i[axis], [k if d == axis else p for d, p in enumerate(i)]
            low, high = (here, k) if reverse else (k, here)
            counts = low < high if exclusive else low <= high
            return product(tirx.Select(counts, data(*at), tirx.const(1, dtype)), axis=k)

        return te.compute(shape, element, name="out")

    return kernel(compute, x, name="cumulative_product")


@converts("ReduceLogSumExp")
@takes_integers
def log_sum_exp(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ReduceLogSumExp -> log(sum(exp(x - m))) + m; m is the maximum, or 0 where it is infinite: inf - inf is NaN."""
    x, axes, keep = inputs[0], _axes(inputs, attributes), bool(attributes.get("keepdims", 1))
    if not axes:
        return x
    top = emit(_extreme(largest=True)(inputs, {**attributes, "keepdims": 1}, opset))
    finite = relax.op.less(relax.op.abs(top), scalar(math.inf, top))
    top = emit(relax.op.where(finite, top, scalar(0, top)))
    total = relax.op.sum(relax.op.exp(x - top), axes, keepdims=True)
    result = relax.op.log(total) + top
    return result if keep else relax.op.squeeze(result, axes)


@converts("ReduceMean")
def mean(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ReduceMean; of integers below 64 bits through float64, and cut off: TVM's kernel makes 64 bits of them."""
    average: Converter = functools.partial(stock, "ReduceMean")
    convert = average if dtype_of(inputs[0]) in ("int64", "uint64") else takes_integers(average)
    return convert(inputs, attributes, opset)


def _sum_of(before: Callable[[Any], Any], after: Callable[[Any], Any] | None = None) -> Converter:
    """A sum between two functions, which are computed over no axes too; of integers through float64 and cut off.

    Stock TVM leaves them out where there is no axis, and takes no integers.

    Args:
        before: of what is summed.
        after: of the sum, where that is a float.
    """

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        axes, total = _axes(inputs, attributes), emit(before(inputs[0]))
        if axes:
            total = emit(relax.op.sum(total, axes, bool(attributes.get("keepdims", 1))))
        return after(total) if after else total

    return takes_integers(converter) if after else converter


def _square(x: Any) -> Any:
    return x * x


converts("ArgMax")(_arg_extreme(largest=True))
converts("ArgMin")(_arg_extreme(largest=False))
converts("ReduceL1")(_sum_of(relax.op.abs))
converts("ReduceL2")(_sum_of(_square, relax.op.sqrt))
converts("ReduceLogSum")(_sum_of(lambda x: x, relax.op.log))
converts("ReduceMax")(_extreme(largest=True))
converts("ReduceMin")(_extreme(largest=False))
converts("ReduceSumSquare")(_sum_of(_square))
