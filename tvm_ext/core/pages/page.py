"""Results as parts - notes, facts, tables, code, figures - and these as text, as Markdown, in notebooks, and as a page.

A page is one self-contained file: sections that fold, search, columns that sort; it prints, and asks no network. Jinja2
(extra `pages`) makes it, and what notebooks show; text and Markdown need nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ...runtime.table import Markup, Plain, Table, Value, check_tone, content_html, facts_text, visible
from ..errors import ToolError
from ..extras import extra

CODE_ROWS = 28  # of a block of code that are seen at once
_DIFF = {"+": "added", "-": "removed"}


@dataclass(frozen=True)
class Note:
    """A paragraph; tone "good", "bad" or "warn" marks it on a page."""

    text: str
    tone: str = ""

    def __post_init__(self) -> None:
        check_tone(self.tone)


@dataclass(frozen=True)
class Facts:
    """(name, value) pairs, one a line."""

    pairs: Sequence[tuple[str, Value]]


@dataclass(frozen=True)
class Code:
    """A block of source text; a page colours the lines of language "diff"."""

    text: str
    language: str = ""

    @property
    def rows(self) -> int:
        """Lines that are seen at once."""
        return min(self.text.count("\n") + 1, CODE_ROWS)

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(tone, line)."""
        diff = self.language == "diff"
        return [(_tone(line) if diff else "", line) for line in self.text.split("\n")]


def _tone(line: str) -> str:
    return "dim" if line.startswith(("@@", "+++ ", "--- ")) else _DIFF.get(line[:1], "")


@dataclass(frozen=True)
class Figure:
    """A drawing on pages, which is drawn when one is made.

    Attributes:
        svg: draws it, as :mod:`.charts` does.
        caption: a line below it.
    """

    svg: Callable[[], Markup]
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """Parts below a title that a click shows and hides; on pages only.

    Attributes:
        title: always seen.
        parts: below it.
        opened: whether they are seen at first.
    """

    title: str
    parts: Sequence[Any]
    opened: bool = False


Part = Note | Facts | Code | Figure | Fold | Table


class Shown(Plain):
    """A result that shows itself: as text, as Markdown, in notebooks, and as plain values."""

    def parts(self) -> list[Part]:
        """What there is to show, in order."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(filter(None, map(text_of, self.parts())))

    def markdown(self) -> str:
        """The result in GitHub's Markdown."""
        return "\n\n".join(filter(None, map(markdown_of, self.parts()))) + "\n"

    def _repr_html_(self) -> str | None:
        """What a notebook shows; None, for the text, where Jinja2 or matplotlib is not installed."""
        try:
            return fragment(*self.parts())
        except ToolError:
            return None


def text_of(part: Part) -> str:
    """A part for a terminal; "" for what is on pages only."""
    if isinstance(part, Table):
        return "\n".join(filter(None, [f"{part.caption}:" if part.caption else "", part.text()]))
    if isinstance(part, Facts):
        return facts_text(part.pairs)
    return part.text if isinstance(part, Note | Code) else ""


def markdown_of(part: Part) -> str:
    """A part in Markdown; "" for what is on pages only."""
    if isinstance(part, Table):
        return "\n\n".join(filter(None, [f"{part.caption}:" if part.caption else "", part.markdown()]))
    if isinstance(part, Code):
        return f"```{part.language}\n{part.text}\n```"
    return "\n".join(f"- {name}: {value}" for name, value in part.pairs) if isinstance(part, Facts) else text_of(part)


class Page:
    """A page that grows by sections.

    Args:
        title: of the page.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.sections: list[Fold] = []

    def section(self, title: str, *parts: Part | str, folded: bool = False) -> Page:
        """Add a section.

        Args:
            title: of the section; also its link beside the page.
            *parts: of it; a string is escaped.
            folded: show only the title at first.

        Returns:
            The page.
        """
        self.sections.append(Fold(title, parts, not folded))
        return self

    def html(self) -> str:
        """The page, as the text of one file. Its policy lets nothing run but its own script, and nothing be loaded.

        Raises:
            ToolError: Jinja2 is not installed.
        """
        digest = base64.b64encode(hashlib.sha256(asset("page.js").encode()).digest()).decode()
        return _rendered(page=self, digest=digest, script=Markup(asset("page.js")))


def fragment(*parts: Part | str) -> str:
    """Parts with their style, for `_repr_html_`: a notebook shows them; nothing in it needs a script.

    Raises:
        ToolError: Jinja2 is not installed.
    """
    return _rendered(page=None, parts=parts)


def _rendered(**values: Any) -> str:
    return _template().render(style=Markup(asset("page.css")), **values)


@functools.cache
def _template() -> Any:
    jinja2 = extra("jinja2", "pages", "a page")
    environment = jinja2.Environment(autoescape=True, finalize=_visible, undefined=jinja2.StrictUndefined)
    environment.globals.update(kind_of=lambda part: type(part).__name__.lower(), content=content_html)
    return environment.from_string(asset("page.html"))


def _visible(value: Any) -> Any:
    """What is put in a page: text that is no markup, without characters that nobody sees."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else visible(value)


@functools.cache
def asset(name: str) -> str:
    """Text of a file of `assets/`."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
