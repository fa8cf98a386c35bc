"""Registers of the output-stationary array, clock by clock, against values worked out by hand."""

import numpy as np

from tvm_ext.byoc.systolic.simulation.output_array import OutputArray


def test_one_product_in_two_by_two_pes() -> None:
    """[[2], [3]] [[5, 7]] in one step: sums end skewed, are held, and leave bottom row first, column by column."""
    array = OutputArray(2, 2, np.dtype("int32"))
    nothing = (np.zeros((3, 2), "int32"), np.zeros(2, "int32"))

    draining, _ = array.clock(np.array([[2, 0], [1, 0], [1, 0]]), np.array([5, 0]))  # a[0], b[0] meet in PE (0, 0)
    assert array.held.tolist() == [[10, 0], [0, 0]]
    array.clock(np.array([[0, 3], [0, 1], [0, 1]]), np.array([0, 7]))  # a[1] in row 1, b[1] in column 1
    assert array.held.tolist() == [[10, 14], [15, 0]]
    assert array.left_to_drain.tolist() == [2, 0]
    assert not draining.any()

    deliveries = []
    for _ in range(4):
        draining, results = array.clock(*nothing)
        deliveries.append([int(result) if drains else None for drains, result in zip(draining, results, strict=True)])
    assert deliveries == [[15, None], [10, 21], [None, 14], [None, None]]


def test_first_starts_a_new_sum_and_last_keeps_it() -> None:
    """1 x 1 PE, 2 * 5 + 3 * 7: the sum of the next fold grows while the result leaves."""
    array = OutputArray(1, 1, np.dtype("int32"))

    def clock(a: int, b: int, first: int, last: int) -> int | None:
        draining, results = array.clock(np.array([[a], [first], [last]], "int32"), np.array([b], "int32"))
        return int(results[0]) if draining[0] else None

    assert clock(2, 5, 1, 0) is None
    assert clock(3, 7, 0, 1) is None
    assert clock(4, 4, 1, 0) == 2 * 5 + 3 * 7
    assert array.total.tolist() == [[16]]
    assert clock(0, 0, 0, 0) is None
