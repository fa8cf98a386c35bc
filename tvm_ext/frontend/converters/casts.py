"""Cast, CastLike and BitCast; the floats of 8 bits by tables of their values, since TVM's own casts of them are wrong.

float8 -> float32   table[the byte]
float32 -> float8   the byte is the number of midpoints between neighbouring values that |x| lies beyond, and the sign
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of, shape_of
from ...ops.conversion import converted
from ..checks.refusal import Refusal
from ..reading.narrow import NARROW, wrapped
from .base import Attributes, constant, converts, elementwise, emit, kernel, stock, text

_SIGN = 0x80


@dataclass(frozen=True)
class _Float8:
    """A float of 8 bits.

    Attributes:
        name: its dtype.
        values: of all 256 bytes, in float32.
        largest: the byte of the largest finite number; those from 0 to it ascend.
        nan, overflow: bytes of NaN, and of what is too large if that does not saturate.
        signed: whether it has negative numbers.
        zeros: whether a zero has a sign.
    """

    name: str
    values: np.ndarray
    largest: int
    nan: int
    overflow: int
    signed: bool
    zeros: bool

    @classmethod
    @functools.cache
    def of(cls, name: str) -> _Float8:
        with np.errstate(all="ignore"):
            values = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float32)
        signed = name != "float8_e8m0fnu"
        positive = values[: _SIGN if signed else 256]
        largest = int(np.isfinite(positive).sum()) - 1
        nan = int(np.flatnonzero(np.isnan(values))[0])
        overflow = int(np.isinf(values).argmax()) if np.isinf(values).any() else nan
        return cls(name, values, largest, nan, overflow, signed, bool(signed and values[_SIGN] == 0))

    def limits(self, rounding: str) -> np.ndarray:
        """float32 numbers: |x| > limits[i] rounds to byte i + 1 or beyond; the last one is the limit of overflow."""
        finite = self.values[: self.largest + 1].astype(np.float64)
        above = np.append(finite[1:], 2 * finite[-1] - finite[-2])
        if rounding == "up":
            return np.append(finite[:-1], above[-1]).astype(np.float32)
        middle = above if rounding == "down" else (finite + above) / 2
        even = np.arange(1, len(middle) + 1) % 2 == 0
        down = np.nextafter(middle.astype(np.float32), np.float32(0))
        ties_up = even | (rounding == "down") | (not self.signed)
        return np.where(ties_up, down, middle.astype(np.float32))


@converts("Cast")
def cast(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Cast to the dtype of `to`."""
    to = str(onnx.helper.tensor_dtype_to_np_dtype(int(attributes["to"])))
    if to == "object":
        raise Refusal("it makes strings")
    return _cast(inputs[0], to, attributes, lambda: stock("Cast", inputs, attributes, opset))


@converts("CastLike")
def cast_like(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Cast to the dtype of the second input."""
    to = dtype_of(inputs[1]) or "int64"
    return _cast(inputs[0], to, attributes, lambda: stock("CastLike", inputs, attributes, opset))


def _cast(x: Any, to: str, attributes: Attributes, plain: Any) -> Any:
    source = "" if isinstance(x, relax.ShapeExpr) else dtype_of(x)
    if to.startswith("float4") or source.startswith("float4"):
        raise Refusal("floats of 4 bits")
    if to in NARROW:
        x = emit(decoded(x)) if source.startswith("float8") else x
        return wrapped(x if "int" in source else emit(relax.op.astype(x, "int32")), to)
    if not (to.startswith("float8") or source.startswith("float8")):
        if "float" not in source or "int" not in to:
            return plain()
        return constant(converted(x.value.numpy(), to)) if isinstance(x, GenericConst) else relax.op.astype(x, to)
    if source.startswith("float8"):
        x = emit(decoded(x))
    if not to.startswith("float8"):
        return x if to == "float32" else relax.op.astype(x, to)
    wide = x if dtype_of(x) == "float32" else emit(relax.op.astype(x, "float32"))
    rounding = text(attributes, "round_mode", "up") if to == "float8_e8m0fnu" else "nearest"
    return encoded(wide, to, bool(attributes.get("saturate", 1)), rounding)


def decoded(x: Any) -> Any:
    """A float8 tensor in float32."""

    def compute(data: te.Tensor, table: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *i: table(tirx.reinterpret("uint8", data(*i)).astype("int32")), name="out")

    return kernel(compute, x, constant(_Float8.of(dtype_of(x)).values), name="from_float8")


def encoded(x: Any, to: str, saturate: bool, rounding: str = "nearest") -> Any:
    """A float32 tensor in a float8 type.

    Args:
        saturate: whether what is too large is the largest number, not NaN or infinity.
        rounding: "nearest", ties to even; "up" and "down" for the one that has powers of 2 only.
    """
    kind = _Float8.of(to)
    limits = kind.limits(rounding)

    def compute(data: te.Tensor, edges: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, len(limits)), name="k")
        count = te.compute(
            data.shape, lambda *i: te.sum((tirx.abs(data(*i)) > edges(k)).astype("int32"), axis=k), name="count"
        )
        return te.compute(data.shape, lambda *i: _byte(data(*i), count(*i), kind, saturate), name="out")

    return kernel(compute, x, constant(limits), name="to_float8")


def _byte(x: Any, count: Any, kind: _Float8, saturate: bool) -> Any:
    """The float8 of a number beyond `count` limits."""
    number = tirx.Select(count > kind.largest, kind.largest if saturate else kind.overflow, count)
    sign = tirx.shift_right(tirx.reinterpret("uint32", x), tirx.const(31, "uint32")).astype("int32") * _SIGN
    if not kind.signed:
        number = tirx.Select(sign != 0, tirx.const(kind.nan, "int32"), number)
    elif kind.zeros:
        number = number + sign
    else:
        number = tirx.Select(tirx.any(number == 0, number == kind.nan), number, number + sign)
    byte = tirx.Select(tirx.isnan(x), tirx.const(kind.nan, "int32"), number).astype("uint8")
    return tirx.reinterpret(kind.name, byte)


# ------------------------------------------------------------ the same bits
@converts("BitCast")
def bit_cast(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """BitCast: the same bits as a dtype of the same width; a bool is a byte of 0 or 1."""
    x, to = inputs[0], str(onnx.helper.tensor_dtype_to_np_dtype(int(attributes["to"])))
    dtype = dtype_of(x)
    if isinstance(x, GenericConst):
        return constant(x.value.numpy().view(np.dtype(to)))
    if dtype == "bool":
        x, dtype = emit(relax.op.astype(x, "uint8")), "uint8"
    if to == dtype:
        return x
    if to == "bool":
        return relax.op.not_equal(x, relax.const(0, dtype))
    assert shape_of(x) is not None
    return elementwise(lambda number: tirx.reinterpret(to, number), x, name="bit_cast")
