"""Parts of a page as HTML: tables, code, figures, notes, facts. All that is not `Markup` already is escaped."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from ..core.errors import OptionError


class Markup(str):
    """HTML that was made by the functions here; every other string is text and is escaped."""

    __slots__ = ()


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


Value = str | int | float | bool | None | Cell
"""What a table or a list of facts shows; None is an empty cell, and a `Markup` is taken as it is."""

SHORT = 28  # letters of a cell that is never broken
CODE_ROWS = 28  # of a block of code that are seen at once
TONES = ("", "good", "bad", "warn", "dim")

# Controls draw nothing, or change the direction of what follows: names of a model may not do that to a page.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def escape(text: object) -> Markup:
    """Text as HTML, also inside attributes; invisible and direction-changing characters are shown as \\u escapes."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(_INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text)), quote=True))


def number(value: float) -> str:
    """A number as tables show it: whole numbers and large ones with commas, others with four digits."""
    if isinstance(value, int) or (math.isfinite(value) and 1000 <= abs(value) < 1e15):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Value]],
    numeric: Iterable[str | int] | None = None,
    caption: str = "",
) -> Markup:
    """A table whose columns sort by a click on their titles.

    Args:
        titles: of the columns.
        rows: as many cells each as there are titles.
        numeric: columns of numbers, by title or position: right-aligned, monospaced, largest first. None finds the
            columns that hold nothing but numbers.
        caption: a line above it.

    Raises:
        OptionError: a row of another length, or no such column.
    """
    body = [list(row) for row in rows]
    for row in body:
        if len(row) != len(titles):
            raise OptionError(f"a row of {len(row)} cells in a table of {len(titles)} columns: {row!r:.200}")
    numbers = _numeric(titles, body) if numeric is None else {_position(titles, one) for one in numeric}
    classes = [_class(at in numbers, [row[at] for row in body]) for at in range(len(titles))]
    head = "".join(
        f'<th scope="col"{name}><span>{escape(title)}</span></th>' for title, name in zip(titles, classes, strict=True)
    )
    lines = "".join("<tr>" + "".join(_cell(*one) for one in zip(row, classes, strict=True)) + "</tr>\n" for row in body)
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{above}<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}</tbody>"
    return Markup(f'<div class="wide" style="--rows:{len(body)}"><table>{inside}</table></div>\n')


def _position(titles: Sequence[str], column: str | int) -> int:
    if isinstance(column, str) and column in titles:
        return list(titles).index(column)
    if isinstance(column, int) and -len(titles) <= column < len(titles):
        return column % len(titles)
    raise OptionError(f"numeric={column!r}: the table has the columns {', '.join(titles)}")


def _numeric(titles: Sequence[str], rows: Sequence[Sequence[Value]]) -> set[int]:
    """Columns that hold numbers, and nothing else but empty cells."""
    found = set()
    for at in range(len(titles)):
        values = [_key(row[at]) for row in rows if row[at] is not None]
        if values and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
            found.add(at)
    return found


def _class(is_number: bool, cells: Sequence[Value]) -> str:
    """Numbers and short texts stay on one line; where long ones break, their column keeps a width to read in."""
    if is_number:
        return ' class="n"'
    texts = [str(cell.content if isinstance(cell, Cell) else cell) for cell in cells]
    is_short = all(len(text) <= SHORT and "\n" not in text for text in texts)
    return ' class="short"' if is_short else ' class="long"'


def _key(value: Value) -> str | int | float | bool | None:
    """What a cell sorts by."""
    if isinstance(value, Cell):
        return value.content if value.value is None else value.value
    return value


