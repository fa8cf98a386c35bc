"""Pooling over windows that TVM's operators do not take: with indices, in other types, of Lp norms.

A window lies over `kernel` elements, `dilation` apart, of the padded input; the next one begins `stride` later. With
`ceil_mode` a last one reaches beyond the padding; one that would begin there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from ...checks.refusal import Refusal
from ..base import Attributes, converts, emit, kernel, outputs_of, scalar, static_shape, stock, text
from ..reductions import extreme_of_nothing


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial dimensions of an input: one number a dimension in each field.

    Attributes:
        sizes: of the input.
        outs: windows.
        before, after: padding.
    """

    sizes: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    outs: tuple[int, ...]

    @classmethod
    def of(cls, x: Any, attributes: Attributes) -> Windows:
        """The windows of a pooling node, whose `auto_pad` stands as `pads`."""
        sizes, taps = static_shape(x, "the input of a pooling operator")[2:], _ints(attributes["kernel_shape"])
        rank = len(taps)
        strides, dilations = (_ints(attributes.get(name, [1] * rank)) for name in ("strides", "dilations"))
        pads = _ints(attributes.get("pads", [0] * 2 * rank))
        before, after, ceil = pads[:rank], pads[rank:], bool(attributes.get("ceil_mode", 0))
        outs = tuple(
            _count(sizes[d] + before[d], after[d], dilations[d] * (taps[d] - 1) + 1, strides[d], ceil)
            for d in range(rank)
        )
        return cls(sizes, taps, strides, dilations, before, after, outs)

    def reductions(self) -> list[Any]:
        """One reduction axis a dimension, over the taps of a window."""
        return [te.reduce_axis((0, k), name=f"k{d}") for d, k in enumerate(self.taps)]

    def element(self, at: Sequence[Any], taps: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Whether a tap of the window at an index is inside the input, and where: the nearest element if it is not."""
        where = [i * s - p + k * d for i, s, p, k, d in
                 zip(at, self.strides, self.before, taps, self.dilations, strict=True)]  # fmt: skip
        inside = tirx.all(*(tirx.all(p >= 0, p < size) for p, size in zip(where, self.sizes, strict=True)))
        return inside, [tirx.max(0, tirx.min(p, size - 1)) for p, size in zip(where, self.sizes, strict=True)]


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _count(size: int, after: int, extent: int, stride: int, ceil: bool) -> int:
    """Windows over a dimension; `size` counts the padding before it."""
    room = size + after - extent
    count = (-(-room // stride) if ceil else room // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size else count


@converts("MaxPool")
def max_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MaxPool; its second output is the flat index, in the whole tensor, of the first largest element of a window."""
    x, attributes = inputs[0], explicit_pads(inputs[0], attributes)
    largest = stock("MaxPool", inputs, attributes, opset)
    if outputs_of(attributes) == 1:
        return largest
    windows, shape = Windows.of(x, attributes), static_shape(x, "the input of MaxPool")
    by_column = bool(attributes.get("storage_order", 0))

    def compute(data: te.Tensor) -> te.Tensor:
        taps, others = windows.reductions(), windows.reductions()
        out, last = (*shape[:2], *windows.outs), math.prod(windows.taps) - 1

        def top(n: Any, c: Any, *at: Any) -> Any:
            inside, place = windows.element(at, others)
            return _maximum(tirx.Select(inside, data(n, c, *place), _least(data.dtype)), axis=others)

        largest = te.compute(out, top, name="largest")  # of this kernel: its operand may be rounded for another

        def tap(n: Any, c: Any, *at: Any) -> Any:
            inside, place = windows.element(at, taps)
            hit = data(n, c, *place) == largest(n, c, *at)
            return te.min(tirx.Select(tirx.all(inside, hit), flat(taps, windows.taps), last), axis=taps)

        first = te.compute(out, tap, name="first")

        def number(n: Any, c: Any, *at: Any) -> Any:
            _, place = windows.element(at, unravelled(first(n, c, *at), windows.taps))
            order = (place[::-1], windows.sizes[::-1]) if by_column else (place, windows.sizes)
            return ((n * shape[1] + c) * math.prod(windows.sizes) + flat(*order)).astype("int64")

        return te.compute(out, number, name="index")

    return relax.Tuple([emit(largest), kernel(compute, x, name="max_pool_index")])


def _least(dtype: Any) -> Any:
    """What a maximum of a dtype starts from."""
    return tirx.const(extreme_of_nothing(str(dtype), largest=True), str(dtype))


#: The largest of several; NaN is passed over, as by the pool itself.
_maximum = te.comm_reducer(lambda a, b: tirx.Select(b > a, b, a), _least, name="maximum")


def flat(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """Row-major number of an index."""
    number = index[0]
    for i, extent in zip(index[1:], shape[1:], strict=True):
        number = number * extent + i
    return number


def unravelled(number: Any, shape: Sequence[int]) -> list[Any]:
    """The index of a row-major number."""
    index = []
    for extent in shape[:0:-1]:
        index.append(tirx.floormod(number, extent))
        number = tirx.floordiv(number, extent)
    return [number, *index[::-1]]


@converts("AveragePool")
def average_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """AveragePool with `auto_pad`, of which stock TVM overlooks the dilation."""
    return stock("AveragePool", inputs, explicit_pads(inputs[0], attributes), opset)


@converts("LpPool")
def lp_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """LpPool(x) -> (sum of |x|^p over a window)^(1/p); stock TVM multiplies an average by all taps, present or not."""
    x, p = inputs[0], int(attributes.get("p", 2))
    windows = Windows.of(x, explicit_pads(x, attributes))
    powers = _power(emit(relax.op.abs(x)), p)

    def compute(data: te.Tensor) -> te.Tensor:
        taps = windows.reductions()

        def element(n: Any, c: Any, *at: Any) -> Any:
            inside, safe = windows.element(at, taps)
            return te.sum(tirx.Select(inside, data(n, c, *safe), tirx.const(0, data.dtype)), axis=taps)

        return te.compute([*data.shape[:2], *windows.outs], element, name="out")

    total = kernel(compute, powers, name="lp_pool")
    if p == 1:
        return total
    return relax.op.sqrt(emit(total)) if p == 2 else relax.op.power(emit(total), scalar(1.0 / p, x))


def _power(x: Any, p: int) -> Any:
    if p == 1:
        return x
    return x * x if p == 2 else relax.op.power(x, scalar(float(p), x))


def explicit_pads(x: Any, attributes: Attributes) -> Attributes:
    """`auto_pad` as `pads`: ceil(size / stride) windows, and one row more at the end, or the beginning, if it is odd.

    Stock TVM rounds SAME_LOWER down.
    """
    mode = text(attributes, "auto_pad", "NOTSET")
    plain = {k: v for k, v in attributes.items() if k != "auto_pad"}
    if mode == "VALID":
        plain.pop("pads", None)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return plain
    window = attributes["kernel_shape"]
    steps, dilations = (attributes.get(n, [1] * len(window)) for n in ("strides", "dilations"))
    sides = []
    for size, k, s, d in zip(static_shape(x, "its input")[2:], window, steps, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        sides.append((small, large) if mode == "SAME_UPPER" else (large, small))
    pads = [before for before, _ in sides] + [after for _, after in sides]
    return {**{k: v for k, v in plain.items() if k != "ceil_mode"}, "pads": pads}


@converts("MaxUnpool")
def max_unpool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MaxUnpool without `output_shape`, of which ONNX's definition and onnxruntime do not make the same.

    Stock TVM takes the pads as pairs of one dimension each.
    """
    if inputs[2] is not None:
        raise Refusal("output_shape: onnxruntime places the elements elsewhere than ONNX defines")
    pads = attributes.get("pads", ())
    pairs = [pad for both in zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True) for pad in both]
    return stock("MaxUnpool", inputs, {**attributes, "pads": pairs} if pairs else attributes, opset)
