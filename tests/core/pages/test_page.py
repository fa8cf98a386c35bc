"""Pages and their parts: escaping, text, what is missing, a policy that lets nothing run."""

import base64
import hashlib
import re
import sys
from html.parser import HTMLParser

import pytest

from tvm_ext.core.errors import OptionError, ToolError
from tvm_ext.core.pages import page
from tvm_ext.core.pages.page import Code, Facts, Figure, Fold, Note, Page, Part, Shown, fragment
from tvm_ext.runtime.table import Cell, Markup, Table

HOSTILE = (
    "<script>alert(1)</script>", '" onmouseover="alert(1)', "'><img src=x>", "a\nb", "\u202egnirts", "\x00\x1b[31m",
    "&amp;", "\ud800",
)  # fmt: skip
SVG = Markup('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>')


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


def page_of(*parts: Part) -> str:
    return Page("a page").section("first", *parts).html()


@pytest.mark.parametrize("text", HOSTILE)
def test_names_of_models_are_text_wherever_they_stand(text: str) -> None:
    parts = [
        Table([text], [[text], [Cell(text, value=text, title=text)]], caption=text), Code(text, text), Note(text),
        Facts([(text, text)]), Fold(text, [Code(text)]), Figure(lambda: SVG, text),
    ]  # fmt: skip
    for html in (Page(text).section(text, text, *parts).html(), fragment(text, *parts)):
        reader = _Reader(html)
        assert not reader.open
        assert reader.elements.count("script") <= 1 and "img" not in reader.elements
        assert not [name for name, _ in reader.attributes if name.startswith("on")]
        assert html.encode() and not re.search("[\x00-\x08\x0b-\x1f\u202e]", html)


def test_nothing_but_the_own_script_may_run_and_nothing_be_loaded() -> None:
    html = page_of(Note("x"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    script = re.search(r"<script>(.*)</script>", html, re.DOTALL)
    assert policy and script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'") and "http" not in policy[1]
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", html)


def test_lines_of_a_diff_are_coloured() -> None:
    html = page_of(Code("--- a\n+++ b\n@@ -1 +1 @@\n-x < 1\n+x > 1\n same", "diff"))
    assert '<span class="removed">-x &lt; 1</span>\n<span class="added">+x &gt; 1</span>\n same</code>' in html
    assert html.count('class="dim"') == 3


def test_a_tone_is_one_of_a_few() -> None:
    with pytest.raises(OptionError, match="choose one of"):
        Note("x", "loud")


def test_sections_fold_and_are_linked() -> None:
    html = Page("p").section("one", Note("1")).section("two", Note("2"), folded=True).html()
    assert '<a href="#s0">one</a>' in html and '<a href="#s1">two</a>' in html
    assert 'id="s0" open>' in html and 'id="s1">' in html


def test_a_fragment_has_no_script() -> None:
    reader = _Reader(fragment(Table(["a"], [[1]])))
    assert "script" not in reader.elements and "style" in reader.elements


class _Result(Shown):
    def parts(self) -> list[Part]:
        def drawn() -> Markup:
            raise AssertionError("text draws nothing")

        table = Table(["name", "count"], [["a|b", 3]], "what there is")
        return [
            Note("head"),
            Facts([("one", 1), ("other", "x")]),
            Figure(drawn),
            table,
            Code("run", "sh"),
            Fold("f", []),
        ]


def test_a_result_is_text_and_markdown_of_the_same_parts() -> None:
    assert str(_Result()).splitlines() == [
        "head", "one    1", "other  x", "what there is:", "name  count", "a|b       3", "run"
    ]  # fmt: skip
    text = _Result().markdown()
    assert "- one: 1\n- other: x\n" in text and "| a/b | 3 |" in text and "| --- | ---: |" in text
    assert text.endswith("```sh\nrun\n```\n")


def test_without_jinja2_a_page_says_what_to_install_and_a_notebook_shows_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    page._template.cache_clear()
    with pytest.raises(ToolError, match="a page needs jinja2") as raised:
        page_of(Note("x"))
    assert "tvm-ext[pages]" in raised.value.fix
    assert _Result()._repr_html_() is None and str(_Result())
