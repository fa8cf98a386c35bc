"""Epilogues: what follows an anchor, operation by operation, as steps of the vector unit.

The accumulator holds int32 sums or float32. Integer constants wait in a row, and the scale that makes sums real waits
too, so that one step does the work of several::

    matmul (int8, dequantized) + bias (int32, same scale)    ->  add row (bias - zx sum w), dequantize
    matmul (int32) -> astype(float32) -> multiply(scale)     ->  dequantize
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....core.errors import ProgramError
from ...region import Composite, Operand, Operation
from ..code.layer import Step
from .matrices import Form
from .operands import (
    QUANTIZED_DTYPES,
    Source,
    View,
    along_axis,
    centered,
    constant_of,
    read_operand,
    signed_zero_point,
)  # fmt: skip


class Epilogue:
    """Steps while they grow.

    Args:
        composite: whose epilogue it is.
        form: of the anchor's result.
        row: int32 [n] or [batches, n], to be added to the sums; None in float32.
        scale: float32, likewise, or of size 1: what makes the sums real numbers; None if nothing does yet.
        held: name of the operand of the anchor that the accumulator holds, where the anchor is the first step itself.

    Raises:
        ProgramError: an operation cannot be done; names it, its operand and what would do.
    """

    def __init__(
        self, composite: Composite, form: Form, row: np.ndarray | None = None, scale: np.ndarray | None = None,
        held: str = "",
    ) -> None:  # fmt: skip
        self._composite, self._form = composite, form
        self._row, self._scale = row, scale
        self._scaled_from_start = scale is not None
        self._held = "float32" if row is None else "int32"
        self._steps: list[Step] = []
        self._last = held or composite.anchor.result.name
        for operation in (composite.anchor, *composite.epilogue) if held else composite.epilogue:
            if operation.op not in _WRITERS:
                raise ProgramError(f"{operation.result.name}: the vector unit has no {operation.op}")
            if operation.result.shape != form.shape:
                raise ProgramError(f"{operation.result} broadcasts {self._last}, which has shape {list(form.shape)}")
            _WRITERS[operation.op](self, operation)
            self._last = operation.result.name

    def steps(self) -> tuple[Step, ...]:
        """The steps of the whole epilogue, with those that convert its result."""
        if self._scale is not None:
            self._make_real()
        elif self._held == "int32":
            self._add_row()
        return tuple(self._steps)

    # ------------------------------------------------------------ one method an operator
    def add(self, operation: Operation) -> None:
        """Bias, residual, or any other constant or tensor that broadcasts to the result."""
        other = self._other(operation)
        if self._joins_row(other):
            return
        if self._scale is not None:
            self._make_real()
        row = self._form.row(other.data) if isinstance(other.data, np.ndarray) else None
        if self._held == "int32":
            self._add_integers(operation, other, row)
        elif row is not None:
            values = row if other.scale is None else self._real_row(other)
            self._check(operation, other, str(values.dtype) == "float32")
            self._step(Step("add", row=values))
        elif isinstance(other.data, View):
            self._add_tile(operation, other, other.data)
        else:
            raise ProgramError(
                f"{operation.result.name} adds {other.name}, which differs from row to row; a constant has to be the "
                f"same for all {self._form.size(self._form.rows)} rows, or the other operand a computed tensor"
            )

    def relu(self, _operation: Operation) -> None:
        if self._scale is not None:
            self._make_real()
        elif self._held == "int32":
            self._add_row()
        self._step(Step("relu", dtype=self._held))

    def clip(self, operation: Operation) -> None:
        """Between two numbers, of which either may be infinite."""
        self._need_real(operation)
        low, high = (float(constant_of(operation, index, "bound")) for index in (1, 2))
        if not low <= high:
            raise ProgramError(f"{operation.result.name} clips to {low} at least and {high} at most")
        self._step(Step("clip", scale=high, low=low))

    def activation(self, operation: Operation) -> None:
        """gelu, by erf or by tanh."""
        self._need_real(operation)
        self._step(Step(operation.op.removeprefix("relax.nn.")))

    def convert(self, operation: Operation) -> None:
        """int32 to float32."""
        if operation.result.dtype != "float32" or self._held != "int32" or self._scale is not None:
            raise ProgramError(
                f"{operation.result.name} converts to {operation.result.dtype}; int32 to float32 is taken"
            )
        self._scale = np.ones(1, np.float32)

    def multiply(self, operation: Operation) -> None:
        """By a constant, the same for all rows."""
        other = self._other(operation)
        row = self._form.row(other.data) if isinstance(other.data, np.ndarray) and other.kind == "plain" else None
        if row is None or str(row.dtype) != "float32":
            raise ProgramError(f"{operation.result.name} multiplies by {other.name}; a float32 constant row is taken")
        if self._scale is not None and (self._scale == 1).all():
            self._scale = row
            return
        self._need_real(operation)
        self._step(_by_scale("multiply", row))

    def quantize(self, operation: Operation) -> None:
        """To int8 or uint8, with scales of the whole tensor or of each column, and one zero point."""
        self._need_real(operation)
        name, dtype, rank = operation.result.name, operation.result.dtype, len(self._form.shape)
        if dtype not in QUANTIZED_DTYPES:
            raise ProgramError(f"{name} quantizes to {dtype}; int8 and uint8 are taken")
        scale = along_axis(operation, constant_of(operation, 1, "scale").astype(np.float32), rank, "scale")
        zero = constant_of(operation, 2, "zero point").ravel()
        row = self._form.row(scale)
        if row is None:
            raise ProgramError(f"{name}: a scale along axis {operation.attrs.get('axis')}, which is none of columns")
        if (zero != zero[0]).any() or not (np.isfinite(row) & (row > 0)).all():
            raise ProgramError(f"{name}: one zero point, and scales that are positive and finite, are needed")
        self._step(_by_scale("quantize", row, signed_zero_point(int(zero[0]), dtype)))
        self._held = "int8"

    # ------------------------------------------------------------ what they share
    def _step(self, step: Step) -> None:
        if self._held == "int8":
            raise ProgramError(f"{self._last} is quantized, which ends an epilogue")
        self._steps.append(step)

    def _need_real(self, operation: Operation) -> None:
        if self._scale is not None:
            self._make_real()
        if self._held != "float32":
            raise ProgramError(f"{operation.result.name} takes float32, and {self._last} is {self._held}")

    def _other(self, operation: Operation) -> Source:
        """The operand that is not the value before; both may be it."""
        first, second = operation.operands
        mine: Operand = second if getattr(first, "name", None) == self._last else first
        if getattr(first, "name", None) == getattr(second, "name", "") == self._last:
            raise ProgramError(f"{operation.result.name} has {self._last} as both operands")
        return read_operand(self._composite, mine)

    def _joins_row(self, other: Source) -> bool:
        """Whether a constant was added to the row of integers: it is an integer, or has their very scale."""
        if self._held != "int32" or not isinstance(other.data, np.ndarray) or str(other.data.dtype) != "int32":
            return False
        row = self._form.row(centered(other))
        if row is None or (other.scale is None) != (self._scale is None):
            return False
        if self._scale is not None:
            theirs = self._form.row(np.asarray(other.scale))
            same = theirs is not None and bool(np.all(self._scale == theirs))
            if not (same and self._scaled_from_start):  # behind a conversion the model says where to round
                return False
        assert self._row is not None
        self._row = (self._row.astype(np.int64) + row).astype(np.int32)  # wraps around, as the sums do
        return True

    def _real_row(self, other: Source) -> np.ndarray:
        """A dequantized constant."""
        assert other.scale is not None
        row = self._form.row(centered(other).astype(np.float32) * other.scale)
        assert row is not None
        return row

    def _add_integers(self, operation: Operation, other: Source, row: np.ndarray | None) -> None:
        plain = isinstance(other.data, View) and other.kind != "quantized" and other.zero_point is None
        if row is not None or not isinstance(other.data, View):
            raise ProgramError(f"{operation.result.name} adds {other.name} to int32; an int32 row or tensor is needed")
        self._check(operation, other, plain and other.data.dtype == "int32")
        self._add_row()
        self._step(Step("add", tile=self._form.matrix(other.data), dtype="int32"))

    def _add_tile(self, operation: Operation, other: Source, view: View) -> None:
        if other.kind == "plain":
            self._check(operation, other, view.dtype == "float32")
            self._step(Step("add", tile=self._form.matrix(view)))
            return
        scale, zero = other.scale, other.zero_point
        self._check(operation, other, scale is not None and zero is not None)
        assert scale is not None and zero is not None
        if scale.size > 1 or zero.size > 1:
            raise ProgramError(f"{operation.result.name} adds {other.name} with a scale a channel; one scale is taken")
        point = signed_zero_point(int(zero.item()), view.dtype)
        self._step(Step("add", tile=self._form.matrix(view), dtype="int8", scale=float(scale.item()), zero_point=point))

    def _check(self, operation: Operation, other: Source, fits: bool) -> None:
        if not fits:
            raise ProgramError(f"{operation.result.name} adds {other.name} to {self._last}, which is {self._held}")

    def _add_row(self) -> None:
        if self._row is not None and self._row.any():
            self._step(Step("add", row=self._row, dtype="int32"))
        self._row = None if self._row is None else np.zeros_like(self._row)

    def _make_real(self) -> None:
        scale, row, zero = self._scale, self._row, 0
        assert scale is not None
        if row is not None and (row == row.flat[0]).all() and row.flat[0] > np.iinfo(np.int32).min:
            self._row, zero = None, -int(row.flat[0])  # the same of all sums
        self._add_row()
        self._step(_by_scale("dequantize", scale, zero))
        self._scale, self._held = None, "float32"


def _by_scale(op: str, scale: np.ndarray, zero_point: int = 0) -> Step:
    """A step with one scale, or with a row of them."""
    if (scale == scale.flat[0]).all():
        return Step(op, scale=float(scale.flat[0]), zero_point=zero_point)
    return Step(op, row=np.ascontiguousarray(scale, np.float32), zero_point=zero_point)


_WRITERS: dict[str, Callable[[Epilogue, Operation], None]] = {
    "relax.add": Epilogue.add, "relax.astype": Epilogue.convert, "relax.clip": Epilogue.clip,
    "relax.multiply": Epilogue.multiply, "relax.nn.gelu": Epilogue.activation,
    "relax.nn.gelu_tanh": Epilogue.activation, "relax.nn.relu": Epilogue.relu, "relax.quantize": Epilogue.quantize,
}  # fmt: skip
#: Operators of the vector unit, for the epilogues of patterns.
WRITERS = tuple(_WRITERS)
