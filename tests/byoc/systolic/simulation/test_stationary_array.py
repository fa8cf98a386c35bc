"""Registers of the weight-stationary array, clock by clock, against values worked out by hand."""

import numpy as np

from tvm_ext.byoc.systolic.simulation.stationary_array import StationaryArray


def test_one_row_through_two_by_two_pes() -> None:
    """2 x 2 PEs compute [2, 3] [[10, 20], [30, 40]]: weights fall, latch, and change over behind the `first` bit."""
    array = StationaryArray(2, 2, np.dtype("int32"))
    idle, none = np.zeros((3, 2), "int32"), np.zeros((2, 2), "int32")
    array.clock(idle, np.array([[30, 0], [0, 0]]))  # weights fall: row 1 first, column 0
    array.clock(idle, np.array([[10, 40], [1, 0]]))  # row 0; the latch bit comes with it
    assert array.shadow.tolist() == [[10, 0], [30, 0]]
    array.clock(np.array([[2, 0], [1, 0], [1, 0]]), np.array([[0, 20], [0, 1]]))  # x[0, 0] = 2 enters row 0
    assert array.shadow.tolist() == [[10, 20], [30, 40]]
    assert array.weight.tolist() == [[10, 0], [0, 0]]
    assert array.sum.tolist() == [[20, 0], [0, 0]]
    valid, sums = array.clock(np.array([[0, 3], [0, 1], [0, 1]]), none)  # x[0, 1] = 3 enters row 1
    assert array.weight.tolist() == [[10, 20], [30, 0]]
    assert valid.tolist() == [True, False]
    assert sums.tolist() == [2 * 10 + 3 * 30, 0]
    valid, sums = array.clock(idle, none)
    assert valid.tolist() == [False, True]
    assert sums[1] == 2 * 20 + 3 * 40


def test_a_second_set_of_weights_waits_for_its_stream() -> None:
    """1 x 1 PE: new weights may be latched in the clock in which the old ones are taken, and not show before."""
    array = StationaryArray(1, 1, np.dtype("int32"))

    def clock(value: int, first: int, weight: int, latch: int) -> int:
        left, top = np.array([[value], [1], [first]], "int32"), np.array([[weight], [latch]], "int32")
        return int(array.clock(left, top)[1][0])

    clock(0, 0, 7, 1)
    assert clock(2, 1, 9, 1) == 2 * 7  # 9 arrives while 7 is taken from the shadow register
    assert clock(3, 0, 0, 0) == 3 * 7
    assert clock(4, 1, 0, 0) == 4 * 9
