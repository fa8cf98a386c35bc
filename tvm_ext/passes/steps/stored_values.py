"""Decodes and encodes in a graph: which stored tensor a value stands for, and along which axis that differs.

dequantize(q, scale, zero), astype(q, float32)                    a decode of q
quantize(x, scale, zero), astype(x, bfloat16 or float16)          an encode of x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst

from ...core.graph.relax_graph import Rewriter, dtype_of, op_name, shape_of
from ...core.numbers.precision import NARROW_FLOATS
from ...core.numbers.storage import STORED
from .constants import view_of

QUANTIZE = "relax.quantize"
DEQUANTIZE = "relax.dequantize"
CAST = "relax.astype"
#: Largest scale with which no difference of two 8-bit integers becomes infinite.
_LARGEST = float(np.finfo(np.float32).max) / 256.0


@dataclass(frozen=True)
class Conversion:
    """A decode or an encode.

    Attributes:
        call: the operator call.
        stored: dtype of the stored side.
        axis: along which scale or zero point differ; None if they do along none.
    """

    call: Call
    stored: str
    axis: int | None

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Scale and zero point; none of a cast."""
        return tuple(self.call.args[1:])

    def of(self, operand: Any, axis: int | None = None) -> Call:
        """The same conversion of another tensor, in which the axis is `axis`."""
        if op_name(self.call) == CAST:
            return relax.op.astype(operand, str(self.call.attrs.dtype))
        make = relax.op.quantize if op_name(self.call) == QUANTIZE else relax.op.dequantize
        dtype = str(self.call.attrs.out_dtype)
        return make(operand, *self.parameters, axis=0 if axis is None else axis, out_dtype=dtype)

    def same(self, other: Conversion) -> bool:
        """Whether both relate equal stored values to equal numbers."""
        if self.stored != other.stored or self.axis != other.axis or len(self.parameters) != len(other.parameters):
            return False
        return all(_equal(a, b) for a, b in zip(self.parameters, other.parameters, strict=True))

    @property
    def increases(self) -> bool:
        """Whether a larger stored value is known to stand for a larger number, all of them finite."""
        if not self.parameters:
            return True
        scale = view_of(self.parameters[0])
        return scale is not None and bool(((scale > 0) & (scale < _LARGEST)).all())

    def stored_range(self) -> tuple[float, float] | None:
        """Least and largest number that stored values of one scale stand for; None if they are not known."""
        scale, zero = map(view_of, self.parameters) if self.parameters else (None, None)
        if scale is None or zero is None or not self.increases or scale.size * zero.size != 1:
            return None
        info = np.iinfo(self.stored)
        low, high = (np.float32(limit - int(zero.item())) * np.float32(scale.item()) for limit in (info.min, info.max))
        return float(low), float(high)

    def exact(self, number: float) -> int | None:
        """The stored value that stands for a number exactly; None if none does, or it differs along an axis."""
        scale, zero = map(view_of, self.parameters) if self.parameters else (None, None)
        if scale is None or zero is None or scale.size * zero.size != 1 or not self.increases:
            return None
        info, step, start = np.iinfo(self.stored), np.float32(scale.item()), int(zero.item())
        steps = float(np.rint(np.float32(number) / step))
        if not info.min <= steps + start <= info.max or np.float32(steps) * step != np.float32(number):
            return None
        return int(steps) + start


def _equal(first: Any, other: Any) -> bool:
    if first.same_as(other):
        return True
    left, right = view_of(first), view_of(other)
    if left is None or right is None or left.dtype != right.dtype:
        return False
    return left.size == right.size and bool((left.reshape(-1) == right.reshape(-1)).all())


def decode_of(expr: Any, rw: Rewriter) -> Conversion | None:
    """The decode that a variable is bound to: of an 8-bit or narrow float tensor to float32; None if it is none."""
    call: Any = rw.definition(expr) if isinstance(expr, relax.Var) else None
    if op_name(call) not in (DEQUANTIZE, CAST) or dtype_of(call) != "float32":
        return None
    stored = dtype_of(call.args[0])
    wanted = NARROW_FLOATS if op_name(call) == CAST else STORED - NARROW_FLOATS
    return Conversion(call, stored, _axis(call)) if stored in wanted and shape_of(call) is not None else None


def encode_of(call: Any) -> Conversion | None:
    """The encode that a call is: of a float32 tensor to an 8-bit integer or a narrow float; None if it is none."""
    if op_name(call) not in (QUANTIZE, CAST) or dtype_of(call.args[0]) != "float32":
        return None
    stored = str(call.attrs.out_dtype if op_name(call) == QUANTIZE else call.attrs.dtype)
    wanted = NARROW_FLOATS if op_name(call) == CAST else STORED - NARROW_FLOATS
    return Conversion(call, stored, _axis(call)) if stored in wanted and shape_of(call.args[0]) is not None else None


def _axis(call: Call) -> int | None:
    """The axis of scales or zero points that are vectors."""
    shapes = [shape_of(a) for a in call.args[1:]]
    if all(shape is not None and all(d == 1 for d in shape) for shape in shapes):
        return None
    return int(call.attrs.axis) % max(len(shape_of(call.args[0]) or ()), 1)


def is_constant(expr: Any) -> bool:
    """Whether an expression is a constant tensor."""
    return isinstance(expr, GenericConst)
