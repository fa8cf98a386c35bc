"""Sliding windows that TVM lacks: Col2Im, DeformConv."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import Attributes, converts, kernel, known, static_shape
from .pooling import flat


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
        raise Refusal(
            f"{rows} rows of {blocks} blocks, not of {math.prod(counts)}, each of {math.prod(block)} elements"
        )
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
