"""Operators that pick, choose, place or reverse elements: Gather, OneHot, ReverseSequence, Range."""

import math
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of, numpy_of, shape_of
from ...checks.refusal import Refusal
from ...known_values import LARGEST
from ..base import Attributes, constant, converts, kernel, known, static_shape, text


@converts("OneHot")
def one_hot(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """OneHot(indices, depth, values): values[1] where the new axis has the index, values[0] elsewhere.

    A negative index counts from the end; one out of bounds is nowhere.
    """
    indices, values = inputs[0], inputs[2]
    depth = int(known(inputs[1], "depth").reshape(-1)[0])
    shape = static_shape(indices, "the indices of OneHot")
    axis = int(attributes.get("axis", -1)) % (len(shape) + 1)
    dtype = dtype_of(indices)

    def compute(rows: te.Tensor, both: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            at, row = i[axis].astype(dtype), rows(*i[:axis], *i[axis + 1 :])
            hit = tirx.any(row == at, row == at - tirx.const(depth, dtype)) if "uint" not in dtype else row == at
            return tirx.Select(hit, both(1), both(0))

        return te.compute([*shape[:axis], depth, *shape[axis:]], element, name="out")

    return kernel(compute, indices, values, name="one_hot")


@converts("ReverseSequence")
def reverse_sequence(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ReverseSequence(x, lengths): the first lengths[b] steps of every sequence, backwards; at most all of them."""
    x, lengths = inputs[0], inputs[1]
    time, batch = int(attributes.get("time_axis", 0)), int(attributes.get("batch_axis", 1))
    if {time, batch} != {0, 1}:
        raise Refusal(f"time_axis {time} and batch_axis {batch}: one must be 0, the other one 1")
    shape = static_shape(x, "the sequences")
    if static_shape(lengths, "the lengths") != (shape[batch],):
        raise Refusal(f"{math.prod(static_shape(lengths, 'the lengths'))} lengths of {shape[batch]} sequences")
    steps = shape[time]

    def compute(data: te.Tensor, count: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            length, step = tirx.min(count(i[batch]), tirx.const(steps, "int64")), i[time].astype("int64")
            at = list(i)
            at[time] = tirx.Select(step < length, length - 1 - step, step)
            return data(*at)

        return te.compute(data.shape, element, name="out")

    return kernel(compute, x, relax.op.astype(lengths, "int64"), name="reverse_sequence")


@converts("TensorScatter")
def tensor_scatter(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TensorScatter(cache, update, start): update[b] written into cache[b] from start[b] on; may wrap around."""
    cache, update, start = inputs[0], inputs[1], inputs[2]
    shape = static_shape(cache, "the cache of TensorScatter")
    axis, circular = int(attributes.get("axis", -2)) % len(shape), text(attributes, "mode", "linear") == "circular"
    length = static_shape(update, "the update of TensorScatter")[axis]
    if start is None:
        start = relax.op.zeros((shape[0],), "int64")

    def compute(old: te.Tensor, new: te.Tensor, first: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            offset = i[axis].astype("int64") - first(i[0])
            if circular:
                offset = tirx.floormod(offset, tirx.const(shape[axis], "int64"))
            inside = tirx.all(offset >= 0, offset < length)
            at = [tirx.Select(inside, offset, tirx.const(0, "int64")) if d == axis else p for d, p in enumerate(i)]
            return tirx.Select(inside, new(*at), old(*i))

        return te.compute(old.shape, element, name="out")

    return kernel(compute, cache, update, relax.op.astype(start, "int64"), name="tensor_scatter")


@converts("EyeLike")
def eye_like(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """EyeLike(x): ones on a diagonal, of the dtype stated or that of x."""
    rows, columns = static_shape(inputs[0], "the input of EyeLike")
    dtype = np.dtype(dtype_of(inputs[0]))
    if "dtype" in attributes:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(int(attributes["dtype"]))
    diagonal = int(attributes.get("k", 0))
    if rows * columns <= LARGEST:
        return constant(np.eye(rows, columns, diagonal).astype(dtype))
    one, zero = (tirx.const(v, dtype.name) for v in (1, 0))
    return kernel(
        lambda: te.compute((rows, columns), lambda i, j: tirx.Select(j - i == diagonal, one, zero), name="out"),
        name="eye_like",
    )


@converts("ConstantOfShape")
def constant_of_shape(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """ConstantOfShape(shape) -> broadcast_to(number, shape), which its readers take as the number."""
    number = numpy_helper.to_array(attributes["value"]).reshape(()) if "value" in attributes else np.float32(0)
    shape = [int(d) for d in known(inputs[0], "shape")]
    return relax.op.broadcast_to(constant(number), relax.ShapeExpr(shape))


#: Elements of a tensor, whose indices are of 32 bits.
_MOST = 2**31 - 1


@converts("Range")
def arange(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Range(start, limit, delta) -> a kernel of start + i * delta, which is no slower than reading it."""
    dtype = dtype_of(inputs[0])
    names = ("start", "limit", "delta")
    start, limit, delta = (known(x, name).reshape(()) for x, name in zip(list(inputs)[:3], names, strict=True))
    if not delta or not all(np.isfinite(x) for x in (start, limit, delta)):
        raise Refusal(f"from {start} to {limit} by {delta}: finite numbers, and a delta that is not 0, are needed")
    exact = [float(x) if "float" in dtype else int(x) for x in (limit, start, delta)]
    steps = (limit - start).astype(np.float64) / exact[2] if "float" in dtype else -((exact[1] - exact[0]) // exact[2])
    count = max(math.ceil(steps), 0)
    if count > _MOST:
        raise Refusal(f"{count:.3g} elements; up to {_MOST} work")
    if count <= LARGEST:
        return constant((np.arange(count).astype(dtype) * delta + start).astype(dtype))
    first, step = (tirx.const(x.item(), dtype) for x in (start, delta))
    return kernel(lambda: te.compute((count,), lambda i: first + i.astype(dtype) * step, name="out"), name="range")


@converts("MelWeightMatrix")
def all_known(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """An operator that is computed before the program is made, as `known_values` does where all inputs are known."""
    raise Refusal("all its inputs must be known when it is compiled", freeze=True)


@converts("Gather")
def gather(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Gather(x, i) -> take that wraps around: -1 is the last row, and no index leaves the tensor.

    Stock TVM emits a `take` whose kernel reads foreign memory where an index is out of bounds (and says so on
    stderr). ONNX defines indices from -n to n - 1; constant ones are checked here.
    """
    data, indices = inputs[0], inputs[1]
    if isinstance(data, relax.ShapeExpr):
        data = relax.op.shape_to_tensor(data)
    if isinstance(indices, relax.ShapeExpr):
        indices = relax.op.shape_to_tensor(indices)
    axis, shape = int(attributes.get("axis", 0)), shape_of(data)
    known = numpy_of(indices)
    if known is not None and shape is not None:
        indices = relax.const(_row_numbers(known, shape[axis]), str(known.dtype))
    return relax.op.take(data, indices, axis, mode="wrap")


def _row_numbers(indices: np.ndarray, rows: int) -> np.ndarray:
    wrong = indices[(indices < -rows) | (indices >= rows)]
    if wrong.size:
        raise ValueError(f"index {wrong.flat[0]} lies outside -{rows} .. {rows - 1}")
    return np.where(indices < 0, indices + rows, indices).astype(indices.dtype)
