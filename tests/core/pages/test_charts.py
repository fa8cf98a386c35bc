"""Charts: what SVG of matplotlib says, that names cannot break it, and what is missing without matplotlib."""

import sys
from xml.etree import ElementTree

import pytest

from tvm_ext.core.errors import ToolError
from tvm_ext.core.pages.charts import COLOURS, INK, Box, Roof, RooflinePoint, boxes_chart, ranges, roofline_chart

SVG = "{http://www.w3.org/2000/svg}"
UNITS = ("operations a byte", "operations a second")
ROOFS = [Roof("memory", 10.0, 100.0), Roof("L2", 50.0, 100.0, dashed=True)]


def dots(count: int, name: str = "conv") -> list[RooflinePoint]:
    return [
        RooflinePoint(n, f"{name} {n}", f"title of {name} {n}", n, 9.0 * n, 10.0 * n, "memory", 1 / count)
        for n in range(1, count + 1)
    ]


def titles(root: ElementTree.Element) -> list[str]:
    return [str(element.text) for element in root.iter(f"{SVG}title")]


def test_a_roofline_has_a_titled_dot_a_point_and_a_titled_line_a_roof() -> None:
    text = roofline_chart("a model", "on a machine", dots(5), ROOFS, UNITS, ["no place: copy"]).svg()
    root = ElementTree.fromstring(text)
    assert [title for title in titles(root) if title.startswith("title of")] == [
        f"title of conv {n}" for n in range(1, 6)
    ]
    assert sum("up to 100" in title for title in titles(root)) == 2
    drawn = "".join(root.itertext())
    for part in ("a model", "on a machine", *UNITS, "no place: copy", "memory", "L2", "conv 5", "90%"):
        assert part in drawn
    assert COLOURS["memory"] in text and COLOURS["compute"] in text


def test_ink_follows_the_page_and_nothing_of_it_changes() -> None:
    text = roofline_chart("m", "", dots(2), ROOFS, UNITS).svg()
    assert INK not in text and "currentColor" in text and "*{" not in text
    assert text == roofline_chart("m", "", dots(2), ROOFS, UNITS).svg()


@pytest.mark.parametrize("name", ["</svg><script>", "$x_1$ $", "\u202e\x00漢", '" onload="f()'])
def test_names_of_a_model_cannot_break_a_chart(name: str) -> None:
    root = ElementTree.fromstring(roofline_chart(name, name, dots(2, name), ROOFS, UNITS).svg())
    assert not [element for element in root.iter() if element.tag.endswith("script") or "onload" in element.attrib]
    assert len([title for title in titles(root) if title.startswith("title of")]) == 2
    boxes_chart([Box("workspace", name, 0, 1, 0, 10)], 2, UNITS).svg()


def test_equal_places_share_a_number_and_many_names_are_counted() -> None:
    equal = [RooflinePoint(n, "same", "", 2.0, 3.0, 6.0, "compute") for n in (1, 2, 3)]
    root = ElementTree.fromstring(roofline_chart("m", "", equal, ROOFS, UNITS).svg())
    assert "1-3" in [str(element.text) for element in root.iter(f"{SVG}text")]
    assert "and 24 more" in roofline_chart("m", "", dots(60), ROOFS, UNITS).svg()
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7-8" and ranges([4]) == "4"


def test_boxes_and_png() -> None:
    chart = boxes_chart([Box("activation", "a", 0, 1, 0, 10), Box("workspace", "b", 1, 2, 10, 20)], 3, UNITS)
    assert titles(ElementTree.fromstring(chart.svg())) == ["a", "b"]
    assert chart.png().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ToolError, match="needs matplotlib") as raised:
        roofline_chart("m", "", dots(1), ROOFS, UNITS)
    assert "tvm-ext[plots]" in raised.value.fix
