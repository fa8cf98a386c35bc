"""One self-contained HTML page: sections that fold, search, columns that sort; it prints, and asks no network."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from .markup import Cell as Cell
from .markup import Markup as Markup
from .markup import Value as Value
from .markup import code as code
from .markup import escape as escape
from .markup import facts as facts
from .markup import figure as figure
from .markup import fold as fold
from .markup import note as note
from .markup import number as number
from .markup import table as table

_SHELL = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body class="tvm-ext page">
<header>
<h1>{title}</h1>
<div class="tools" hidden>
<span id="count" role="status" aria-live="polite"></span>
<input id="search" type="search" placeholder="Search rows and sections  ( / )" aria-label="Search" autocomplete="off"
 spellcheck="false">
<button type="button" id="fold-all">Fold all</button>
</div>
</header>
<nav aria-label="Sections">
{links}</nav>
<main>
{sections}<p id="nothing" hidden>Nothing on this page matches.</p>
</main>
<script>{script}</script>
</body>
</html>
"""


class Page:
    """A page that grows by sections.

    Args:
        title: of the page.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._sections: list[tuple[str, Markup, bool]] = []

    def section(self, title: str, *parts: str, folded: bool = False) -> Page:
        """Add a section.

        Args:
            title: of the section; also its link beside the page.
            *parts: what :func:`table`, :func:`code`, :func:`figure`, :func:`note`, :func:`facts` and :func:`fold`
                return; any other string is escaped.
            folded: show only the title at first.

        Returns:
            The page.
        """
        self._sections.append((title, Markup("".join(escape(part) for part in parts)), folded))
        return self

    def html(self) -> str:
        """The page, as the text of one file. Its policy lets nothing run but its own script, and nothing be loaded."""
        script = asset("page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return _SHELL.format(
            policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
            title=escape(self.title), style=asset("page.css"), script=script,
            links="".join(f'<a href="#s{at}">{escape(title)}</a>\n' for at, (title, _, _) in enumerate(self._sections)),
            sections="".join(_section(at, *one) for at, one in enumerate(self._sections)),
        )  # fmt: skip


def _section(at: int, title: str, inside: Markup, folded: bool) -> str:
    state = "" if folded else " open"
    return (
        f'<details class="section" id="s{at}"{state}><summary><h2>{escape(title)}</h2></summary>\n{inside}</details>\n'
    )


def fragment(*parts: str) -> str:
    """Parts with their style, for `_repr_html_`: a notebook shows them; nothing in it needs a script."""
    inside = "".join(escape(part) for part in parts)
    return f'<div class="tvm-ext fragment"><style>\n{asset("page.css")}</style>\n{inside}</div>'


@functools.cache
def asset(name: str) -> str:
    """Text of a file of `assets/`."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
