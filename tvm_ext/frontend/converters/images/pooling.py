"""Pooling over windows that TVM's operators do not take: with indices, in other types, of Lp norms; Col2Im, DeformConv.

A window lies over `kernel` elements, `dilation` apart, of the padded input; the next one begins `stride` later. With
`ceil_mode` a last one reaches beyond the padding; one that would begin there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ....ops.scalars import strict_floats
from ...checks.refusal import Refusal
from ..base import Attributes, converts, emit, kernel, known, outputs_of, scalar, static_shape, stock, text
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
        sides = zip(sizes, before, after, dilations, taps, strides, strict=True)
        outs = tuple(_count(size + low, high, d * (k - 1) + 1, s, ceil) for size, low, high, d, k, s in sides)
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
    """MaxPool; its second output is the flat index, in the whole tensor, of the first largest element of a window, or
    of its first NaN."""
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
            x = data(n, c, *place)
            hit = x == largest(n, c, *at)
            hit = strict_floats.logical_or(hit, tirx.isnan(x)) if strict_floats.is_float(x) else hit
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


#: The largest of several, or NaN.
_maximum = te.comm_reducer(lambda a, b: strict_floats.maximum(a, b), _least, name="maximum")


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


def with_first_window(x: Any, attributes: Attributes) -> Attributes:
    """Attributes for operators of onnxruntime's own, with room for a window beyond the image by less than a stride.

    It divides towards 0, and makes one output; ONNX rounds down, and makes none.

    Raises:
        Refusal: a mean that counts padding, and would count this.
    """
    attributes = explicit_pads(x, attributes)
    w = Windows.of(x, attributes)
    sides = zip(w.sizes, w.before, w.after, w.taps, w.dilations, strict=True)
    beyond = [d * (k - 1) + 1 - size - before - after for size, before, after, k, d in sides]
    missing = [more if 0 < more < stride else 0 for more, stride in zip(beyond, w.strides, strict=True)]
    if any(missing) and attributes.get("count_include_pad", 0):
        raise Refusal(f"count_include_pad of a window of {list(w.taps)}, which is larger than the padded image")
    after = [side + more for side, more in zip(w.after, missing, strict=True)]
    return {**attributes, "pads": [*w.before, *after]}


def with_whole_windows(x: Any, attributes: Attributes) -> Attributes:
    """Pads by which the last window of `ceil_mode` lies within: a mean that counts padding counts all of it then."""
    w = Windows.of(x, attributes)
    sides = zip(w.sizes, w.before, w.taps, w.dilations, w.strides, w.outs, strict=True)
    after = [max((n - 1) * s + d * (k - 1) + 1 - size - low, 0) for size, low, k, d, s, n in sides]
    return {**{k: v for k, v in attributes.items() if k != "ceil_mode"}, "pads": [*w.before, *after]}


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


# ------------------------------------------------------------ sliding windows that TVM lacks
@converts("Col2Im")
def col2im(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Col2Im(columns, image_shape, block_shape): every element of the image is the sum of all blocks over it."""
    if dtype_of(inputs[0]) == "bool":
        raise Refusal("bool: ONNX does not say what a sum of them is")
    image, block = ([int(d) for d in known(inputs[i], n)] for i, n in ((1, "image_shape"), (2, "block_shape")))
    rank = len(image)
    strides, dilations = ([int(v) for v in attributes.get(n, [1] * rank)] for n in ("strides", "dilations"))
    pads = [int(p) for p in attributes.get("pads", [0] * 2 * rank)]
    counts = [
        (image[d] + pads[d] + pads[rank + d] - (dilations[d] * (block[d] - 1) + 1)) // strides[d] + 1
        for d in range(rank)
    ]
    batch, rows, blocks = static_shape(inputs[0], "the input of Col2Im")
    if blocks != math.prod(counts) or rows % math.prod(block):
        wrong = f"not of {math.prod(counts)}, each of {math.prod(block)} elements"
        raise Refusal(f"{rows} rows of {blocks} blocks, {wrong}")
    channels = rows // math.prod(block)

    def compute(columns: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, b), name=f"k{d}") for d, b in enumerate(block)]

        def element(n: Any, c: Any, *at: Any) -> Any:
            offsets = [at[d] + pads[d] - taps[d] * dilations[d] for d in range(rank)]
            starts = [tirx.floordiv(o, s) for o, s in zip(offsets, strides, strict=True)]
            hits = [tirx.all(tirx.floormod(o, s) == 0, p >= 0, p < count)
                    for o, s, p, count in zip(offsets, strides, starts, counts, strict=True)]  # fmt: skip
            safe = [tirx.max(0, tirx.min(p, count - 1)) for p, count in zip(starts, counts, strict=True)]
            value = columns(n, c * math.prod(block) + flat(taps, block), flat(safe, counts))
            return te.sum(tirx.Select(tirx.all(*hits), value, tirx.const(0, columns.dtype)), axis=taps)

        return te.compute([batch, channels, *image], element, name="out")

    return kernel(compute, inputs[0], name="col2im")


