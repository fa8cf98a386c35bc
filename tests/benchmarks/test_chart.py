"""The bar chart is well-formed SVG, and its bars are as long as their values."""

from xml.etree import ElementTree

import pytest

from benchmarks.pages.chart import LABEL, RIGHT, WIDTH, Bar, chart

SVG = "{http://www.w3.org/2000/svg}"
BARS = [
    Bar("a < b & c", 0.5, 0.65),
    Bar("missed", 0.9, 0.85, peers={"openvino": 0.75}),
    Bar("none", None, 0.8, "not available: no network"),
    Bar("far off", 5.0, 1.0),
]


@pytest.fixture(scope="module")
def tree():
    return ElementTree.fromstring(chart("Time <", "some CPU", BARS))


def of_kind(tree, tag, kind):
    return [e for e in tree.iter(SVG + tag) if e.get("class") == kind]


def test_bars_are_as_long_as_their_values(tree):
    met, missed = of_kind(tree, "rect", "met")[:-1], of_kind(tree, "rect", "missed")[:-1]  # the last is the legend's
    assert len(met) == 1 and len(missed) == 2
    unit = (WIDTH - LABEL - RIGHT) / 2.0  # a bar of 5 lets the axis end at 2
    assert float(met[0].get("width")) == pytest.approx(0.5 * unit, abs=0.1)
    assert [float(e.get("width")) for e in missed] == pytest.approx([0.9 * unit, 2.0 * unit], abs=0.1)


def test_goals_and_peers_stand_where_they_belong(tree):
    unit = (WIDTH - LABEL - RIGHT) / 2.0
    goals = [float(e.get("x1")) - LABEL for e in of_kind(tree, "line", "goal")[:-1]]
    assert goals == pytest.approx([0.65 * unit, 0.85 * unit, unit], abs=0.1)
    peer, legend = of_kind(tree, "circle", "peer")
    assert float(peer.get("cx")) - LABEL == pytest.approx(0.75 * unit, abs=0.1)
    assert float(legend.get("cy")) > float(peer.get("cy"))


def test_texts_are_escaped_and_figures_are_told(tree):
    texts = [e.text for e in tree.iter(SVG + "text")]
    for text in ("a < b & c", "0.50", "5.00", "not available: no network", "Time <", "openvino"):
        assert text in texts


def test_nothing_stands_outside(tree):
    height = float(tree.get("height"))
    for element in tree.iter():
        for name, end in (("x", WIDTH), ("x1", WIDTH), ("x2", WIDTH), ("cx", WIDTH), ("y", height), ("y2", height)):
            if element.get(name) is not None:
                assert 0 <= float(element.get(name)) <= end


def test_both_colour_schemes_have_all_marks():
    text = chart("t", "s", BARS[:1])
    light, _, dark = text.partition("prefers-color-scheme: dark")
    for kind in ("text", ".faint", ".grid", ".one", ".met", ".missed", ".goal", ".peer"):
        assert f"{kind} {{" in light and f"{kind} {{" in dark
    assert 'class="peer"' not in text


def test_each_peer_has_a_mark_of_its_own():
    peers = {"openvino": 0.9, "torch": 1.1, "tvm": 90.0}
    tree = ElementTree.fromstring(chart("t", "s", [Bar("x", 0.5, 1.0, peers=peers), Bar("y", 0.5, 1.0)]))
    marks = [*of_kind(tree, "circle", "peer"), *of_kind(tree, "polygon", "peer")]
    assert len(marks) == 6 and {*peers} <= {e.text for e in tree.iter(SVG + "text")}
    corners = {tuple(len(set(axis)) for axis in zip(*points(e), strict=True)) for e in of_kind(tree, "polygon", "peer")}
    assert corners == {(2, 2), (3, 3)}  # a square and a diamond


def points(element):
    return [tuple(map(float, point.split(","))) for point in element.get("points").split()]
