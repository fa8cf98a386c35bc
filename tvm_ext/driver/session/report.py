"""What a session was asked for, and what it compiled."""

from dataclasses import dataclass
from typing import ClassVar

from ...core.options import Shapes
from ...runtime.sizes.symbols import Symbol
from ...runtime.table import Column, Markup, Plain, Table, Value


@dataclass(frozen=True)
class ShapesRow(Plain):
    """Calls of one set of input shapes, or of the program of any size.

    Attributes:
        shapes: of the inputs with free dimensions, by name; empty for a program that takes all within its bounds.
        onnxruntime, compiled: calls that onnxruntime answered, and that a program did.
        state: "compiled"; "waiting" or "compiling", in the background; "missed", not asked for often enough;
            "failed"; "evicted", for others that were asked for; or "onnxruntime", no program can take them.
        reason: of the state; "" if it needs none.
        seconds: of the compile; None if there was none.
        symbols: dimensions that the program takes any size of, with their bounds; none of a program of one size, and of
            one that was not compiled.
        fixed: sizes that are fixed in a program beside the one of any size, as "S 32", and calls that ran there.
    """

    shapes: Shapes
    onnxruntime: int
    compiled: int
    state: str
    reason: str = ""
    seconds: float | None = None
    symbols: tuple[Symbol, ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()

    @property
    def text(self) -> str:
        """What it takes, in a line: "x [1, 3], mask [1]", or "any size: N 1 to 8"."""
        bounds = ", ".join(f"{symbol.name} {symbol.bounds}" for symbol in self.symbols)
        return text_of(self.shapes) or (f"any size: {bounds}" if bounds else "any size")


@dataclass(frozen=True)
class SessionReport(Plain):
    """Calls of a session; `str()` prints them as a table.

    Attributes:
        model: its name.
        rows: the program of any size, if there may be one; then a set of input shapes each, the one asked for last at
            the end.
        forgotten: sets of shapes that have no row any more, and calls of them, all answered by onnxruntime.
    """

    derived: ClassVar[tuple[str, ...]] = ("onnxruntime", "compiled")

    model: str
    rows: tuple[ShapesRow, ...]
    forgotten: tuple[int, int] = (0, 0)

    @property
    def any_size(self) -> ShapesRow | None:
        """The row of the program that takes all sizes within its bounds; None if there may be none."""
        return next((row for row in self.rows if not row.shapes), None)

    @property
    def onnxruntime(self) -> int:
        """Calls that onnxruntime answered."""
        return sum(row.onnxruntime for row in self.rows) + self.forgotten[1]

    @property
    def compiled(self) -> int:
        """Calls that a program answered."""
        return sum(row.compiled for row in self.rows)

    def table(self) -> Table:
        """A row a set of shapes."""
        columns = (
            "shapes", Column("onnxruntime", "calls"), Column("compiled", "calls"), "state",
            Column("compile", "s", ".2f"), Column("reason", most=80),
        )  # fmt: skip
        rows: list[tuple[Value, ...]] = []
        for row in self.rows:
            rows.append((row.text, row.onnxruntime, row.compiled, row.state, row.seconds, row.reason))
            rows += [(f"of them {sizes}", None, calls, "", None, "") for sizes, calls in row.fixed]
        return Table(columns, rows).filled()

    def __str__(self) -> str:
        head = f"{self.model}: {self.onnxruntime + self.compiled} calls, {self.compiled} of them compiled"
        more = f"and {self.forgotten[1]} calls of {self.forgotten[0]} more sets of shapes, by onnxruntime"
        return "\n".join([head, self.table().text(), *([more] if self.forgotten[0] else [])])

    def _repr_html_(self) -> Markup:
        """The table as HTML, which notebooks show."""
        return self.table().html()


def text_of(shapes: Shapes) -> str:
    """Shapes in a line: "x [1, 3], mask [1]"."""
    return ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in shapes)
