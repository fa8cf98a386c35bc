"""Tables of results: columns with a unit and an alignment; as text, Markdown, HTML and plain values. Plain Python."""

from __future__ import annotations

import dataclasses
import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.errors import OptionError, check_choice

TONES = ("", "good", "bad", "warn", "dim")
SHORT = 28  # letters of a cell that a page never breaks

# Controls draw nothing, or change the direction of what follows: names of a model may not do that to who reads them.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


class Markup(str):
    """HTML that was made here; every other string is text and is escaped, by Jinja2 too."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


@dataclass(frozen=True)
class Cell:
    """A cell that shows one thing and sorts by another.

    Attributes:
        content: what stands in it.
        value: what it sorts by; None for the text itself.
        share: 0 to 1, drawn as a bar behind it; None draws none.
        tone: "", "good", "bad", "warn" or "dim": the colour of its text.
        title: what a pointer that rests on it shows.
    """

    content: str | int | float | bool | None
    value: str | float | None = None
    share: float | None = None
    tone: str = ""
    title: str = ""

    @property
    def key(self) -> str | int | float | bool | None:
        """What it sorts by."""
        return self.content if self.value is None else self.value


Value = str | int | float | bool | None | Cell
"""What a table shows; None is an empty cell, and a `Markup` is taken as it is."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its head; unit: of its numbers, behind the title.
        form: of its numbers, as for `format`; "" for :func:`number`.
        right: whether it is aligned to the right, monospaced, and sorted largest first; None finds out whether it holds
            nothing but numbers.
        page: whether it stands on pages only: a terminal is too narrow.
        most: letters of a cell in text; longer ones are cut in their middle; 0 cuts none.
        bar: letters of a full bar that text draws behind a cell with a share; 0 draws none.
    """

    title: str
    unit: str = ""
    form: str = ""
    right: bool | None = None
    page: bool = False
    most: int = 0
    bar: int = 0

    @property
    def head(self) -> str:
        """Title and unit."""
        return f"{self.title} {self.unit}" if self.unit else self.title


class Table:
    """Rows under columns.

    Args:
        columns: of the table; a string is the title of a column.
        rows: as many cells each as there are columns.
        caption: a line above it.

    Raises:
        OptionError: a row of another length, or a tone that is none.
    """

    def __init__(self, columns: Sequence[Column | str], rows: Iterable[Sequence[Value]], caption: str = "") -> None:
        self.columns = tuple(Column(column) if isinstance(column, str) else column for column in columns)
        self.rows = tuple(tuple(_cell(value) for value in row) for row in rows)
        self.caption = caption
        for row in self.rows:
            if len(row) != len(self.columns):
                raise OptionError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row!r:.200}")

    def text(self, head: bool = True) -> str:
        """The table for a terminal.

        Args:
            head: with the titles of the columns.
        """
        shown: list[tuple[list[str], bool]] = []
        for at, column in enumerate(self.columns):
            if not column.page:
                cells = [_text(row[at], column, column.most) for row in self.rows]
                shown.append(([column.head, *cells], self._is_right(at)))
            if column.bar:
                shown.append((["", *(_bar(row[at].share, column.bar) for row in self.rows)], False))
        columns = [
            [cell.rjust(width) if right else cell.ljust(width) for cell in cells]
            for cells, right in shown
            for width in [max(map(len, cells if head else cells[1:]), default=0)]
        ]
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        return "\n".join(lines if head else lines[1:])

    def markdown(self) -> str:
        """The table in GitHub's Markdown."""
        shown = [at for at, column in enumerate(self.columns) if not column.page]
        lines = [[self.columns[at].head for at in shown], ["---:" if self._is_right(at) else "---" for at in shown]]
        lines += [[_text(row[at], self.columns[at]) for at in shown] for row in self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)

    def html(self) -> Markup:
        """The table in a box that scrolls; a page sorts its rows by a click on a title."""
        classes = [self._class(at) for at in range(len(self.columns))]
        head = "".join(
            f'<th scope="col" class="{name}"><span>{escape(column.head)}</span></th>'
            for column, name in zip(self.columns, classes, strict=True)
        )
        lines = "".join("<tr>" + "".join(map(_html, row, self.columns, classes)) + "</tr>\n" for row in self.rows)
        above = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        inside = f"{above}<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}</tbody>"
        return Markup(f'<div class="wide" style="--rows:{len(self.rows)}"><table>{inside}</table></div>\n')

    def filled(self) -> Table:
        """The table without the columns that are empty in every row."""
        kept = [at for at in range(len(self.columns)) if any(row[at].content not in (None, "") for row in self.rows)]
        rows = [[row[at] for at in kept] for row in self.rows]
        return Table([self.columns[at] for at in kept], rows, self.caption)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: columns, and rows of what cells sort by."""
        columns = [{"title": column.title, "unit": column.unit} for column in self.columns]
        return {"columns": columns, "rows": [[plain(cell.key) for cell in row] for row in self.rows]}

    def _is_right(self, at: int) -> bool:
        if (right := self.columns[at].right) is not None:
            return right
        keys = [row[at].key for row in self.rows if row[at].content not in (None, "")]
        return bool(keys) and all(isinstance(key, int | float) and not isinstance(key, bool) for key in keys)

    def _class(self, at: int) -> str:
        """Numbers and short texts stay on one line; where long ones break, their column keeps a width to read in."""
        if self._is_right(at):
            return "n"
        texts = [str(row[at].content) for row in self.rows]
        return "short" if all(len(text) <= SHORT and "\n" not in text for text in texts) else "long"


def facts_text(pairs: Iterable[tuple[str, Value]]) -> str:
    """Names with their values, one a line."""
    return Table((Column("", right=False), Column("", right=False)), pairs).text(head=False)


def escape(text: object) -> Markup:
    """Text as HTML, also inside attributes; invisible and direction-changing characters are shown as \\u escapes."""
    return text if isinstance(text, Markup) else Markup(html.escape(visible(str(text)), quote=True))


def visible(text: str) -> str:
    """The text with invisible and direction-changing characters as \\u escapes."""
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def number(value: float) -> str:
    """A number as tables show it: whole numbers and large ones with commas, others with four digits."""
    if isinstance(value, int) or (math.isfinite(value) and 1000 <= abs(value) < 1e15):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def short(text: str, length: int) -> str:
    """The text, cut in its middle if it is longer."""
    return text if len(text) <= length else f"{text[: length // 2 - 1]}…{text[len(text) - (length - length // 2) :]}"


def few(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size_text(nbytes: int) -> str:
    """A number of bytes for people: MB from a tenth of one on."""
    return f"{nbytes / 1e6:.2f} MB" if nbytes >= 100_000 else f"{nbytes:,} bytes"


def percent(part: float | None, digits: int = 0) -> str:
    """A part as percent; "" for None."""
    return "" if part is None else f"{100 * part:.{digits}f} %"


def microseconds(seconds: float | None) -> str:
    """A time in microseconds; "" where there is none, or no finite one."""
    return f"{1e6 * seconds:.1f} us" if seconds is not None and math.isfinite(seconds) else ""


def percent_cell(part: float | None, digits: int = 1, bar: bool = False) -> Cell | None:
    """A part as percent that sorts by itself, with a bar behind it if asked for; None for None."""
    return None if part is None else Cell(percent(part, digits), part, part if bar else None)


def knobs_text(config: Mapping[str, Any]) -> str:
    """A configuration in a line: knob=value."""
    return " ".join(f"{knob}={value}" for knob, value in config.items())


def plain(value: Any, *properties: str) -> Any:
    """Plain values for JSON: dataclasses and mappings as dicts, sequences as lists, NaN and infinities as text.

    Args:
        value: to convert.
        properties: names of properties of the dataclass to add to its fields.
    """
    if isinstance(value, Plain) and not properties:
        return value.as_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain_fields(value, *properties)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | Iterator):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plain_fields(value: Any, *properties: str) -> dict[str, Any]:
    """The fields of a dataclass, and properties of it, as :func:`plain` values by name."""
    return plain_named(value, *(field.name for field in dataclasses.fields(value)), *properties)


def plain_named(value: Any, *names: str) -> dict[str, Any]:
    """Attributes of an object of these names, as :func:`plain` values."""
    return {name: plain(getattr(value, name)) for name in names}


class Plain:
    """A dataclass that becomes plain values for JSON; of one in another one they are its own.

    Attributes:
        derived: names of properties that stand beside its fields there.
    """

    derived: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain_fields(self, *self.derived)


def _cell(value: Value) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    check_tone(cell.tone)
    return cell


def check_tone(tone: str) -> None:
    """Raises OptionError for a tone that is none."""
    check_choice("tone", tone, TONES)


def _shown(value: str | int | float | bool | None, form: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format(value, form) if form else number(value)
    return "" if value is None else str(value)


def _text(cell: Cell, column: Column, most: int = 0) -> str:
    content = visible(" ".join(_shown(cell.content, column.form).split()))
    return short(content, most) if most else content


def _bar(share: float | None, letters: int) -> str:
    """A bar of text, of one letter at least where there is something."""
    return "" if share is None else "#" * min(max(round(letters * share), 1 if share > 0 else 0), letters)


def _html(cell: Cell, column: Column, name: str) -> str:
    """A cell; `name` is the class of its column."""
    attributes, inside = f' class="{name}"', content_html(cell, column.form)
    if isinstance(cell.key, int | float) and not isinstance(cell.key, bool):
        attributes += f' data-v="{float(cell.key)!r}"'
    elif cell.value is not None:
        attributes += f' data-v="{escape(cell.value)}"'
    if cell.share is not None:
        attributes += f' style="--share:{100 * min(max(cell.share, 0.0), 1.0):.1f}%"'
    if cell.title:
        attributes += f' title="{escape(cell.title)}"'
    return f"<td{attributes}>{inside}</td>"


def content_html(value: Value, form: str = "") -> Markup:
    """What stands in a cell, in the colour of its tone."""
    cell = _cell(value)
    content = cell.content if isinstance(cell.content, Markup) else escape(_shown(cell.content, form))
    return Markup(f'<span class="{cell.tone}">{content}</span>') if cell.tone else content
