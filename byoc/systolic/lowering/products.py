"""What a product of two operands is to the array: float32, or integers with zero points and scales; for any anchor.

    float32     x w
    integer     (x - zx)(w - zw)                        -> int32
    quantized   sx (x - zx)  sw (w - zw)                -> int32, then times sx sw

Of integers the array multiplies x as it is and w' = w - zw, which is constant; a constant row takes zx out again::

    sum (x - zx) w'  =  sum x w'  -  zx sum w'          sums over k

The row, and the sums, wrap around at 2^31, which does not matter where the result is in range. A w' that needs nine
bits is a sum of int8 parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....core.errors import ProgramError
from ...region import Operation
from ..config import Accelerator
from .operands import QUANTIZED_DTYPES, Source, View, centered, signed_zero_point

#: A weight less its zero point is a sum of up to three int8 values.
_LEAST_WEIGHT, _MOST_WEIGHT = -3 * 128, 3 * 127


@dataclass(frozen=True, eq=False)
class Product:
    """Two operands that the array can multiply.

    Attributes:
        left: a view; the array multiplies its tensor as it is.
        right: a view; a constant has its source.
        zero_point: of the left operand, as it is on the chip, where uint8 is int8.
        scale: of the left times that of the right operand, with as many axes as `right`; None: not dequantized.
        dry: whether only shapes matter, for checks: values of constants are then zeros that take no memory.
    """

    left: View
    right: View | Source
    zero_point: int
    scale: np.ndarray | None
    is_float: bool
    dry: bool

    @classmethod
    def of(cls, anchor: Operation, left: Source, right: Source, hardware: Accelerator, dry: bool = False) -> Product:
        """The product of an anchor's operands.

        Raises:
            ProgramError: their dtypes, zero points or scales are none that this accelerator multiplies.
        """
        if not isinstance(left.data, View):
            raise ProgramError(f"the first operand of {anchor.result.name} is {left.name}; a computed tensor is needed")
        if left.kind != right.kind:
            raise ProgramError(f"{left.name} is {left.kind}, and {right.name} is {right.kind}; both alike are needed")
        factor = right.data if isinstance(right.data, View) else right
        if left.kind == "plain":
            _check_floats(anchor, left, right, hardware)
            return cls(left.data, factor, 0, None, True, dry)
        _check_integers(anchor, left, right, hardware)
        zero = _one_zero_point(left)
        if isinstance(right.data, View) and (zero or _one_zero_point(right)):
            raise ProgramError(
                f"{anchor.result.name} multiplies two computed tensors with zero points, {left.name} and {right.name}; "
                "int8 with zero point 0, or uint8 with 128, is taken"
            )
        scale = None if left.scale is None or right.scale is None else left.scale.item() * right.scale
        return cls(left.data, factor, zero, scale, False, dry)

    def constant(self) -> np.ndarray:
        """Values of the right operand, less their zero point: float32 or int32, as the anchor's axes are."""
        assert isinstance(self.right, Source) and isinstance(self.right.data, np.ndarray)
        if self.dry:
            return np.broadcast_to(np.zeros((), np.float32 if self.is_float else np.int8), self.right.shape)
        return self.right.data if self.is_float else centered(self.right)

    def weights(self, matrices: np.ndarray) -> tuple[np.ndarray, int]:
        """(B, parts) of a layer for the constant as [batches, k, n]."""
        return (matrices, 1) if self.is_float or self.dry else integer_weights(matrices)

    def row(self, matrices: np.ndarray | None, n: int) -> np.ndarray | None:
        """What is added to the sums: int32 [n] or [batches, n]; None in float32."""
        if self.is_float:
            return None
        if matrices is None or self.dry or not self.zero_point:
            return np.zeros(n, np.int32)
        row = zero_point_row(matrices, self.zero_point)
        return row[0] if len(row) == 1 else row


