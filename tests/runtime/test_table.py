"""Tables: text, Markdown, HTML and plain values of one description; escaping, alignment, what is refused."""

import json
import math
import re
from dataclasses import dataclass

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.runtime.table import Cell, Column, Markup, Table, escape, few, number, plain, short

ROWS = [["a", 1, 2.5, None, True], ["b", 20000, Cell("3 %", 0.03), 4, False]]
TABLE = Table(["name", Column("size", "kB"), "share", "some", "flag"], ROWS)


def test_text_aligns_numbers_to_the_right() -> None:
    assert TABLE.text().splitlines() == [
        "name  size kB  share  some  flag",
        "a           1    2.5        yes",
        "b      20,000    3 %     4  no",
    ]
    assert TABLE.text(head=False).splitlines()[0].startswith("a")


def test_columns_of_numbers_are_found_and_marked() -> None:
    html = TABLE.html()
    assert re.findall(r'<th scope="col" class="(\w+)"', html) == ["short", "n", "n", "n", "short"]
    assert '<td class="n" data-v="20000.0">20,000</td>' in html
    assert '<td class="n" data-v="0.03">3 %</td>' in html
    assert '<td class="n"></td>' in html and ">yes<" in html
    forced = Table(["x", Column("y", right=True)], [["1", "2"]]).html()
    assert re.findall(r'class="(\w+)"', forced)[:3] == ["wide", "short", "n"]


def test_markdown_and_plain_values() -> None:
    assert TABLE.markdown().splitlines()[:2] == [
        "| name | size kB | share | some | flag |", "| --- | ---: | ---: | ---: | --- |"
    ]  # fmt: skip
    values = json.loads(json.dumps(TABLE.as_dict()))
    assert values["columns"][1] == {"title": "size", "unit": "kB"} and values["rows"][1] == ["b", 20000, 0.03, 4, False]


def test_columns_have_forms_lengths_bars_and_a_place() -> None:
    columns = (Column("x", form=".2f"), Column("y", most=8), Column("z", bar=4), Column("w", page=True))
    table = Table(columns, [[1.0, "abcdefghijkl", Cell("50 %", 0.5, share=0.5), "wide"]])
    assert table.text().splitlines()[1].split() == ["1.00", "abc…ijkl", "50", "%", "##"]
    assert Table(("shape",), [[[1, 3]]]).text() == "shape\n[1, 3]"  # type: ignore[list-item]
    assert "wide" not in table.text() + table.markdown() and "wide" in table.html()
    assert Table(("a", "b", "c"), [[1, None, ""]]).filled().columns == (Column("a"),)


def test_long_texts_may_break_and_bars_have_a_length() -> None:
    html = Table(["x", "y"], [["word " * 20, Cell(3, share=1.7)]]).html()
    assert 'class="long"' in html and "--share:100.0%" in html


def test_what_is_invisible_is_shown() -> None:
    assert escape("a\u202eb\x00\u200b") == "a\\u202eb\\u0000\\u200b"
    assert escape("é 漢 א") == "é 漢 א"
    assert escape(Markup("<b>")) == "<b>"
    assert "\x1b" not in Table(["a"], [["\x1b[31m"]]).text()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234567, "1,234,567"), (1234.56, "1,235"), (0.000123456, "0.0001235"), (12.0, "12"),
        (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_wrong_tables_are_errors() -> None:
    with pytest.raises(OptionError, match="2 cells in a table of 1"):
        Table(["a"], [[1, 2]])
    with pytest.raises(OptionError, match="choose one of"):
        Table(["a"], [[Cell("x", tone="loud")]])


@dataclass(frozen=True)
class _Row:
    name: str
    sizes: tuple[int, ...]
    worst: float
    inner: dict[int, float]

    @property
    def ok(self) -> bool:
        return True


def test_plain_values_are_json() -> None:
    values = plain(_Row("a", (1, 2), math.inf, {1: 0.5}), "ok")
    assert json.loads(json.dumps(values, allow_nan=False)) == {
        "name": "a", "sizes": [1, 2], "worst": "inf", "inner": {"1": 0.5}, "ok": True
    }  # fmt: skip


def test_names_are_cut_where_there_are_many() -> None:
    assert few(["a", "b", "c", "d"]) == "a, b, c and 1 more" and few(["a"]) == "a"
    assert short("abcdef", 6) == "abcdef" and len(short("abcdefgh", 6)) == 6
