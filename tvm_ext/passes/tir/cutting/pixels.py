"""A result whose pixels are numbered through a call has one dimension of them while loops are cut.

y[p // W, p % W] = ..., p = min(q, H * W - 1)     ->     pixels[q] = ...      of pixels[:H * W]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from .affine import Arithmetic, Extents, in_type, variables_of

#: Dimensions of rows and columns in a result: those before count images and blocks of channels.
ROWS, COLUMNS = 2, 3
_DIVISIONS = (tirx.floordiv, tirx.floormod)


@dataclass(frozen=True)
class Pixels:
    """A result with one dimension of pixels.

    Attributes:
        result: the parameter.
        buffer: what stands for it.
        extents: of that.
        rows, columns: of an image of the call.
    """

    result: Any
    buffer: Any
    extents: tuple[Any, ...]
    rows: Any
    columns: Any

    @classmethod
    def of(cls, result: Any, extents: Extents, arithmetic: Arithmetic) -> "Pixels":
        """Of a parameter that is an image."""
        shape, own = [int(size) for size in result.ty.shape], list(extents[result])
        rows, columns = (tirx.const(shape[d], "int32") if own[d] is None else own[d] for d in (ROWS, COLUMNS))
        dims = [*shape[:ROWS], shape[ROWS] * shape[COLUMNS], *shape[COLUMNS + 1 :]]
        buffer = tirx.decl_buffer(dims, result.ty.dtype, "pixels")
        count = arithmetic.simplify(rows * columns)
        return cls(result, buffer, (*own[:ROWS], count, *own[COLUMNS + 1 :]), rows, columns)

    def gathered(self, body: Any, symbols: Mapping[Any, Any]) -> Any:
        """A body that stores pixels by their numbers.

        Args:
            symbols: wide variable of a symbol -> the narrow one.

        Raises:
            ValueError: it stores to the result in another way.
        """

        def narrow(cast: tirx.Cast) -> Any:
            known = variables_of(cast.value) <= symbols.keys() and str(cast.ty.dtype) == "int32"
            return in_type(cast.value, "int32", dict(symbols)) if known else cast

        def store(stmt: tirx.BufferStore) -> Any:
            if not stmt.buffer.same_as(self.result):
                return stmt
            q = _number(stmt.indices[ROWS], stmt.indices[COLUMNS], {*symbols, *symbols.values()})
            return tirx.BufferStore(self.buffer, stmt.value, [*stmt.indices[:ROWS], q, *stmt.indices[COLUMNS + 1 :]])

        return tvm_ffi.structural_map(body, [(tirx.Cast, narrow), (tirx.BufferStore, store)])

    def scattered(self, body: Any) -> Any:
        """A body that stores pixels to the rows and columns of the result."""
        last = tirx.max(self.rows * self.columns - 1, 0)

        def store(stmt: tirx.BufferStore) -> Any:
            if not stmt.buffer.same_as(self.buffer):
                return stmt
            pixel = tirx.min(stmt.indices[ROWS], last)
            before, place = stmt.indices[:ROWS], (division(pixel, self.columns) for division in _DIVISIONS)
            return tirx.BufferStore(self.result, stmt.value, [*before, *place, *stmt.indices[ROWS + 1 :]])

        return tvm_ffi.structural_map(body, (tirx.BufferStore, store))


def _number(row: Any, column: Any, known: set[Any]) -> Any:
    """q of min(q, last) // columns and min(q, last) % columns, where `last` and `columns` have known variables only."""
    pixel = row.a if isinstance(row, tirx.FloorDiv) and isinstance(column, tirx.FloorMod) else None
    operands = [pixel.a, pixel.b] if isinstance(pixel, tirx.Min) else []
    numbers = [operand for operand in operands if variables_of(operand) - known]
    if len(numbers) != 1:
        raise ValueError(f"{row}, {column} are not the row and the column of a numbered pixel")
    return numbers[0]
