"""The roofline: where points lie, and what the pictures of it say."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.inspection.profile.fakes import ROOFS, launch, profile, sample
from tvm_ext.core.errors import OptionError, UnsupportedError
from tvm_ext.inspection.profile.roofline import LogAxes

SVG = "{http://www.w3.org/2000/svg}"


def test_points_lie_where_work_and_time_put_them():
    line = sample().roofline()
    first = line.points[0]
    assert (first.intensity, first.rate, first.roof, first.of_roof) == pytest.approx((100, 50e9, 100e9, 0.5))
    assert [point.number for point in line.points] == [1, 3, 4]  # a copy has no operations, and one is not known
    assert line.left_out == ("copy", "odd")
    low = profile([launch(1, "add", ["a"], [1e-3], executed=1e6, bytes=2_000_000)]).roofline().points[0]
    assert low.bound == "memory" and (low.roof, low.rate) == pytest.approx((5e9, 1e9))


def test_instructions_have_peaks_of_their_own():
    roofs = replace(ROOFS, instructions={"vpdpbusd": 800e9})
    dot = launch(1, "dot", ["conv"], [2e-3], executed=8e8, bytes=1_000_000, instruction="vpdpbusd")
    line = profile([dot, launch(2, "dense", ["fc"], [2e-3])], roofs=roofs).roofline()
    assert [point.roof for point in line.points] == [800e9, 100e9]
    assert [point.of_roof for point in line.points] == pytest.approx([0.5, 0.5])
    root = ElementTree.fromstring(line.svg())
    titles = [element.text for element in root.iter(f"{SVG}title") if "up to" in element.text]
    assert len(titles) == 4 and sum("vpdpbusd: up to 800" in title for title in titles) == 2
    axes = LogAxes.around(line)
    assert 0 < axes.along(800e9) <= 1 and 0 < axes.across(800e9 / roofs.bandwidth) <= 1
    assert "800 by vpdpbusd" in line.about and "800.0" in str(line)


def test_groups_are_drawn_too():
    assert [point.label for point in sample().roofline("recipe").points] == ["dense", "offload:npu"]


def test_without_operations_there_is_nothing_to_draw():
    with pytest.raises(UnsupportedError, match="nothing to draw"):
        profile([launch(1, "copy", ["c"], [1e-3], executed=0.0)]).roofline()


def test_axes_hold_all_points_and_both_ridges():
    line = sample().roofline()
    axes = LogAxes.around(line)
    for point in line.points:
        assert 0 < axes.across(point.intensity) < 1 and 0 < axes.along(point.rate) < 1
    for bandwidth in (line.roofs.bandwidth, line.roofs.cache_bandwidth):
        assert 0 < axes.across(line.roofs.flops / bandwidth) < 1 and 0 < axes.along(line.roofs.flops) < 1


def test_the_svg_has_a_dot_with_a_title_for_each_point():
    line = sample().roofline()
    titles = [element.text for element in ElementTree.fromstring(line.svg()).iter(f"{SVG}title")]
    assert len(titles) == 5 and any("relu, fc1" in title and "50 % of the roof" in title for title in titles)
    assert line._repr_svg_() == line.svg() and "no place: copy, odd" in line.svg()


def test_the_text_draws_and_lists_every_point():
    text = str(sample().roofline())
    assert "1 to" not in text and "operations executed a byte" in text
    for label in ("dense", "region_0"):
        assert label in text
    assert "without operations or bytes: copy, odd" in text
    assert max(map(len, text.splitlines())) <= 100


def test_files_by_their_ending(tmp_path):
    line = sample().roofline()
    line.save(tmp_path / "a.svg")
    line.save(tmp_path / "a.txt")
    ElementTree.parse(tmp_path / "a.svg")
    assert (tmp_path / "a.txt").read_text() == f"{line}\n"
    with pytest.raises(OptionError, match=r"\.svg, \.png or \.txt is needed"):
        line.save(tmp_path / "a.gif")
    line.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
