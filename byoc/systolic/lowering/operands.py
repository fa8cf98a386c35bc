"""What an anchor reads, seen through the operations before it: a view of a tensor, or a constant; quantized or not.

    x: int8 -> dequantize -> permute_dims -> matmul     ->   x itself, with other strides, a scale and a zero point
    x: uint8 -> astype(int32) -> subtract(128) -> matmul ->  x itself, with a zero point

Operations that only say how to read a tensor cost nothing on the accelerator: its loads have strides.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....core.errors import ProgramError
from ...region import Composite, Operand, Operation, Value

#: What the chip holds of a quantized tensor.
QUANTIZED_DTYPES = ("int8", "uint8")
_UNFIT = re.compile(r"[^A-Za-z0-9_./:]")


@dataclass(frozen=True, eq=False)
class View:
    """A tensor as it is read: element [i, j, ...] lies at the sum of index times stride; a stride of 0 broadcasts."""

    value: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, value: Value) -> View:
        """All of a dense, row-major tensor."""
        return cls(value, value.shape, dense_strides(value.shape))

    @property
    def dtype(self) -> str:
        return self.value.dtype

    @property
    def tensor(self) -> str:
        """Name of the tensor in programs."""
        return tensor_name(self.value)

    def permuted(self, axes: tuple[int, ...]) -> View:
        """With its axes in another order."""
        return replace(self, shape=tuple(self.shape[a] for a in axes), strides=tuple(self.strides[a] for a in axes))

    def reshaped(self, shape: tuple[int, ...]) -> View:
        """With other sizes; only a dense view can be."""
        if self.strides != dense_strides(self.shape):
            raise ProgramError(f"{self.value.name} is transposed and then reshaped, which no load can follow")
        return replace(self, shape=shape, strides=dense_strides(shape))

    def broadcast(self, shape: tuple[int, ...]) -> View:
        """As numpy broadcasts it to a shape."""
        lead = len(shape) - len(self.shape)
        pairs = zip(self.shape, shape[max(lead, 0) :], strict=False)
        if lead < 0 or any(size not in (1, wanted) for size, wanted in pairs):
            raise ProgramError(f"{self.value} does not broadcast to {list(shape)}")
        strides = (0,) * lead + tuple(
            stride if size == wanted else 0
            for size, wanted, stride in zip(self.shape, shape[lead:], self.strides, strict=True)
        )
        return replace(self, shape=shape, strides=strides)


@dataclass(frozen=True, eq=False)
class Source:
    """An operand behind the operations that lead to it.

    Attributes:
        data: a view of a tensor, or the values of a constant, as the anchor's axes are.
        scale: float32, of as many axes as the data, of size 1 where it is the same; None: not dequantized.
        zero_point: int32, likewise; what is subtracted first. None: nothing was subtracted, no dtype was changed.
    """

    data: View | np.ndarray
    scale: np.ndarray | None = None
    zero_point: np.ndarray | None = None

    @property
    def kind(self) -> str:
        """ "plain", "integer" (widened to int32, less a zero point) or "quantized" (dequantized to float32)."""
        if self.scale is not None:
            return "quantized"
        return "integer" if self.zero_point is not None or str(self.data.dtype) == "int32" else "plain"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def name(self) -> str:
        """For messages."""
        if isinstance(self.data, View):
            return str(self.data.value)
        return f"a constant {self.data.dtype}{list(self.data.shape)}"


def read_operand(composite: Composite, operand: Operand) -> Source:
    """An operand of an operation of this composite, seen through its prologue.

    Raises:
        ProgramError: an operation on the way cannot be followed; says which, and why.
    """
    producer = composite.producer(operand)
    if producer is None:
        return Source(View.of(operand) if isinstance(operand, Value) else np.asarray(operand))
    if producer.op not in _READERS:
        raise ProgramError(f"{producer.result.name} is computed by {producer.op} here, which no load does")
    return _READERS[producer.op](producer, read_operand(composite, producer.operands[0]))


def tensor_name(value: Value) -> str:
    """A name that assembler text can hold; other values have other names."""
    clean = _UNFIT.sub("_", value.name)
    return clean if clean == value.name else f"{clean}_{hashlib.sha256(value.name.encode()).hexdigest()[:8]}"


def centered(source: Source) -> np.ndarray:
    """The values of a quantized constant less its zero point, int32."""
    assert isinstance(source.data, np.ndarray)
    values = source.data.astype(np.int32)
    return values if source.zero_point is None else values - source.zero_point


def signed_zero_point(zero_point: int, dtype: str) -> int:
    """The zero point of a tensor as it is on the chip, where uint8 is int8 with everything 128 less."""
    return zero_point - 128 if dtype == "uint8" else zero_point


def constant_of(operation: Operation, index: int, what: str) -> np.ndarray:
    """A constant operand of an operation.

    Raises:
        ProgramError: it is computed.
    """
    operand = operation.operands[index]
    if isinstance(operand, Value):
        raise ProgramError(f"{operation.result.name}: the {what} {operand} is computed; a constant is needed")
    return np.asarray(operand)


def along_axis(operation: Operation, values: np.ndarray, rank: int, what: str) -> np.ndarray:
    """Scale or zero point of (de)quantization as an array of `rank` axes: one value, or a vector along `axis`.

    Raises:
        ProgramError: of another shape, such as one value a block.
    """
    if values.size == 1:
        return values.reshape((1,) * rank)
    if values.ndim != 1:
        raise ProgramError(f"{operation.result.name}: a {what} of shape {list(values.shape)}; [] or [n] is needed")
    axis = int(operation.attrs.get("axis", -1)) % rank
    return values.reshape(tuple(-1 if at == axis else 1 for at in range(rank)))


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, row-major; 0 along axes of size 1, where any stride would do."""
    return tuple(0 if size == 1 else math.prod(shape[at + 1 :]) for at, size in enumerate(shape))


