"""A copy between two layouts is described by the fewest axes."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tvm_ext.core.layout import Layout
from tvm_ext.schedules.steps.copies import Axis, Place, axes_of

PLAIN, NHWC, BLOCKED = Layout.plain(4), Layout((0, 2, 3, 1)), Layout.blocked(4, 16)


def test_height_and_width_are_one_axis() -> None:
    assert axes_of((1, 64, 56, 56), PLAIN, BLOCKED) == [
        Axis(64, Place(3136), Place(16 * 3136, 16)),
        Axis(3136, Place(1), Place(16)),
    ]


def test_a_copy_that_moves_nothing_is_one_run() -> None:
    assert axes_of((2, 3, 4, 5), PLAIN, PLAIN) == [Axis(120, Place(1), Place(1))]
    assert axes_of((1, 1), Layout.plain(2), Layout((1, 0))) == [Axis(1, Place(1), Place(1))]


def test_blocks_with_nothing_between_them_are_plain() -> None:
    assert axes_of((1, 32, 1, 1), PLAIN, BLOCKED) == [Axis(32, Place(1), Place(1))]


@pytest.mark.parametrize("shape", [(2, 19, 3, 4), (1, 1, 2, 3), (3, 16, 1, 1), (2, 13, 3, 1)], ids=str)
def test_offsets_are_those_of_the_layouts(shape: Sequence[int]) -> None:
    layouts = [PLAIN, NHWC, BLOCKED, Layout.blocked(4, 8, axis=3), Layout.blocked(4, 4).permuted((0, 2, 3, 1))]
    for source, target in itertools.permutations(layouts, 2):
        axes = axes_of(shape, source, target)
        moved = {
            (sum(a.source.offset(i) for a, i in pairs), sum(a.target.offset(i) for a, i in pairs))
            for index in itertools.product(*(range(a.extent) for a in axes))
            if (pairs := list(zip(axes, index, strict=True)))
        }
        assert moved == set(zip(_offsets(shape, source), _offsets(shape, target), strict=True)), f"{source} -> {target}"
        assert any(a.source.contiguous for a in axes) and any(a.target.contiguous for a in axes)


def _offsets(shape: Sequence[int], layout: Layout) -> list[int]:
    physical = layout.physical_shape(shape)
    return [int(np.ravel_multi_index(layout.index(index), physical)) for index in np.ndindex(*shape)]
