"""The roofline: figures by hand, its text, and a picture with a dot a layer."""

from typing import Any
from xml.etree import ElementTree

import pytest

from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.results.report import LayerRow
from tvm_ext.byoc.systolic.results.roofline import roofline_points, roofline_svg, roofline_text
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
    assert [(point.number, point.label) for point in points] == [(2, "thin")]
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


def test_a_dot_a_layer_and_names_that_are_escaped(tree: ElementTree.Element) -> None:
    titles = [title.text for title in tree.iter(SVG + "title")]
    assert titles == ["DRAM and array: up to 32", *(layer.name for layer in ROWS)]
    text = "".join(tree.itertext())
    assert "Layers <of> a model" in text and "3-8" in text and "multiply-adds a cycle" in text
