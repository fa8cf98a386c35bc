"""Sliding windows that TVM lacks: Col2Im, DeformConv, and the indices of MaxPool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from ...core.relax_graph import dtype_of
from ..refusal import Refusal
from .base import Attributes, Converter, kernel, known, static_shape, stock, text


def col2im(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Col2Im(columns, image_shape, block_shape): every element of the image is the sum of all blocks over it."""
    image, block = ([int(d) for d in known(inputs[i], n)] for i, n in ((1, "image_shape"), (2, "block_shape")))
    rank = len(image)
    strides, dilations = ([int(v) for v in attributes.get(n, [1] * rank)] for n in ("strides", "dilations"))
    pads = [int(p) for p in attributes.get("pads", [0] * 2 * rank)]
    counts = [
        (image[d] + pads[d] + pads[rank + d] - (dilations[d] * (block[d] - 1) + 1)) // strides[d] + 1
        for d in range(rank)
    ]
    batch, rows, _ = static_shape(inputs[0], "the input of Col2Im")
    channels = rows // math.prod(block)

    def compute(columns: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, b), name=f"k{d}") for d, b in enumerate(block)]

        def element(n: Any, c: Any, *at: Any) -> Any:
            offsets = [at[d] + pads[d] - taps[d] * dilations[d] for d in range(rank)]
            starts = [tirx.floordiv(o, s) for o, s in zip(offsets, strides, strict=True)]
            hits = [tirx.all(tirx.floormod(o, s) == 0, p >= 0, p < count)
                    for o, s, p, count in zip(offsets, strides, starts, counts, strict=True)]  # fmt: skip
            safe = [tirx.max(0, tirx.min(p, count - 1)) for p, count in zip(starts, counts, strict=True)]
            value = columns(n, c * math.prod(block) + _flat(taps, block), _flat(safe, counts))
            return te.sum(tirx.Select(tirx.all(*hits), value, tirx.const(0, columns.dtype)), axis=taps)

        return te.compute([batch, channels, *image], element, name="out")

    return kernel(compute, inputs[0], name="col2im")


def _flat(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """Row-major number of an index."""
    number = index[0]
    for i, extent in zip(index[1:], shape[1:], strict=True):
        number = number * extent + i
    return number


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
    return y if bias is None else relax.op.add(y, relax.op.reshape(bias, [1, -1, 1, 1]))


def max_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MaxPool; its second output is the flat index, in the whole tensor, of the first largest element."""
    attributes = _explicit_pads(inputs[0], attributes)
    if int(attributes["tvm_custom"]["num_outputs"]) == 1:
        return stock("MaxPool", inputs, attributes, opset)
    x = inputs[0]
    if text(attributes, "auto_pad", "NOTSET") not in ("NOTSET", "VALID") or attributes.get("ceil_mode", 0):
        raise Refusal("indices of MaxPool with auto_pad or ceil_mode")
    shape, window = static_shape(x, "the input of MaxPool"), [int(k) for k in attributes["kernel_shape"]]
    rank = len(window)
    strides, dilations = ([int(v) for v in attributes.get(n, [1] * rank)] for n in ("strides", "dilations"))
    pads = [int(p) for p in attributes.get("pads", [0] * 2 * rank)]
    spatial = shape[2:]
    outs = [
        (spatial[d] + pads[d] + pads[rank + d] - (dilations[d] * (window[d] - 1) + 1)) // strides[d] + 1
        for d in range(rank)
    ]
    by_column = bool(attributes.get("storage_order", 0))

    def compute(data: te.Tensor) -> list[te.Tensor]:
        taps = [te.reduce_axis((0, k), name=f"k{d}") for d, k in enumerate(window)]

        def pick(one: Any, other: Any) -> Any:
            first = tirx.any(one[1] > other[1], tirx.all(one[1] == other[1], one[0] < other[0]))
            return tirx.Select(first, one[0], other[0]), tirx.Select(first, one[1], other[1])

        best = te.comm_reducer(pick, lambda i, v: (tirx.max_value(i), tirx.min_value(v)), name="best")

        def element(n: Any, c: Any, *at: Any) -> Any:
            where = [at[d] * strides[d] - pads[d] + taps[d] * dilations[d] for d in range(rank)]
            inside = tirx.all(*(tirx.all(p >= 0, p < e) for p, e in zip(where, spatial, strict=True)))
            safe = [tirx.max(0, tirx.min(p, e - 1)) for p, e in zip(where, spatial, strict=True)]
            order = (safe[::-1], spatial[::-1]) if by_column else (safe, spatial)
            number = ((n * shape[1] + c) * math.prod(spatial) + _flat(*order)).astype("int64")
            beyond = tirx.max_value("int64"), tirx.min_value(data.dtype)  # of no element, though one may be as low
            pairs = zip((number, data(n, c, *safe)), beyond, strict=True)
            return best(tuple(tirx.Select(inside, *pair) for pair in pairs), axis=taps)

        index, value = te.compute([*shape[:2], *outs], element, name="out")
        return [value, index]

    return kernel(compute, x, name="max_pool")


def average_pool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """AveragePool with `auto_pad`, of which stock TVM overlooks the dilation."""
    return stock("AveragePool", inputs, _explicit_pads(inputs[0], attributes), opset)


def _explicit_pads(x: Any, attributes: Attributes) -> Attributes:
    """`auto_pad` as `pads`: ceil(size / stride) windows, and one row more at the end, or the beginning, if it is odd.

    Stock TVM rounds SAME_LOWER down.
    """
    mode = text(attributes, "auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return attributes
    window = attributes["kernel_shape"]
    steps, dilations = (attributes.get(n, [1] * len(window)) for n in ("strides", "dilations"))
    sides = []
    for size, k, s, d in zip(static_shape(x, "its input")[2:], window, steps, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        sides.append((small, large) if mode == "SAME_UPPER" else (large, small))
    pads = [before for before, _ in sides] + [after for _, after in sides]
    return {**{k: v for k, v in attributes.items() if k not in ("auto_pad", "ceil_mode")}, "pads": pads}


def roi_align(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """RoiAlign by averages. TVM takes the maximum of interpolated values, where ONNX takes that of weighted corners."""
    if text(attributes, "mode", "avg") != "avg":
        raise Refusal("mode 'max': TVM's kernel computes something else")
    return stock("RoiAlign", inputs, attributes, opset)


def max_unpool(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MaxUnpool without `output_shape`, of which ONNX's definition and onnxruntime do not make the same."""
    if inputs[2] is not None:
        raise Refusal("output_shape: onnxruntime places the elements elsewhere than ONNX defines")
    return stock("MaxUnpool", inputs, attributes, opset)


#: Operator -> converter.
CONVERTERS: dict[str, Converter] = {
    "AveragePool": average_pool,
    "Col2Im": col2im,
    "DeformConv": deform_conv,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
    "RoiAlign": roi_align,
}