def _check_taps(x: Any, moves: Sequence[Any], taps: int, channels: int) -> None:
    """Raises Refusal where offsets and masks are not for so many taps, or x has other channels than the weight."""
    own, *counts = (static_shape(t, "an operand of DeformConv")[1] for t in (x, *moves))
    if counts != [2 * taps, taps][: len(counts)] or own != channels:
        raise Refusal(f"offset and mask of {counts} channels for {taps} taps; x of {own} channels for {channels}")


@converts("DeformConv")
def deform_conv(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DeformConv(x, w, offset, bias, mask): a convolution whose taps read x bilinearly at shifted places.

    Dai et al., Deformable Convolutional Networks, 2017; with a mask, version 2. Beyond the edges x is 0.
    """
    x, w, offset, bias, mask = (inputs[i] for i in range(5))
    n, _, height, width = static_shape(x, "the input of DeformConv")
    filters, per_group, kh, kw = static_shape(w, "the weight of DeformConv")
    _, _, oh, ow = static_shape(offset, "the offset of DeformConv")
    (sh, sw), (dh, dw) = (attributes.get(name, [1, 1]) for name in ("strides", "dilations"))
    top, left = list(attributes.get("pads", [0] * 4))[:2]
    groups, shared = int(attributes.get("group", 1)), int(attributes.get("offset_group", 1))
    channels = per_group * groups
    _check_taps(x, [t for t in (offset, mask) if t is not None], kh * kw * shared, channels)
    zero = tirx.const(0, dtype_of(x))

    def compute(data: te.Tensor, weight: te.Tensor, shift: te.Tensor, *extra: te.Tensor) -> te.Tensor:
        def pixel(b: Any, c: Any, i: Any, j: Any) -> Any:
            inside = tirx.all(i >= 0, i < height, j >= 0, j < width)
            value = data(b, c, tirx.max(0, tirx.min(i, height - 1)), tirx.max(0, tirx.min(j, width - 1)))
            return tirx.Select(inside, value, zero)

        def sampled(b: Any, c: Any, r: Any, s: Any, p: Any, q: Any) -> Any:
            tap = tirx.floordiv(c, channels // shared) * kh * kw + r * kw + s
            y = (p * sh - top + r * dh).astype(data.dtype) + shift(b, tap * 2, p, q)
            z = (q * sw - left + s * dw).astype(data.dtype) + shift(b, tap * 2 + 1, p, q)
            fy, fz = tirx.floor(y), tirx.floor(z)
            i, j, ty, tz = fy.astype("int32"), fz.astype("int32"), y - fy, z - fz
            above = pixel(b, c, i, j) * (1 - tz) + pixel(b, c, i, j + 1) * tz
            below = pixel(b, c, i + 1, j) * (1 - tz) + pixel(b, c, i + 1, j + 1) * tz
            value = above * (1 - ty) + below * ty
            return value * extra[-1](b, tap, p, q) if mask is not None else value

        taps = te.compute([n, channels, kh, kw, oh, ow], sampled, name="taps")
        c, r, s = (te.reduce_axis((0, e), name=name) for e, name in ((per_group, "c"), (kh, "r"), (kw, "s")))

        def element(b: Any, f: Any, p: Any, q: Any) -> Any:
            first = tirx.floordiv(f, filters // groups) * per_group
            return te.sum(taps(b, first + c, r, s, p, q) * weight(f, c, r, s), axis=[c, r, s])

        return te.compute([n, filters, oh, ow], element, name="out")

    y = kernel(compute, x, w, offset, *([] if mask is None else [mask]), name="deform_conv")
    return y if bias is None else y + relax.op.reshape(bias, [1, -1, 1, 1])