def _cell(value: Value, attributes: str) -> str:
    cell = value if isinstance(value, Cell) else Cell(value)
    if cell.tone not in TONES:
        raise OptionError(f"tone={cell.tone!r}: choose one of {', '.join(map(repr, TONES))}")
    content = "" if cell.content is None else _text(cell.content)
    key = _key(cell)
    if isinstance(key, int | float) and not isinstance(key, bool):
        attributes += f' data-v="{float(key)!r}"'
    elif cell.value is not None:
        attributes += f' data-v="{escape(cell.value)}"'
    if cell.share is not None:
        attributes += f' style="--share:{100 * min(max(cell.share, 0.0), 1.0):.1f}%"'
    if cell.title:
        attributes += f' title="{escape(cell.title)}"'
    if cell.tone:
        content = f'<span class="{cell.tone}">{content}</span>'
    return f"<td{attributes}>{content}</td>"


def _text(value: str | int | float | bool) -> Markup:
    if isinstance(value, bool):
        return Markup("yes" if value else "no")
    return escape(value if isinstance(value, str) else number(value))


def code(text: str, language: str = "") -> Markup:
    """A block of source text; language "diff" colours its lines."""
    body = escape(text)
    if language == "diff":
        body = Markup("\n".join(_diff_line(line) for line in body.split("\n")))
    rows = min(text.count("\n") + 1, CODE_ROWS)
    attributes = f'class="code" style="--rows:{rows}" tabindex="0" data-language="{escape(language)}"'
    return Markup(f"<pre {attributes}><code>{body}</code></pre>\n")


def _diff_line(line: str) -> str:
    if line.startswith("@@") or line.startswith(("+++ ", "--- ")):
        return f'<span class="dim">{line}</span>'
    kind = {"+": "added", "-": "removed"}.get(line[:1])
    return f'<span class="{kind}">{line}</span>' if kind else line


def figure(svg: str, caption: str = "") -> Markup:
    """A drawing. `currentColor` and the CSS colours `--s1` to `--s6` (series), `--grid`, `--dim` follow the scheme.

    Args:
        svg: an SVG document, as an own function or matplotlib wrote it.
        caption: a line below it.

    Raises:
        OptionError: it is no SVG, or it has scripts, event handlers, or links that lead out of the page.
    """
    start = svg.find("<svg")
    try:
        root = ElementTree.fromstring(svg[start:] if start >= 0 else svg)
    except ElementTree.ParseError as error:
        raise OptionError(f"the figure {caption!r} is no SVG: {error}") from error
    if str(root.tag).rpartition("}")[2] != "svg":
        raise OptionError(f"the figure {caption!r} is no SVG: it is a <{root.tag}>")
    for element in root.iter():
        kind = str(element.tag).rpartition("}")[2].lower()
        names = {name.rpartition("}")[2].lower(): value for name, value in element.attrib.items()}
        out = [
            value
            for name, value in names.items()
            if name in ("href", "src") and not value.startswith(("#", "data:image/"))
        ]
        if kind in ("script", "foreignobject", "iframe") or out or any(name.startswith("on") for name in names):
            raise OptionError(f"the figure {caption!r} has an active <{kind}>: {(out or [''])[0]!r:.80}")
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return Markup(f"<figure>{svg[start:]}{below}</figure>\n")


def note(text: str, tone: str = "") -> Markup:
    """A paragraph; tone "good", "bad" or "warn" marks it."""
    if tone not in TONES:
        raise OptionError(f"tone={tone!r}: choose one of {', '.join(map(repr, TONES))}")
    return Markup(f'<p class="note {tone}">{escape(text)}</p>\n')


def facts(pairs: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> Markup:
    """Names with their values, one a line."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    lines = "".join(f"<div><dt>{escape(name)}</dt>{_fact(value)}</div>\n" for name, value in items)
    return Markup(f'<dl class="facts">\n{lines}</dl>\n')


def _fact(value: Value) -> str:
    return _cell(value, "").replace("<td", "<dd", 1).removesuffix("</td>") + "</dd>"


def fold(title: str, *parts: str, opened: bool = False) -> Markup:
    """Parts below a title that a click shows and hides."""
    inside = "".join(escape(part) for part in parts)
    state = " open" if opened else ""
    return Markup(f'<details class="fold"{state}><summary>{escape(title)}</summary>\n{inside}</details>\n')