def integer_weights(weights: np.ndarray) -> tuple[np.ndarray, int]:
    """(B, parts) for :class:`..code.layer.GemmLayer`: int8 [batches, parts * k, n], whose parts sum up to the weights.

    Args:
        weights: int32 [batches, k, n], less their zero point.
    """
    rest, parts = weights, list[np.ndarray]()
    while not parts or rest.any():  # at most three times: see _LEAST_WEIGHT
        parts.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - parts[-1]
    return np.concatenate(parts, axis=1), len(parts)


def zero_point_row(weights: np.ndarray, x_zero_point: int) -> np.ndarray:
    """The row -zx sum(w') of each batch, int32 [batches, n]; `x_zero_point` is a signed one."""
    return (-x_zero_point * weights.sum(axis=1, dtype=np.int64)).astype(np.int32)


def _check_floats(anchor: Operation, left: Source, right: Source, hardware: Accelerator) -> None:
    for source in (left, right):
        if str(source.data.dtype) != "float32":
            raise ProgramError(f"{source.name} is multiplied as it is; float32 is taken")
    if hardware.tensor_dtype != "float32":
        raise ProgramError(
            f"{anchor.result.name} multiplies float32, and the array {hardware.dtype}: quantize the model, "
            "or set the option dtype='float32' or 'bfloat16'"
        )
    if anchor.result.dtype != "float32":
        raise ProgramError(f"{anchor.result.name} is {anchor.result.dtype}; float32 is taken")


def _check_integers(anchor: Operation, left: Source, right: Source, hardware: Accelerator) -> None:
    wanted = "float32" if left.kind == "quantized" else "int32"
    if hardware.dtype != "int8":
        raise ProgramError(
            f"{anchor.result.name} multiplies integers, and the array {hardware.dtype}: set the option dtype='int8'"
        )
    if anchor.result.dtype != wanted:
        raise ProgramError(f"{anchor.result.name} is {anchor.result.dtype}; {wanted} is taken")
    assert isinstance(left.data, View)
    views = [source.data for source in (left, right) if isinstance(source.data, View)]
    for view in views:
        if view.dtype not in QUANTIZED_DTYPES:
            raise ProgramError(f"{view.value} is a factor; int8 or uint8 is taken")
    if left.scale is not None and left.scale.size > 1:
        raise ProgramError(f"{left.name} has a scale a channel, along which is summed; one scale is taken")
    if str(right.data.dtype) == "int32" and not isinstance(right.data, View):
        values = centered(right)
        if values.min() < _LEAST_WEIGHT or values.max() > _MOST_WEIGHT:
            raise ProgramError(f"{right.name} has values beyond {_LEAST_WEIGHT} to {_MOST_WEIGHT}, three int8")


def checked_zero_point(anchor: Operation, source: Source, hardware: Accelerator) -> int:
    """The zero point of what the vector unit reads of a computed tensor, as it is on the chip; 0 of float32.

    Raises:
        ProgramError: this accelerator has no such tensors, or scale or zero point are not the same of all of it.
    """
    assert isinstance(source.data, View)
    dtype, taken = source.data.dtype, QUANTIZED_DTYPES if hardware.dtype == "int8" else ("float32",)
    if dtype not in taken or source.kind == "integer":
        raise ProgramError(
            f"{anchor.result.name} reads {source.name}; with the option dtype={hardware.dtype!r}, "
            f"{' and '.join(taken)} are taken"
        )
    if source.scale is not None and source.scale.size > 1:
        raise ProgramError(f"{source.name} has a scale a channel; one scale is taken")
    return 0 if source.kind == "plain" else _one_zero_point(source)


def _one_zero_point(source: Source) -> int:
    """The zero point of a computed operand, as it is on the chip."""
    assert isinstance(source.data, View)
    zero = np.zeros(1, np.int32) if source.zero_point is None else source.zero_point
    if (zero != zero.flat[0]).any():
        raise ProgramError(f"{source.name} has zero points of its rows or channels; one is taken")
    return signed_zero_point(int(zero.flat[0]), source.data.dtype)
