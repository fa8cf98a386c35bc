"""Convolutions of all kinds, poolings, and the blocks that networks make of them."""

import math

import numpy as np

from .graph import F32, Graph, Value, maker, squared
from .matrices import product

_ACTIVATIONS = ["Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "Tanh", "Elu"]


def _spatial(x: Value) -> tuple[int, ...]:
    return x.shape[2:]


def conv_node(
    g: Graph, x: Value, filters: int, kernel, *, strides=None, pads=None, dilations=None, group=1, bias=False,
    transposed=False, **attributes,
) -> Value | None:  # fmt: skip
    """A Conv or ConvTranspose; None if nothing of the image is left."""
    rank, channels = x.rank - 2, x.shape[1]
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, pads or [0] * 2 * rank
    size = []
    for i, d in enumerate(_spatial(x)):
        reach, around = dilations[i] * (kernel[i] - 1) + 1, pads[i] + pads[i + rank]
        more = attributes.get("output_padding", [0] * rank)[i]
        backwards, forwards = (d - 1) * strides[i] - around + reach + more, (d + around - reach) // strides[i] + 1
        size.append(backwards if transposed else forwards)
    if min(size) < 1:
        return None
    depth = channels // group * math.prod(kernel)
    shape = (channels, filters // group, *kernel) if transposed else (filters, channels // group, *kernel)
    more = [g.array(filters)] if bias else []
    return product(
        g, "ConvTranspose" if transposed else "Conv", x, g.array(*shape, scale=depth**-0.5),
        (x.shape[0], filters, *size), depth, more, kernel_shape=kernel, strides=strides, pads=pads,
        dilations=dilations, group=group, **attributes,
    )  # fmt: skip


def _filters(g: Graph, channels: int) -> tuple[int, int]:
    """Filters and groups: one group, as many as channels, or in between."""
    kind = g.any(["one", "one", "one", "depthwise", "depthwise", "grouped"])
    if kind == "depthwise":
        return channels * g.any([1, 1, 2]), channels
    group = g.any([d for d in range(1, channels + 1) if channels % d == 0]) if kind == "grouped" else 1
    return group * g.size(1, max(1, 40 // group)), group


@maker(*F32, rank=(3, 5), weight=8, rows=True)
def conv(g: Graph, x: Value) -> Value | None:
    rank = x.rank - 2
    filters, group = _filters(g, x.shape[1])
    kernel = [g.size(1, 4 if rank < 3 else 3) for _ in range(rank)]
    strides, dilations = [g.size(1, 3) for _ in range(rank)], [g.any([1, 1, 2]) for _ in range(rank)]
    pads = [g.size(0, 2) for _ in range(2 * rank)]
    return conv_node(
        g, x, filters, kernel, strides=strides, pads=pads, dilations=dilations, group=group, bias=g.chance(0.5)
    )


@maker(*F32, rank=(4, 4), weight=4, rows=True)
def plain_conv(g: Graph, x: Value) -> Value | None:
    """Keeps height and width: 1x1, 3x3 (Winograd's), 5x5; then a norm and an activation now and then."""
    k, channels = g.any([1, 3, 3, 5]), x.shape[1]
    filters = channels if g.chance(0.5) else g.size(1, 40)
    y = conv_node(g, x, filters, [k, k], pads=[k // 2] * 4, bias=g.chance(0.5))
    if y is None:
        return None
    if g.chance(0.4):
        inputs = [g.array(filters), g.array(filters), g.array(filters), g.array(filters, low=0.5)]
        y = g.node("BatchNormalization", [y, *inputs], y.shape, bound=6 * y.bound + 21, gain=6, terms=8)
    if y.shape == x.shape and g.chance(0.5):
        y = g.node("Add", [y, x] if g.chance(0.5) else [x, y], x.shape, bound=x.bound + y.bound)
    if g.chance(0.6):
        y = g.node(g.any(_ACTIVATIONS), [y], y.shape, bound=y.bound + 1, gain=1.5, terms=12)
    return y


@maker(*F32, rank=(4, 4), weight=2, rows=True)
def inverted_bottleneck(g: Graph, x: Value) -> Value | None:
    """1x1, depthwise 3x3, 1x1, and the way around."""
    channels = x.shape[1]
    middle, stride = g.size(1, 48), g.any([1, 1, 2])
    y = conv_node(g, x, middle, [1, 1], bias=True)
    y = y and g.node("Clip", [y, np.float32(0), np.float32(6)], y.shape, bound=6, terms=0)
    y = y and conv_node(g, y, middle, [3, 3], strides=[stride] * 2, pads=[1] * 4, group=middle)
    y = y and g.node("Relu", [y], y.shape, terms=0)
    y = y and conv_node(g, y, channels, [1, 1])
    if y is None or y.shape != x.shape:
        return y
    return g.node("Add", [x, y], x.shape, bound=x.bound + y.bound)


@maker(*F32, rank=(4, 4), weight=2, rows=True)
def squeeze_excite(g: Graph, x: Value) -> Value | None:
    n, channels, *_ = x.shape
    y = g.node("GlobalAveragePool", [x], (n, channels, 1, 1), terms=squared(*_spatial(x)))
    y = conv_node(g, y, channels, [1, 1], bias=True)
    if y is None:
        return None
    gate = g.node(g.any(["Sigmoid", "HardSigmoid"]), [y], y.shape, bound=1, terms=12)
    return g.node("Mul", [x, gate], x.shape, error=x.error + gate.error * x.bound + 2.0**-24 * x.bound)


@maker(*F32, rank=(4, 4), weight=2)
def channels_last(g: Graph, x: Value) -> Value | None:
    """The value is NHWC; a convolution between two transposes, as exporters of TensorFlow write it."""
    n, h, w, c = x.shape
    y = g.node("Transpose", [x], (n, c, h, w), terms=0, perm=[0, 3, 1, 2])
    filters, k = g.size(1, 40), g.any([1, 3])
    y = conv_node(g, y, filters, [k, k], pads=[k // 2] * 4, bias=True)
    if y is None:
        return None
    if g.chance(0.5):
        y = g.node("Relu", [y], y.shape, terms=0)
    return g.node("Transpose", [y], (n, h, w, filters), terms=0, perm=[0, 2, 3, 1])


@maker(*F32, rank=(3, 5), weight=3, rows=True)
def conv_transpose(g: Graph, x: Value) -> Value | None:
    rank, channels = x.rank - 2, x.shape[1]
    group = g.any([1, 1, 1, *(d for d in range(2, channels + 1) if channels % d == 0)][:5])
    filters = group * g.size(1, max(1, 16 // group))
    kernel, strides = [g.size(1, 4) for _ in range(rank)], [g.size(1, 3) for _ in range(rank)]
    # taps of a dilated one that stand between two pixels are products with zeros
    dilations = [1 if g.special else g.any([1, 1, 1, 2]) for _ in range(rank)]
    pads = [g.size(0, min(1, k - 1)) for k in (*kernel, *kernel)]
    more = {"output_padding": [g.size(0, s - 1) for s in strides]} if g.chance(0.3) else {}
    return conv_node(
        g, x, filters, kernel, strides=strides, pads=pads, dilations=dilations, group=group, bias=g.chance(0.5),
        transposed=True, **more,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- pooling
@maker(*F32, rank=(3, 5), weight=6, rows=True)
def pool(g: Graph, x: Value) -> Value | None:
    """Not the largest of NaN: ONNX says nothing of it, and onnxruntime's depends on its place in the window."""
    ops = ["AveragePool", "AveragePool", "LpPool", *([] if g.special else ["MaxPool", "MaxPool"])]
    op, rank = g.any(ops), x.rank - 2
    kernel, strides = [g.size(1, 4) for _ in range(rank)], [g.size(1, 3) for _ in range(rank)]
    pads = [g.size(0, kernel[i % rank] - 1) for i in range(2 * rank)]
    dilations, up = [1] * rank, int(g.chance(0.25) and op != "LpPool")
    more: dict = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if op == "AveragePool":
        more["count_include_pad"] = g.size(0, 1)
    if op == "MaxPool" and g.chance(0.2):
        more["dilations"] = dilations = [g.size(1, 2) for _ in range(rank)]
    size = [
        _pooled(d, dilations[i] * (kernel[i] - 1) + 1, strides[i], pads[i], pads[i + rank], up)
        for i, d in enumerate(_spatial(x))
    ]
    if min(size) < 1 or any(p > d for p, d in zip((*pads[:rank], *pads[rank:]), _spatial(x) * 2, strict=True)):
        return None
    if up:
        more["ceil_mode"] = 1
    if op == "LpPool":
        more["p"] = 2
    n = math.prod(kernel)
    bound = x.bound * (math.sqrt(n) if op == "LpPool" else 1)
    terms = 0 if op == "MaxPool" else squared(n)
    gain = math.sqrt(n) if op == "LpPool" else 1
    return g.node(op, [x], (*x.shape[:2], *size), bound=bound, gain=gain, terms=terms, **more)


def _pooled(d: int, reach: int, stride: int, before: int, after: int, up: int) -> int:
    """ONNX's size; 0 where a window of ceil_mode begins after the image, about which its versions differ."""
    room = d + before + after - reach
    size = (-(-room // stride) if up else room // stride) + 1
    return 0 if up and (size - 1) * stride >= d + before else size


@maker(*F32, rank=(4, 4), rows=True)
def same_pool(g: Graph, x: Value) -> Value:
    op, strides = g.any(["AveragePool", "MaxPool"][: 2 - g.special]), [g.size(1, 2), g.size(1, 2)]
    size = [-(-d // s) for d, s in zip(_spatial(x), strides, strict=True)]
    return g.node(
        op, [x], (*x.shape[:2], *size), terms=0 if op == "MaxPool" else squared(9), kernel_shape=[3, 3],
        strides=strides, auto_pad=g.any(["SAME_UPPER", "SAME_LOWER"]),
    )  # fmt: skip


@maker(*F32, rank=(3, 5), weight=2, rows=True)
def global_pool(g: Graph, x: Value) -> Value:
    op, n = g.any(["GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"][: 3 - g.special]), math.prod(_spatial(x))
    return g.node(op, [x], (*x.shape[:2], *[1] * (x.rank - 2)), terms=0 if op == "GlobalMaxPool" else squared(n))
