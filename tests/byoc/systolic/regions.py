"""Regions made by hand, and a run of one by lowering and driver: what the tests of the back end share."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvm_ext.byoc.region import Composite, Operand, Operation, Region, Value
from tvm_ext.byoc.systolic.backend import BACKEND
from tvm_ext.byoc.systolic.lowering.operands import READERS
from tvm_ext.byoc.systolic.lowering.pooling import POOLINGS

ANCHORS = ("relax.matmul", "relax.nn.conv2d", *POOLINGS)
#: So small that most shapes need several tiles.
SMALL: Mapping[str, Any] = {"rows": 4, "cols": 4, "scratchpad_bytes": 4096, "accumulator_bytes": 1024}
_numbers = itertools.count()


def value(name: str, *shape: int, dtype: str = "float32") -> Value:
    return Value(name, shape, dtype)


def op(
    name: str, *operands: Operand | Operation, shape: Sequence[int] = (), dtype: str = "", **attrs: Any
) -> Operation:
    """An operation; an operand may be the operation that computes it. By default elementwise, of the first's dtype."""
    values = tuple(o.result if isinstance(o, Operation) else o for o in operands)
    shapes = [tuple(o.shape) for o in values]
    shape = tuple(shape) or np.broadcast_shapes(*shapes)
    number = next(_numbers)
    result = Value(f"{name.rpartition('.')[2]}_{number}", shape, dtype or str(values[0].dtype))
    return Operation(f"relax.{name}", values, result, attrs, (f"node_{number}",))


def matmul(a: Operand | Operation, b: Operand | Operation, dtype: str = "float32") -> Operation:
    left, right = (o.result.shape if isinstance(o, Operation) else o.shape for o in (a, b))
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    return op("matmul", a, b, shape=shape, dtype=dtype, out_dtype=None if dtype == "float32" else dtype)


def conv2d(
    x: Operand | Operation, w: Operand | Operation, padding: Sequence[int] = (0, 0, 0, 0),
    strides: Sequence[int] = (1, 1), dilation: Sequence[int] = (1, 1), groups: int = 1, dtype: str = "float32",
) -> Operation:  # fmt: skip
    data, weight = (o.result.shape if isinstance(o, Operation) else o.shape for o in (x, w))
    size = [
        (data[2 + i] + padding[i] + padding[2 + i] - (weight[2 + i] - 1) * dilation[i] - 1) // strides[i] + 1
        for i in (0, 1)
    ]
    attrs: dict[str, Any] = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "NCHW", "groups": groups}
    attrs |= {"padding": tuple(padding), "strides": tuple(strides), "dilation": tuple(dilation)}
    return op("nn.conv2d", x, w, shape=(data[0], weight[0], *size), dtype=dtype, **attrs)


def dequantize(x: Operand, scale: Any, zero: Any = 0, axis: int = -1) -> Operation:
    zeros = np.asarray(zero, x.dtype)
    return op("dequantize", x, np.float32(scale), zeros, shape=x.shape, dtype="float32", axis=axis)


def quantize(x: Operation, scale: Any, zero: int, dtype: str = "int8", axis: int = -1) -> Operation:
    zeros = np.asarray(zero, dtype)
    return op("quantize", x, np.float32(scale), zeros, shape=x.result.shape, dtype=dtype, axis=axis)


def permuted(x: Value | Operation, *axes: int) -> Operation:
    source = x.result if isinstance(x, Operation) else x
    return op("permute_dims", source, shape=[source.shape[a] for a in axes], axes=axes)


def reshaped(x: Value | Operation, *shape: int) -> Operation:
    return op("reshape", x, np.array(shape, np.int64), shape=shape)


def composite(*operations: Operation) -> Composite:
    """Of operations in order, one of them an anchor; of elementwise ones the first behind the prologue is."""
    (at,) = [i for i, operation in enumerate(operations) if operation.op in ANCHORS] or [
        next(i for i, operation in enumerate(operations) if operation.op not in READERS)
    ]
    return Composite("made", operations[:at], operations[at], operations[at + 1 :])


def region(*composites: Composite, outputs: Sequence[Value] = ()) -> Region:
    """By default the outputs are the results that none of the composites reads."""
    results = {c.result.name: c.result for c in composites}
    read = {v.name: v for c in composites for v in c.inputs}
    inputs = tuple(v for name, v in read.items() if name not in results)
    ends = outputs or [v for name, v in results.items() if name not in read]
    return Region("region_0", composites, inputs, tuple(ends))


def run(offloaded: Region, inputs: Mapping[str, np.ndarray], **options: Any) -> list[np.ndarray]:
    """Outputs of a region, by the back end's own lowering and driver; checks say that it takes all composites."""
    settings = BACKEND.make_options({**SMALL, **options})
    for each in offloaded.composites:
        assert BACKEND.limits.refuse(each) == "" == BACKEND.patterns[0].check(each, settings)
    outputs = [np.full(v.shape, 77, v.dtype) for v in offloaded.outputs]
    BACKEND.driver(BACKEND.lowered(offloaded, settings).program)([inputs[v.name] for v in offloaded.inputs], outputs)
    return outputs


def refusal(*operations: Operation, **options: Any) -> str:
    """Why the back end does not take these; not empty."""
    reason = BACKEND.patterns[0].check(composite(*operations), BACKEND.make_options({**SMALL, **options}))
    assert reason
    return reason
