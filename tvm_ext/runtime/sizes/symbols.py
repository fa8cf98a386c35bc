"""Symbols: sizes known at run time, within bounds, and dimensions that are computed of them.

inputs ids[N, S], mask[N, S]; N in 1..8, S in 1..512        ids of (3, 37), mask of (3, 37)   ->   N = 3, S = 37
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.errors import InputError, OptionError, is_whole

if TYPE_CHECKING:
    from ..spec import Specs


#: Largest size of a dimension without a bound: a batch that is composed of programs of several sizes.
UNBOUNDED = (1 << 31) - 1


@dataclass(frozen=True)
class Symbol:
    """A dimension whose size is known at run time.

    Attributes:
        name: as `shapes` states it.
        low, high: smallest and largest size, both included.
        multiple: what every size is a multiple of: a model whose branches join after rounding takes no other.
        bound: size that the program is planned at; 0 stands for `high`.
    """

    name: str
    low: int
    high: int
    multiple: int = 1
    bound: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", self.bound or self.high)

    def at_least(self, low: int) -> Symbol:
        """The symbol with another smallest size, which is no larger than its largest."""
        return self if low == self.low else replace(self, low=min(low, self.high))

    @property
    def bounds(self) -> str:
        """Sizes that it can have, in words: "1 to 8", "1 or more", "2 to 40 in steps of 2"."""
        sizes = f"{self.low} or more" if self.high == UNBOUNDED else f"{self.least} to {self.most}"
        return f"{sizes} in steps of {self.multiple}" if self.multiple > 1 else sizes

    @property
    def least(self) -> int:
        """The smallest size that it can have."""
        return -(-self.low // self.multiple) * self.multiple

    @property
    def most(self) -> int:
        """The largest size that it can have."""
        return self.high // self.multiple * self.multiple

    def why_not(self, size: int) -> str:
        """Why a size cannot be; "" if it can."""
        if not self.low <= size <= self.high:
            return f"{self.name} is {size}; it can be {self.bounds}"
        return f"{self.name} is {size}; it can be a multiple of {self.multiple}" if size % self.multiple else ""

    def fix_for(self, size: int) -> str:
        """What to do about a size that cannot be."""
        if self.low <= size <= self.high:
            return f"fill the inputs up to a multiple of {self.multiple}, or compile the model for this size: shapes="
        return f"compile the model with dims={{{self.name!r}: ({max(min(self.low, size), 0)}, {max(self.high, size)})}}"


_SYMBOLIC = re.compile(r"(?:([1-9]\d*)\*)?([^\W\d]\w*)")


def multiple_of_symbol(dim: str) -> tuple[int, str]:
    """(12, "N") for "12*N".

    Raises:
        ValueError: the text is no symbolic dimension.
    """
    match = _SYMBOLIC.fullmatch(dim)
    if match is None:
        raise ValueError(f"{dim!r} is no symbolic dimension such as 'N' or '12*N'")
    return int(match[1] or 1), match[2]


_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max}
#: Characters of a dimension, at most: what is longer was not written by this library.
_LONGEST = 1000


@functools.lru_cache(maxsize=1024)
def dimension(text: str) -> Callable[[Mapping[str, int]], int]:
    """A dimension as a function of the sizes of symbols.

    Args:
        text: whole numbers and names with + - * // %, min and max, as in "(W + 7) // 8".

    Raises:
        ValueError: it is something else.
    """
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"a dimension of {len(text)} characters; {_LONGEST} can be")
        return _compiled(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is no dimension such as 'N' or '(W + 7) // 8'") from error


def _compiled(node: ast.AST) -> Callable[[Mapping[str, int]], int]:
    match node:
        case ast.Constant(value=int() as number) if type(number) is int:
            return lambda _: number
        case ast.Name(id=name):
            return lambda sizes: sizes[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            function, a, b = _OPERATORS[type(op)], _compiled(left), _compiled(right)
            return lambda sizes: function(a(sizes), b(sizes))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and args:
            of, parts = _FUNCTIONS[name], [_compiled(arg) for arg in args]
            return lambda sizes: of(part(sizes) for part in parts)
    raise ValueError(f"{ast.dump(node)[:80]} is no part of a dimension: numbers, names, + - * // % min max")


def shape_at(shape: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape for these sizes of symbols."""
    return tuple(
        dim if isinstance(dim, int) else sizes[dim] if dim in sizes else dimension(dim)(sizes) for dim in shape
    )