# ------------------------------------------------------------ one function an operator
def _permuted(operation: Operation, source: Source) -> Source:
    rank = len(source.shape)
    axes = operation.attrs.get("axes")
    order = tuple(range(rank))[::-1] if axes is None else tuple(int(axis) % rank for axis in axes)
    return _mapped(source, lambda a: a.permuted(order) if isinstance(a, View) else a.transpose(order))


def _reshaped(operation: Operation, source: Source) -> Source:
    shape = operation.result.shape

    def reshape(data: Any) -> Any:
        if isinstance(data, View):
            return data.reshaped(shape)
        if data.size == 1:
            return data.reshape((1,) * len(shape))
        if data.size != math.prod(shape):
            raise ProgramError(f"{operation.result.name} reshapes what has a scale of each channel")
        return data.reshape(shape)

    return _mapped(source, reshape)


def _dequantized(operation: Operation, source: Source) -> Source:
    if source.kind not in ("plain", "integer") or source.zero_point is not None:
        raise ProgramError(f"{operation.result.name} dequantizes what is dequantized already")
    name, dtype, rank = operation.result.name, str(source.data.dtype), len(source.shape)
    wanted = (*QUANTIZED_DTYPES, "int32") if isinstance(source.data, np.ndarray) else QUANTIZED_DTYPES
    if dtype not in wanted or operation.result.dtype != "float32":
        raise ProgramError(f"{name}: {source.name} becomes {operation.result.dtype}; int8 or uint8 to float32 is taken")
    scale = along_axis(operation, constant_of(operation, 1, "scale").astype(np.float32), rank, "scale")
    zero = along_axis(operation, constant_of(operation, 2, "zero point").astype(np.int32), rank, "zero point")
    return Source(source.data, scale, zero)


def _widened(operation: Operation, source: Source) -> Source:
    dtype = str(source.data.dtype)
    if source.kind != "plain" or dtype not in QUANTIZED_DTYPES or operation.result.dtype != "int32":
        raise ProgramError(
            f"{operation.result.name} converts {source.name} to {operation.result.dtype}; "
            "int8 or uint8 to int32 is taken"
        )
    return Source(source.data, None, np.zeros((1,) * len(source.shape), np.int32))


def _shifted(operation: Operation, source: Source) -> Source:
    name, rank = operation.result.name, len(source.shape)
    if source.kind != "integer" or source.zero_point is None or operation.result.dtype != "int32":
        raise ProgramError(f"{name} subtracts from {source.name}; only a zero point of int8 or uint8 is taken")
    zero = constant_of(operation, 1, "zero point").astype(np.int32)
    if zero.ndim > rank or operation.result.shape != source.shape:
        raise ProgramError(f"{name}: a zero point of shape {list(zero.shape)} broadcasts {source.name}")
    return replace(source, zero_point=source.zero_point + zero.reshape((1,) * (rank - zero.ndim) + zero.shape))


def _mapped(source: Source, function: Callable[[Any], Any]) -> Source:
    scale, zero = (None if a is None else function(a) for a in (source.scale, source.zero_point))
    return Source(function(source.data), scale, zero)


_READERS: dict[str, Callable[[Operation, Source], Source]] = {
    "relax.astype": _widened, "relax.dequantize": _dequantized, "relax.permute_dims": _permuted,
    "relax.reshape": _reshaped, "relax.subtract": _shifted,
}  # fmt: skip
#: Operators that are followed, for the prologues of patterns.
READERS = tuple(_READERS)
