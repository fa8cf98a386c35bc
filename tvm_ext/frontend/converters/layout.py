"""What moves elements: Flatten, Pad, Reshape, Slice, SpaceToDepth, Split, Tile, Trilu; ConvTranspose of a size."""

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of, shape_of
from ..checks.refusal import Refusal
from .base import Attributes, constant, converts, emit, kernel, known, static_shape, stock, text


@converts("Tile")
def tile(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Tile(x, r) -> x of shape (1, d, ...), broadcast to (r, d, ...), reshaped to (r * d, ...)."""
    x, repeats = inputs[0], [int(r) for r in known(inputs[1], "repeats")]
    shape = static_shape(x, "the input of Tile")
    apart = relax.op.reshape(x, [d for size in shape for d in (1, size)])
    spread = relax.op.broadcast_to(apart, [d for pair in zip(repeats, shape, strict=True) for d in pair])
    return relax.op.reshape(spread, [r * d for r, d in zip(repeats, shape, strict=True)])


@converts("SpaceToDepth")
def space_to_depth(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """SpaceToDepth, blocks before channels (DCR), or behind them (CRD, since opset 28), which stock TVM overlooks."""
    x, size = inputs[0], int(attributes["blocksize"])
    n, c, h, w = static_shape(x, "the input of SpaceToDepth")
    if h % size or w % size:
        raise Refusal(f"blocksize {size} does not divide {h} x {w} pixels")
    blocks = relax.op.reshape(x, (n, c, h // size, size, w // size, size))
    order = [0, 1, 3, 5, 2, 4] if text(attributes, "mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    return relax.op.reshape(relax.op.permute_dims(blocks, order), (n, c * size * size, h // size, w // size))


@converts("DepthToSpace")
def depth_to_space(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DepthToSpace of as many channels as blocks have elements, or some times as many."""
    size, channels = int(attributes["blocksize"]), static_shape(inputs[0], "the input of DepthToSpace")[1]
    if channels % size**2:
        raise Refusal(f"blocks of {size} x {size} do not divide {channels} channels")
    return stock("DepthToSpace", inputs, attributes, opset)


@converts("ConvTranspose")
def conv_transpose(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ConvTranspose whose `output_shape` decides the padding, which stock TVM overlooks.

    total = stride * (in - 1) + output_padding + (k - 1) * dilation + 1 - out; where `out` is larger than what comes
    out without padding, zeros are added behind.
    """
    if "output_shape" not in attributes:
        return stock("ConvTranspose", inputs, attributes, opset)
    spatial = static_shape(inputs[0], "the input of ConvTranspose")[2:]
    taps = static_shape(inputs[1], "the weight of ConvTranspose")[2:]
    rank = len(spatial)
    wanted = [int(d) for d in attributes["output_shape"]][-rank:]
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    extra = attributes.get("output_padding", [0] * rank)
    upper = text(attributes, "auto_pad", "NOTSET") == "SAME_UPPER"
    before, after, behind = [], [], []
    for i in range(rank):
        total = strides[i] * (spatial[i] - 1) + extra[i] + (taps[i] - 1) * dilations[i] + 1 - wanted[i]
        if total < extra[i] - strides[i] + 1:
            raise Refusal(f"attribute 'output_shape' is {wanted}, which {spatial} elements do not fill")
        pad = max(total, 0)
        before.append(pad // 2 if upper else pad - pad // 2)
        after.append(pad - before[-1])
        behind.append(max(-total, 0))
    plain = {k: v for k, v in attributes.items() if k not in ("output_shape", "auto_pad")} | {"pads": [*before, *after]}
    return _padded_behind(inputs, plain, opset, behind)


def _padded_behind(inputs: Any, attributes: Attributes, opset: int, behind: list[int]) -> Any:
    """The convolution with zeros behind it; the bias goes over them too."""
    x = stock("ConvTranspose", [inputs[0], inputs[1], None], attributes, opset)
    if any(behind):
        x = relax.op.nn.pad(x, [0, 0, 0, 0, *(p for end in behind for p in (0, end))])
    if inputs[2] is None:
        return x
    return x + relax.op.reshape(inputs[2], [1, -1] + [1] * len(behind))


#: The version of Pad that has the mode "wrap".
_WRAPS = 19


@converts("Pad")
def pad(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Pad with a value that is only known at run time, or with elements; any other one goes to TVM's converter."""
    x, value = inputs[0], inputs[2]
    if text(attributes, "mode", "constant") != "constant":
        return _with_elements(inputs, attributes, opset)
    if value is None or isinstance(value, GenericConst):
        return stock("Pad", inputs, attributes, opset)
    shape, pads = static_shape(x, "the input of Pad"), [int(p) for p in known(inputs[1], "pads")]
    axes = range(len(shape)) if inputs[3] is None else [int(a) % len(shape) for a in known(inputs[3], "axes")]
    before = dict(zip(axes, pads[: len(pads) // 2], strict=True))
    after = dict(zip(axes, pads[len(pads) // 2 :], strict=True))
    wanted = [d + before.get(i, 0) + after.get(i, 0) for i, d in enumerate(shape)]

    def compute(data: te.Tensor, fill: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            at = [p - before.get(d, 0) for d, p in enumerate(i)]
            inside = tirx.all(*(tirx.all(p >= 0, p < size) for p, size in zip(at, shape, strict=True)))
            safe = [tirx.max(0, tirx.min(p, size - 1)) for p, size in zip(at, shape, strict=True)]
            return tirx.Select(inside, data(*safe), fill(0))

        return te.compute(wanted, element, name="out")

    return kernel(compute, x, relax.op.reshape(value, (1,)), name="pad")


def _with_elements(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Pad by elements of what pads below 0 leave; TVM's kernel reads beyond its memory where they are too few."""
    x, mode = inputs[0], text(attributes, "mode", "constant")
    shape = static_shape(x, "the input of Pad")
    pads = [int(p) for p in (attributes["pads"] if opset < 11 else known(inputs[1], "pads"))]
    low, high = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    axes = range(len(low)) if inputs[3] is None else [int(a) % len(shape) for a in known(inputs[3], "axes")]
    starts, ends = [max(-p, 0) for p in low], [shape[a] + min(p, 0) for a, p in zip(axes, high, strict=True)]
    for axis, start, end, *added in zip(axes, starts, ends, low, high, strict=True):
        left = max(end - start, 0)
        if max(added) > 0 and (left == 0 or (mode == "reflect" and max(added) >= left)):
            raise Refusal(f"mode {mode!r} with pads {added} of {left} elements along dimension {axis}")
    if min(pads, default=0) < 0:
        x, pads = emit(relax.op.strided_slice(x, list(axes), starts, ends)), [max(p, 0) for p in pads]
        attributes = {**attributes, "pads": pads}
    version = max(opset, _WRAPS) if mode == "wrap" else opset  # which onnxruntime takes before, too
    return stock("Pad", [x, constant(np.array(pads, np.int64)), None, inputs[3]], attributes, version)


@converts("Split")
def split(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Split; pieces of no elements, which TVM's operator cannot make, are made apart."""
    x = inputs[0]
    shape, axis = static_shape(x, "the input of Split"), int(attributes.get("axis", 0))
    stated = attributes.get("split", ()) if opset < 13 else () if inputs[1] is None else known(inputs[1], "split")
    sizes, start, pieces = [int(s) for s in stated], 0, []
    if all(sizes):
        return stock("Split", inputs, attributes, opset)
    for size in sizes:
        dims = [size if i == axis % len(shape) else d for i, d in enumerate(shape)]
        empty = relax.op.zeros(dims, dtype_of(x))
        pieces.append(relax.op.strided_slice(x, [axis], [start], [start + size]) if 0 not in dims else empty)
        start += size
    return relax.Tuple(pieces)


@converts("Trilu")
def triangle(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Trilu(x, k); a diagonal beyond the matrix, which may be any number, is the nearest one there."""
    shape = static_shape(inputs[0], "the input of Trilu")
    k = 0 if inputs[1] is None else int(known(inputs[1], "k").reshape(-1)[0])
    k = min(max(k, -shape[-2]), shape[-1])
    return (relax.op.triu if attributes.get("upper", 1) else relax.op.tril)(inputs[0], k)


@converts("Unsqueeze")
def unsqueeze(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Unsqueeze; by no axes it is its input."""
    if opset < 13 and not attributes.get("axes"):
        return inputs[0]
    return stock("Unsqueeze", inputs, attributes, opset)


@converts("Reshape")
def reshape(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Reshape; where `allowzero` makes a 0 mean 0, the shape is a known one."""
    if not attributes.get("allowzero", 0):
        return stock("Reshape", inputs, attributes, opset)
    shape = [int(d) for d in known(inputs[1], "shape")]  # relax.reshape takes 0 for "as it was"
    return relax.op.zeros(shape, dtype_of(inputs[0])) if 0 in shape else relax.op.reshape(inputs[0], shape)


@converts("Flatten")
def flatten(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Flatten to two dimensions; of a tensor of known shape to numbers, for -1 says nothing where another one is 0."""
    x = inputs[0]
    shape = shape_of(x)
    if shape is None:
        return stock("Flatten", inputs, attributes, opset)
    axis = int(attributes.get("axis", 1))
    axis += len(shape) if axis < 0 else 0
    flat = [math.prod(shape[:axis]), math.prod(shape[axis:])]
    return relax.op.zeros(flat, dtype_of(x)) if 0 in flat else relax.op.reshape(x, flat)


@converts("Slice")
def slice_(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Slice by bounds that are known, clamped as Python clamps them; before opset 10 they are attributes.

    Stock TVM makes a negative size of a start behind the end.
    """
    x = inputs[0]
    if opset < 10:
        bounds = [attributes.get("starts"), attributes.get("ends"), attributes.get("axes"), None]
    elif isinstance(x.ty, relax.TensorType) and all(
        isinstance(b, GenericConst | relax.ShapeExpr | None) for b in inputs[1:5]
    ):
        bounds = [None if inputs[i] is None else known(inputs[i], "bounds") for i in range(1, 5)]
    else:
        return stock("Slice", inputs, attributes, opset)
    shape = static_shape(x, "the input of Slice")
    starts, ends, axes, steps = ([] if b is None else [int(v) for v in b] for b in bounds)
    axes = [a % len(shape) for a in axes or range(len(starts))]
    sliced = [slice(*b).indices(shape[a]) for a, *b in zip(axes, starts, ends, steps or [1] * len(axes), strict=True)]
    sizes = {a: len(range(*bound)) for a, bound in zip(axes, sliced, strict=True)}
    if 0 in sizes.values():
        return relax.op.zeros([sizes.get(a, d) for a, d in enumerate(shape)], dtype_of(x))
    first, last, step = ([b[i] for b in sliced] for i in range(3))
    behind = [e if e >= 0 else -shape[a] - 1 for a, e in zip(axes, last, strict=True)]  # -1 is before the first one
    return relax.op.strided_slice(x, axes, first, behind, step)
