"""Tiles cover an axis, leave nothing out, and stay in their blocks."""

import pytest

from tvm_ext.core.layout import Layout
from tvm_ext.schedules.steps.copies import Axis, Place, axes_of
from tvm_ext.schedules.steps.copy_tiles import choose, spans


@pytest.mark.parametrize(("extent", "width"), [(1, 1), (16, 16), (17, 16), (31, 8), (100, 16), (7, 4)])
@pytest.mark.parametrize("lanes", [0, 16])
def test_spans_cover_an_axis(extent: int, width: int, lanes: int) -> None:
    axis = Axis(extent, Place(7, lanes), Place(1))
    tiles = [(span.start(i), span.valid) for span in spans(axis, width) for i in range(span.count)]
    covered = [i for start, valid in tiles for i in range(int(start), int(start) + valid)]
    assert set(covered) == set(range(extent))
    if lanes:
        assert len(covered) == extent and all(int(start) % width == 0 for start, _ in tiles)


@pytest.mark.parametrize(
    ("shape", "source", "target", "lanes", "square", "widths"),
    [
        ((1, 64, 56, 56), Layout.plain(4), Layout.blocked(4, 16), 16, True, {64: 16, 3136: 16}),
        ((1, 64, 56, 56), Layout.plain(4), Layout.blocked(4, 8), 16, True, {64: 8, 3136: 8}),
        ((1, 64, 3, 3), Layout.blocked(4, 16), Layout.plain(4), 16, True, {64: 8, 9: 8}),
        ((1, 3, 30, 30), Layout((0, 2, 3, 1)), Layout.plain(4), 16, False, {3: 3, 900: 16}),
        ((1, 3, 30, 30), Layout.plain(4), Layout((0, 2, 3, 1)), 8, False, {3: 3, 900: 8}),
        ((1, 12, 5, 64), Layout.plain(4), Layout((0, 2, 1, 3)), 16, False, {64: 64}),
        ((1, 12, 5, 40), Layout.plain(4), Layout((0, 2, 1, 3)), 8, False, {40: 32}),
    ],
)
def test_choice(shape: tuple[int, ...], source: Layout, target: Layout, lanes: int, square: bool, widths: dict) -> None:
    tile = choose(axes_of(shape, source, target), lanes, 4)
    assert tile.square == square
    assert {axis.extent: width for axis, width in tile.widths.items()} == widths
