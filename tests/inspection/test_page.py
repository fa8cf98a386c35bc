"""Pages and their parts: escaping, columns of numbers, figures that may be shown, a policy that lets nothing run."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.inspection.page import Cell, Markup, Page, code, escape, facts, figure, fold, fragment, note, number, table

HOSTILE = (
    "<script>alert(1)</script>", '" onmouseover="alert(1)', "'><img src=x>", "a\nb", "\u202egnirts", "\x00\x1b[31m",
    "&amp;", "\ud800",
)  # fmt: skip
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'


class _Reader(HTMLParser):
    """Elements, attributes and text of a page; void elements are not open."""

    VOID = ("meta", "link", "input", "rect", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        self.open += [] if tag in self.VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(*parts: Markup) -> str:
    return Page("a page").section("first", *parts).html()


@pytest.mark.parametrize("text", HOSTILE)
def test_names_of_models_are_text_wherever_they_stand(text: str) -> None:
    parts = [
        table([text], [[text], [Cell(text, value=text, title=text)]], caption=text), code(text, text), note(text),
        facts({text: text}), fold(text, code(text)), figure(SVG, text),
    ]  # fmt: skip
    for html in (Page(text).section(text, text, *parts).html(), fragment(text, *parts)):
        reader = _Reader(html)
        assert not reader.open
        assert reader.elements.count("script") <= 1 and "img" not in reader.elements
        assert not [name for name, _ in reader.attributes if name.startswith("on")]
        assert html.encode() and not re.search("[\x00-\x08\x0b-\x1f\u202e]", html)


def test_what_is_invisible_is_shown() -> None:
    assert escape("a\u202eb\x00\u200b") == "a\\u202eb\\u0000\\u200b"
    assert escape("é 漢 א") == "é 漢 א"
    assert escape(Markup("<b>")) == "<b>"


def test_nothing_but_the_own_script_may_run_and_nothing_be_loaded() -> None:
    html = page_of(note("x"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    script = re.search(r"<script>(.*)</script>", html, re.DOTALL)
    assert policy and script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'") and "http" not in policy[1]
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", html)


def test_columns_of_numbers_are_found_and_marked() -> None:
    rows = [["a", 1, 2.5, None, True], ["b", 20000, Cell("3 %", 0.03), 4, False]]
    html = table(["name", "count", "share", "some", "flag"], rows)
    assert re.findall(r'<th scope="col" class="(\w+)"', html) == ["short", "n", "n", "n", "short"]
    assert '<td class="n" data-v="20000.0">20,000</td>' in html
    assert '<td class="n" data-v="0.03">3 %</td>' in html
    assert '<td class="n"></td>' in html
    assert ">yes<" in html
    assert re.findall(r'class="(\w+)"', table(["x", "y"], [["1", "2"]], numeric=["y"]))[:3] == ["wide", "short", "n"]


def test_long_texts_may_break_and_bars_have_a_length() -> None:
    html = table(["x", "y"], [["word " * 20, Cell(3, share=1.7)]])
    assert 'class="long"' in html and "--share:100.0%" in html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234567, "1,234,567"), (1234.56, "1,235"), (0.000123456, "0.0001235"), (12.0, "12"),
        (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_lines_of_a_diff_are_coloured() -> None:
    html = code("--- a\n+++ b\n@@ -1 +1 @@\n-x < 1\n+x > 1\n same", "diff")
    assert '<span class="removed">-x &lt; 1</span>\n<span class="added">+x &gt; 1</span>\n same' in html
    assert html.count('class="dim"') == 3


@pytest.mark.parametrize(
    ("svg", "reason"),
    [
        ("<div/>", "is no SVG"), ("<svg><rect></svg>", "is no SVG"),
        (SVG.replace("<rect", "<script>1</script><rect"), "active <script>"),
        (SVG.replace("<rect", '<rect onload="f()"'), "active <rect>"),
        (SVG.replace("<rect", '<image href="https://example.com/x.png"/><rect'), "active <image>"),
    ],
)  # fmt: skip
def test_figures_that_could_do_something_are_refused(svg: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        figure(svg, "caption")


def test_a_figure_loses_what_stands_before_it() -> None:
    assert figure('<?xml version="1.0"?>\n<!DOCTYPE svg>\n' + SVG, "c").startswith("<figure><svg")


def test_wrong_tables_are_errors() -> None:
    with pytest.raises(OptionError, match="2 cells in a table of 1"):
        table(["a"], [[1, 2]])
    with pytest.raises(OptionError, match="columns a, b"):
        table(["a", "b"], [], numeric=["c"])
    with pytest.raises(OptionError, match="choose one of"):
        note("x", "loud")
    with pytest.raises(OptionError, match="choose one of"):
        table(["a"], [[Cell("x", tone="loud")]])


def test_sections_fold_and_are_linked() -> None:
    html = Page("p").section("one", note("1")).section("two", note("2"), folded=True).html()
    assert '<a href="#s0">one</a>' in html and '<a href="#s1">two</a>' in html
    assert 'id="s0" open>' in html and 'id="s1">' in html


def test_a_fragment_has_no_script() -> None:
    reader = _Reader(fragment(table(["a"], [[1]])))
    assert "script" not in reader.elements and "style" in reader.elements
