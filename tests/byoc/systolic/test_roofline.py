"""The roofline: figures by hand, and a picture that is well-formed, inside its frame and readable."""

from __future__ import annotations

import itertools
import math
from typing import Any
from xml.etree import ElementTree

import pytest

from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.report import LayerRow
from tvm_ext.byoc.systolic.roofline import roofline_points, roofline_svg, roofline_text
from tvm_ext.core.errors import OptionError

SVG = "{http://www.w3.org/2000/svg}"
HARDWARE = Accelerator(rows=8, cols=4, dma_bytes_per_cycle=16)  # roofs: 32 a cycle, 16 x; they meet at 2 a byte


def row(name: str, macs: int, dram_bytes: int, cycles: int) -> LayerRow:
    zeros: dict[str, Any] = dict.fromkeys(("begin", "compute_begin", "array_cycles", "vector_cycles"), 0)
    bound = "compute" if macs * 16 >= dram_bytes * 32 else "memory"
    return LayerRow(
        name, {}, **zeros, cycles=cycles, macs=macs, dram_bytes=dram_bytes, energy={}, utilization=0,
        mapping_efficiency=1, bound=bound,
    )  # fmt: skip


ROWS = [
    row("wide <&>", 6400, 640, 250),
    row("thin", 64, 256, 20),
    *(row(f"equal{i}", 3200, 640, 200) for i in range(6)),
]


def test_points_by_hand() -> None:
    wide, thin, *equal = roofline_points(ROWS, HARDWARE)
    assert (wide.intensity, wide.rate, wide.roof, wide.bound, wide.of_roof) == (10, 25.6, 32, "compute", 0.8)
    assert (thin.intensity, thin.rate, thin.roof, thin.bound, thin.of_roof) == (0.25, 3.2, 4, "memory", 0.8)
    assert [point.number for point in equal] == [3, 4, 5, 6, 7, 8]


def test_what_does_nothing_has_no_point_but_keeps_its_number() -> None:
    points = roofline_points([row("copy", 0, 640, 40), row("thin", 64, 256, 20)], HARDWARE)
    assert [(point.number, point.name) for point in points] == [(2, "thin")]
    with pytest.raises(OptionError, match="no layer to draw"):
        roofline_svg([row("copy", 0, 640, 40)], HARDWARE, "title")


def test_text() -> None:
    roofs, head, wide, thin, *_ = roofline_text(ROWS, HARDWARE).splitlines()
    assert "32 multiply-adds a cycle; 16 bytes a cycle" in roofs and "meet at 2 a byte" in roofs
    assert wide.split() == ["1", "wide", "<&>", "10.00", "25.6", "32.0", "compute", "80%", "#" * 16]
    assert thin.split() == ["2", "thin", "0.25", "3.2", "4.0", "memory", "80%", "#" * 16]
    assert head.index("a byte") + len("a byte") == wide.index("10.00") + len("10.00")


@pytest.fixture(scope="module")
def tree() -> ElementTree.Element:
    return ElementTree.fromstring(roofline_svg(ROWS, HARDWARE, "Layers <of> a model"))


def of_class(tree: ElementTree.Element, tag: str, kind: str) -> list[ElementTree.Element]:
    return [element for element in tree.iter(SVG + tag) if element.get("class") == kind]


def dots(tree: ElementTree.Element) -> list[tuple[float, float]]:
    """Of the layers, not of the legend."""
    circles = [c for c in tree.iter(SVG + "circle") if c.find(SVG + "title") is not None]
    return [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in circles]


def test_dots_lie_below_the_roof_by_their_share_of_it(tree: ElementTree.Element) -> None:
    (roof,) = of_class(tree, "polyline", "roof")
    (_, ridge, end) = (tuple(map(float, point.split(","))) for point in roof.get("points", "").split())
    assert ridge[1] == end[1]
    points = dots(tree)
    assert len(points) == len(ROWS)
    octave = (points[1][1] - points[0][1]) / 3  # 25.6 and 3.2 a cycle: three powers of two
    assert points[0][1] - ridge[1] == pytest.approx(-math.log2(0.8) * octave, abs=0.3)
    assert all(y > ridge[1] for _, y in points)


def test_equal_layers_have_one_label(tree: ElementTree.Element) -> None:
    labels = [e.text for e in of_class(tree, "text", "number")]
    assert "3-8" in labels and labels.count("3") == 1  # in the plot, and in the legend


def test_labels_do_not_overlap_though_dots_lie_side_by_side() -> None:
    rows = [
        row(f"layer{i}", 10**6, round(10**5 * 1.07 ** (i % 6)), round(5 * 10**4 * 1.1 ** (i // 6))) for i in range(24)
    ]
    tree = ElementTree.fromstring(roofline_svg(rows, HARDWARE, "many"))
    labels = [e for e in of_class(tree, "text", "number") if e.get("text-anchor") == "middle"]
    boxes = [(float(e.get("x", "")), float(e.get("y", "")), 7 * len(e.text or "")) for e in labels]
    assert len(boxes) == 24
    for (x1, y1, width1), (x2, y2, width2) in itertools.combinations(boxes, 2):
        assert abs(x1 - x2) >= (width1 + width2) / 2 - 0.2 or abs(y1 - y2) >= 14 - 0.2


def test_nothing_stands_outside_and_text_is_escaped(tree: ElementTree.Element) -> None:
    width, height = (float(tree.get(side, "")) for side in ("width", "height"))
    for element in tree.iter():
        for name, end in (("x", width), ("x1", width), ("cx", width), ("y", height), ("y2", height), ("cy", height)):
            if (value := element.get(name)) is not None:
                assert 0 <= float(value) <= end
    texts = [element.text for element in tree.iter(SVG + "text")]
    assert "wide <&>" in texts and "Layers <of> a model" in texts
    assert len([text for text in texts if text and text.endswith("%")]) == len(ROWS)
