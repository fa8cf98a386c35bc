"""Sizes known at run time: symbols with bounds, and the extents of dimensions that follow from them.

    shapes={"x": ("N", "S", 768)}, dims={"N": (1, 8), "S": (1, 512)}

A program of symbolic sizes is planned at their bounds: buffers, strides, tiles and packed weights are those of a static
program of 8 x 512. What the symbols are in a call arrives in one more argument of `main`, and of each kernel that
depends on it: `sizes`, int64, one element a symbol. The attribute :data:`EXTENTS` of a grouped function, and of a
kernel before its loops are cut, says which part of each buffer is in use: from index 0, so many of each dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ..runtime.sizes.symbols import Symbol as Symbol

#: Attribute of a grouped function, and of a kernel: of each parameter in order, then of each result, the run-time
#: extent of each dimension: int64, over the variables of :class:`Sizes`; a number where it is the buffer's own.
EXTENTS = "tvm_ext.extents"
#: Attribute of a kernel that has :data:`EXTENTS`: of each element of `sizes` the variable in them, and its bound.
SYMBOLS = "tvm_ext.symbols"
#: Attribute of a kernel: index of a parameter (a string) -> the number that its operation reads beyond the edge of an
#: image, and that is written behind the extents before the kernel reads them.
BORDER = "tvm_ext.border"
#: Annotation of a loop: name of an image. Iterations that read only what is beyond its extents store zeros.
INSIDE = "tvm_ext.inside"
#: Name of the argument that brings the sizes.
SIZES = "sizes"


@dataclass(frozen=True)
class Sizes:
    """The symbols of a program, in the order of the elements of its argument `sizes`.

    Attributes:
        symbols: with their bounds.
        vars: what stands for each in extents: an int64 variable of its name.
    """

    symbols: tuple[Symbol, ...]
    vars: tuple[tirx.Var, ...]

    @classmethod
    def of(cls, symbols: Sequence[Symbol]) -> Sizes:
        """Sizes with variables of their own."""
        return cls(tuple(symbols), tuple(tirx.Var(symbol.name, "int64") for symbol in symbols))

    @property
    def bound(self) -> Mapping[str, int]:
        """The size at which everything is planned, of each symbol."""
        return {symbol.name: symbol.bound for symbol in self.symbols}

    def text(self, extent: Any) -> int | str:
        """An extent as metadata has it: a number, or text that :func:`..runtime.sizes.symbols.dimension` reads."""
        return int(extent) if isinstance(extent, int | tirx.IntImm) else _text(extent)


def extents_of(function: Any) -> tuple[tuple[Any, ...], ...] | None:
    """The run-time extents of a grouped function or kernel: a tuple a parameter and result; None if all are static."""
    if not function.attrs or EXTENTS not in function.attrs:
        return None
    return tuple(tuple(shape) for shape in function.attrs[EXTENTS])


_SIGNS = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.FloorMod: "%"}


def _text(expr: Any) -> str:
    """An expression over symbols as text.

    Raises:
        TypeError: it has an operation that dimensions never have.
    """
    if isinstance(expr, tirx.IntImm):
        return str(int(expr)) if int(expr) >= 0 else f"(0 - {-int(expr)})"
    if isinstance(expr, tirx.Var):
        return str(expr.name)
    if isinstance(expr, tirx.Add) and isinstance(expr.b, tirx.IntImm) and int(expr.b) < 0:
        return f"({_text(expr.a)} - {-int(expr.b)})"
    if type(expr) in _SIGNS:
        return f"({_text(expr.a)} {_SIGNS[type(expr)]} {_text(expr.b)})"
    if isinstance(expr, tirx.Min | tirx.Max):
        return f"{type(expr).__name__.lower()}({_text(expr.a)}, {_text(expr.b)})"
    raise TypeError(f"{expr} is no dimension")


def evaluate(expr: Any, size: Mapping[str, int]) -> int:
    """The value of an integer expression over the symbols.

    Args:
        expr: of sums, differences, products, quotients, remainders, minima and maxima; or a number.
        size: of each symbol, by name.

    Raises:
        TypeError: another operation.
        KeyError: a variable that is no symbol.
    """
    if isinstance(expr, int | tirx.IntImm):
        return int(expr)
    if isinstance(expr, tirx.Var):
        return size[expr.name]
    if isinstance(expr, tirx.Cast):
        return evaluate(expr.value, size)
    operation = _OPERATIONS.get(type(expr))
    if operation is None:
        names = ", ".join(kind.__name__ for kind in _OPERATIONS)
        raise TypeError(f"{expr}: {type(expr).__name__} is no operation on sizes; {names} are")
    return operation(evaluate(expr.a, size), evaluate(expr.b, size))


_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b, tirx.Sub: lambda a, b: a - b, tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b, tirx.FloorMod: lambda a, b: a % b, tirx.Min: min, tirx.Max: max,
}  # fmt: skip
