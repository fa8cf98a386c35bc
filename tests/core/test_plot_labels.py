"""Labels of dots: which share one, and where there is room."""

from __future__ import annotations

import itertools

import numpy as np

from tvm_ext.core.plot_labels import clusters, free_place, label_box, ranges


def test_dots_that_lie_on_each_other_share_a_label():
    assert clusters([(0, 0), (100, 0), (3, 3), (6, 6)]) == [[0, 2, 3], [1]]
    assert clusters([]) == []


def test_numbers_in_a_row_are_a_range():
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7-8"
    assert ranges([4]) == "4"


def test_labels_cover_nothing_as_long_as_there_is_room():
    frame = (0.0, 0.0, 400.0, 300.0)
    taken = []
    for x, y in np.random.default_rng(0).uniform((50, 50), (350, 250), (25, 2)):
        at_x, at_y = free_place(x, y, 10, taken, frame)
        taken.append(label_box(at_x, at_y, 10))
    for one, other in itertools.combinations(taken, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert all(frame[0] < a and frame[1] < b and c < frame[2] and d < frame[3] for a, b, c, d in taken)


def test_without_room_the_label_stands_below_its_dot():
    assert free_place(5, 5, 10, [], (0, 0, 10, 10)) == (5, 18)
