"""Rows of results, each with a bar, and tables and prose of pages."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm_ext.runtime.table import Table


class Unavailable(RuntimeError):
    """A row cannot be measured here; the message is what the table says instead of a figure."""


@dataclass(frozen=True)
class Row:
    """One line of a result: what was measured, the bar, the figure as text, whether the bar was met
    (None: nothing was measured that could meet it)."""

    what: str
    bar: str
    measured: str
    met: bool | None
    details: dict[str, Any] = field(default_factory=dict)


def exit_code(rows: Iterable[Row]) -> int:
    """Of a script: 1 if a bar was missed."""
    return 0 if all(row.met for row in rows) else 1


def met_text(met: bool | None) -> str:
    """Whether a bar is met, in a table's cell."""
    return "-" if met is None else "yes" if met else "NO"


def table(cells: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its head."""
    head, *body = cells
    return Table(head, body).markdown()


def rows_table(rows: Iterable[Row]) -> str:
    """The table of rows in Markdown."""
    cells = [(row.what, row.bar, row.measured, met_text(row.met)) for row in rows]
    return table([("what", "bar", "measured", "met"), *cells])


def prose(text: str) -> str:
    """A paragraph of a page, as one line."""
    return " ".join(text.split())


def filled(text: str) -> str:
    """A paragraph of a page, in lines of at most 120 columns."""
    return textwrap.fill(prose(text), 120)