def dimensions_of(inputs: Specs, symbols: Sequence[Symbol]) -> tuple[Symbol, ...]:
    """The dimensions of a program that are no numbers: its symbols, or a batch that has no upper bound.

    Args:
        inputs: of the program.
        symbols: of the program; none of one whose batch is composed of several sizes.
    """
    names = dict.fromkeys(dim for spec in inputs for dim in spec.shape if isinstance(dim, str))
    return tuple(symbols) or tuple(Symbol(name, 0, UNBOUNDED) for name in names)


def checked_sizes(symbols: Sequence[Symbol], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of symbols that a caller states, in the order of `symbols`.

    Raises:
        OptionError: one is missing, unknown, no whole number, or out of its bounds.
    """
    names = [symbol.name for symbol in symbols]
    if not isinstance(sizes, Mapping) or set(sizes) != set(names):
        example = f"for example {', '.join(f'{symbol.name}={symbol.least}' for symbol in symbols)}"
        wrong = f"the size of each of {names} is needed" if names else "the model has no symbolic dimension"
        raise OptionError(f"sizes={sizes!r}: {wrong}", fix=example if names else "leave the sizes out")
    for symbol in symbols:
        if not is_whole(size := sizes[symbol.name]):
            wrong = f"{symbol.name} is {size!r}, which is no whole number"
            raise OptionError(f"sizes={dict(sizes)}: {wrong}", fix=f"it can be {symbol.bounds}")
        if wrong := symbol.why_not(size):
            raise OptionError(f"sizes={dict(sizes)}: {wrong}", fix=symbol.fix_for(size))
    return {name: int(sizes[name]) for name in names}


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes in a line: "N 3, S 37"."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def named_sizes(inputs: Specs, shapes: Sequence[tuple[int, ...]], symbols: Sequence[Symbol]) -> dict[str, int]:
    """The size of each symbol that the inputs have, by name, in the order of `symbols`.

    Args:
        inputs: of the program; a dimension is a number or the name of a symbol.
        shapes: of the arrays it is called with, in order.

    Raises:
        InputError: a shape does not fit, a size is out of its bounds, or two inputs contradict each other; names the
            input, the dimension, and what was expected.
    """
    sizes: dict[str, tuple[int, str]] = {}
    known = {symbol.name: symbol for symbol in symbols}
    for spec, shape in zip(inputs, shapes, strict=True):
        if len(shape) != len(spec.shape):
            raise InputError(f"input {spec.name!r} has {len(shape)} dimensions, {shape}; {spec} is needed")
        for axis, (dim, size) in enumerate(zip(spec.shape, shape, strict=True)):
            where = f"input {spec.name!r} {shape}: dimension {axis}"
            if isinstance(dim, int):
                if size != dim:
                    raise InputError(f"{where} is {size}; {dim} is needed, {spec}")
                continue
            if wrong := known[dim].why_not(size):
                raise InputError(f"{where}: {wrong}", fix=known[dim].fix_for(size))
            before, owner = sizes.setdefault(dim, (size, f"dimension {axis} of input {spec.name!r}"))
            if before != size:
                raise InputError(f"{where}: {dim} is {size} here and {before} in {owner}",
                                 fix="give all inputs the same size of it")  # fmt: skip
    return {symbol.name: sizes[symbol.name][0] for symbol in symbols if symbol.name in sizes}
