"""The GEMM unit alone in Amaranth's simulator."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tvm_ext.byoc.systolic.code.isa import Gemm, encode
from tvm_ext.byoc.systolic.hardware.gemm import unit_of
from tvm_ext.byoc.systolic.hardware.records import GEMM
from tvm_ext.byoc.systolic.hardware.simulation import Bench


class GemmSimulator:
    """The GEMM unit of one dataflow, with arrays of numpy for its memories.

    Args:
        dataflow: "ws", "os" or "is".
        rows, cols: processing elements.
        overlapped: see :func:`tvm_ext.byoc.systolic.simulation.stepper.step_gemm`.
    """

    def __init__(self, dataflow: str, rows: int, cols: int, overlapped: bool = False) -> None:
        self.unit = unit_of(dataflow, rows, cols, overlapped)
        self._dataflow, self._rows, self._cols, self._bench = dataflow, rows, cols, Bench(self.unit)

    def run(
        self, a: np.ndarray, b: np.ndarray, acc: np.ndarray | None = None, watch: Callable[..., None] | None = None
    ) -> tuple[np.ndarray, int]:
        """acc[m, n] + a[m, k] b[k, n] of int8, int32, and the clocks until it is in the accumulator memory.

        Args:
            watch: is given, after each clock, a function that reads a signal, and the accumulator memory [m, n].
        """
        (m, k), n = a.shape, b.shape[1]
        scratchpad = np.frombuffer(a.tobytes() + b.tobytes(), np.uint8)
        memory = np.zeros(m * n, np.int32) if acc is None else acc.reshape(-1).copy()
        gemm = Gemm(self._dataflow, int(acc is not None), 0, a.size, 0, m, k, n)
        limit, clocks, unit = 4 * (m + self._rows) * (k + self._rows) * (n + self._cols), 0, self.unit

        async def bench(context: Any) -> None:
            nonlocal clocks
            context.set(unit.gemm, GEMM.from_bits(int.from_bytes(encode([gemm]), "little")))
            context.set(unit.active, 1)
            done = False
            while not done:
                self._serve(context, scratchpad, memory)
                done = context.get(unit.done)
                await context.tick()
                clocks += 1
                assert clocks < limit, f"{gemm} has not finished after {limit} clocks"
                if watch is not None:
                    watch(context.get, memory.reshape(m, n))

        self._bench.go(bench)
        return memory.reshape(m, n), clocks

    def _serve(self, context: Any, scratchpad: np.ndarray, memory: np.ndarray) -> None:
        """Answers the reads of this clock, and writes its sums."""
        unit = self.unit
        for name, lanes in (("left", self._rows), ("top", self._cols)):
            if enable := context.get(getattr(unit, f"{name}_enable")):
                address = _unpacked(context, getattr(unit, f"{name}_address"), lanes, "<u4")
                values = scratchpad[np.where(_bits(enable, lanes), address, 0)]
                context.set(getattr(unit, f"{name}_data").as_value(), int.from_bytes(values.tobytes(), "little"))
        if enable := context.get(unit.sum_enable):
            address, sums = (
                _unpacked(context, values, self._cols, dtype)[_bits(enable, self._cols)]
                for values, dtype in ((unit.sum_address, "<u4"), (unit.sum, "<i4"))
            )
            add = _bits(context.get(unit.sum_add), self._cols)[_bits(enable, self._cols)]
            memory[address] = np.where(add, memory[address], 0) + sums


def _unpacked(context: Any, values: Any, count: int, dtype: str) -> np.ndarray:
    data = context.get(values.as_value()).to_bytes(count * np.dtype(dtype).itemsize, "little")
    return np.frombuffer(data, dtype)


def _bits(value: int, count: int) -> np.ndarray:
    return np.array([value >> bit & 1 for bit in range(count)], bool)
