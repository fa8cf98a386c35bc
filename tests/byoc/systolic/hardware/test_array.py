"""The array in Amaranth against the stepper: registers of every PE and the accumulator memory, after every clock."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.systolic.simulation.output_array import OutputRun
from tvm_ext.byoc.systolic.simulation.stationary_array import StationaryRun
from tvm_ext.byoc.systolic.simulation.stepper import step_gemm

from ..cases import random_int8

pytest.importorskip("amaranth")
from tvm_ext.byoc.systolic.hardware.gemm import GemmUnit

from .gemm_simulator import GemmSimulator

#: Rows and columns of arrays, and whether folds overlap.
ARRAYS = [
    (1, 1, True), (1, 6, False), (5, 1, True), (2, 3, True), (3, 2, False), (4, 4, True), (7, 5, True),
    (8, 8, False),
]  # fmt: skip
FIELDS = {"stationary": ("value", "valid", "first"), "output": ("value", "first", "last")}


def stepper_run(a: np.ndarray, b: np.ndarray, acc: np.ndarray, dataflow: str, array: tuple[int, int, bool]) -> Any:
    """The stepper's sequencer of a GEMM, before its first clock."""
    a, b = a.astype(np.int32), b.astype(np.int32)
    if dataflow == "os":
        return OutputRun(a, b, acc, *array)
    return StationaryRun(b, a, acc, *array) if dataflow == "ws" else StationaryRun(a.T, b.T, acc.T, *array)


def registers_of(unit: GemmUnit, dataflow: str) -> dict[str, list[list[Any]]]:
    """The signals of every PE, by the names that the stepper has for them."""
    kind, moving = ("output", "right") if dataflow == "os" else ("stationary", "stream")
    names = ("down", "total", "held", "out") if dataflow == "os" else ("down", "shadow", "weight", "sum")
    signals = {name: [[getattr(each, name) for each in row] for row in unit.array.elements] for name in names}
    for at, field in enumerate(FIELDS[kind]):
        moving_field = [[getattr(each, moving)[field] for each in row] for row in unit.array.elements]
        signals[f"{moving}.{at}"] = moving_field
    return signals


def checker(unit: GemmUnit, dataflow: str, run: Any, transposed: bool) -> Callable[..., None]:
    """Moves the stepper by a clock, and compares all that both hold."""
    signals, array = registers_of(unit, dataflow), run._array

    def watch(read: Callable[[Any], int], memory: np.ndarray) -> None:
        run.clock()
        for name, grid in signals.items():
            ours = np.array([[read(signal) for signal in row] for row in grid])
            register, _, field = name.partition(".")
            theirs = getattr(array, register)
            np.testing.assert_array_equal(ours, theirs[int(field)] if field else theirs, err_msg=name)
        if dataflow == "os":
            assert [read(left) for left in unit.array.left_to_drain] == array.left_to_drain.tolist()
        sums = run._sums.T if transposed else run._sums
        np.testing.assert_array_equal(memory, sums[: memory.shape[0], : memory.shape[1]])

    return watch


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_every_register_in_every_clock(dataflow: str) -> None:
    rng = np.random.default_rng(7)
    for number, array in enumerate(ARRAYS):
        simulator = GemmSimulator(dataflow, *array)
        m, k, n = (int(size) for size in rng.integers(1, 13, 3))
        a, b = random_int8(rng, (m, k)), random_int8(rng, (k, n))
        acc = rng.integers(-(2**31), 2**31, (m, n)).astype(np.int32) if number % 2 else None
        run = stepper_run(a, b, np.zeros((m, n), np.int32) if acc is None else acc.copy(), dataflow, array)
        with np.errstate(over="ignore"):
            watch = checker(simulator.unit, dataflow, run, dataflow == "is")
            c, clocks = simulator.run(a, b, acc, watch)
            expected, cycles = step_gemm(a, b, dataflow, *array[:2], acc=acc, overlapped=array[2])
        np.testing.assert_array_equal(c, expected)
        assert clocks == cycles


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_random_gemms(dataflow: str) -> None:
    """Values and clocks of GEMMs of many folds, some with extents of 1, on arrays of 1 x 1 to 8 x 8."""
    rng = np.random.default_rng(8)
    for _ in range(5):
        rows, cols = (int(size) for size in rng.integers(1, 9, 2))
        overlapped = bool(rng.integers(2))
        simulator = GemmSimulator(dataflow, rows, cols, overlapped)
        for largest in (2, 9, 14):
            m, k, n = (int(size) for size in rng.integers(1, largest + 1, 3))
            a, b = random_int8(rng, (m, k)), random_int8(rng, (k, n))
            c, clocks = simulator.run(a, b)
            expected, cycles = step_gemm(a, b, dataflow, rows, cols, overlapped=overlapped)
            assert clocks == cycles and np.array_equal(c, expected), (dataflow, rows, cols, m, k, n, overlapped)
