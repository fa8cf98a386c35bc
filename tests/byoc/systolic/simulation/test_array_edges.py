"""The edges of the array: skew, ports, accumulator memory."""

import numpy as np

from tvm_ext.byoc.systolic.simulation.array_edges import AccumulatorMemory, Port, Skew, padded


def test_skew_delays_lane_i_by_i_clocks() -> None:
    skew = Skew(3, 1, np.dtype("int32"))
    out = [skew.clock(np.array([[10 * t, 10 * t + 1, 10 * t + 2]]))[0].tolist() for t in range(1, 4)]
    assert out == [[10, 0, 0], [20, 11, 0], [30, 21, 12]]


def test_skew_of_one_lane_is_a_wire() -> None:
    skew = Skew(1, 2, np.dtype("float32"))
    assert skew.clock(np.array([[1.5], [1]])).tolist() == [[1.5], [1]]


def test_port_feeds_a_fold_when_told() -> None:
    port = Port(2)
    assert port.take() is None
    port.begin()
    assert (port.take(), port.finished) == ((0, 0), 0)
    assert (port.take(), port.finished) == ((0, 1), 1)
    assert port.is_free
    assert port.take() is None
    port.begin()
    assert (port.take(), port.begun, port.finished) == ((1, 0), 2, 1)


def test_memory_adds_where_each_column_is() -> None:
    """Two folds of two rows, bottom first; column 1 is a clock behind column 0."""
    values = np.zeros((4, 2), "int32")
    memory = AccumulatorMemory(values, [(0, 0), (2, 0)], np.array([1, 0]), 2)
    for clock in range(5):
        memory.clock(np.array([clock < 4, clock > 0]), np.array([clock + 1, 10 * clock], "int32"))
        assert memory.has_finished(1) == (clock >= 2)
    assert values.tolist() == [[2, 20], [1, 10], [4, 40], [3, 30]]
    assert memory.has_finished(2)


def test_padding_to_whole_folds() -> None:
    assert padded(np.ones((3, 4)), 2, 4).shape == (4, 4)
    assert padded(np.ones((3, 4)), 3, 3)[:, 4:].sum() == 0
