"""The accelerator as hardware: against its simulator in every clock, and the cells that it takes.
Writes results/rtl.md, which is the same on any machine; takes some minutes.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
from tests.byoc.systolic.hardware.programs import (
    random_inputs,
    random_program,
    random_reductions,
    resnet18,
)
from tests.byoc.systolic.hardware.test_array import checker, stepper_run
from tvm_ext.byoc.systolic import (
    Accelerator,
    Cells,
    Program,
    cells,
    gemm_cycles,
    run,
    run_rtl,
    simulate,
)
from tvm_ext.byoc.systolic.hardware.simulation import GemmSimulator

from benchmarks.common.results import ALL_RESULTS, write_text

GEMMS, PROGRAMS = 200, 20
SIZES = (1, 2, 4, 8, 16)
_EACH_CLOCK = "each register of each PE, accumulator memory, clocks"
_HEAD = """\
# The accelerator as hardware

`python benchmarks/offloading/rtl.py` writes this page; what differs in a bit or a clock stops it.

| hardware in Amaranth's simulator | against | compared | clocks |
| --- | --- | --- | --- |
"""
_CELLS = """

Cells of the array by yosys: gates are inverters and NAND and NOR of two inputs, area is transistors
of static CMOS. An element is a PE with neighbours at all sides; the sequencer has the multipliers
of addresses.

| PEs | dataflow | element: gates | flip-flops | elements, transistors | skew | sequencer | array |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> int:
    """Run all, and write the page; 1 where anything differs."""
    seeds = range(PROGRAMS)
    programs = {
        f"{PROGRAMS} programs of two layers, dense and convolutions": map(random_program, seeds),
        f"{PROGRAMS} programs of a pooling or depthwise convolution, clip": map(
            random_reductions, seeds
        ),
        "layers of ResNet-18, 4 channels of 13 x 13 pixels": [resnet18()],
    }
    clocks = {what: sum(map(compare_program, some)) for what, some in programs.items()}
    gemms = {dataflow: compare_gemms(dataflow) for dataflow in ("ws", "os", "is")}
    table = {
        (size, dataflow): cells(Accelerator(rows=size, cols=size), dataflow)
        for dataflow in ("ws", "os")
        for size in SIZES
    }
    write_text(ALL_RESULTS / "rtl.md", page(gemms, clocks, table))
    return 0


def compare_gemms(dataflow: str) -> tuple[int, int]:
    """(GEMMs, clocks) of random ones on random arrays, each register compared after each clock.

    Raises:
        AssertionError: a register, a sum or the number of clocks differs.
    """
    rng, total = np.random.default_rng(len(dataflow) + ord(dataflow[0])), 0
    for _ in range(GEMMS // 4):
        rows, cols = (int(size) for size in rng.integers(1, 9, 2))
        array = rows, cols, bool(rng.integers(2))
        simulator = GemmSimulator(dataflow, *array)
        for _ in range(4):
            m, k, n = (int(size) for size in rng.integers(1, 13, 3))
            a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
            acc = (
                rng.integers(-(2**31), 2**31, (m, n)).astype(np.int32) if rng.integers(2) else None
            )
            stepper = stepper_run(
                a, b, np.zeros((m, n), np.int32) if acc is None else acc.copy(), dataflow, array
            )
            with np.errstate(over="ignore"):
                watch = checker(simulator.unit, dataflow, stepper, dataflow == "is")
                _, clocks = simulator.run(a, b, acc, watch)
            model = "overlapped" if array[2] else "physical"
            assert clocks == gemm_cycles(dataflow, m, k, n, rows, cols, model)
            assert stepper._memory.has_finished(stepper.folds)
            total += clocks
    return GEMMS, total


def compare_program(program: Program) -> int:
    """The cycles of a program on the chip.

    Raises:
        AssertionError: an output is not that of the functional view, or the cycles are not those of
            the timing view.
    """
    inputs = random_inputs(program)
    outputs, cycles = run_rtl(program, inputs)
    for name, expected in run(program, inputs).items():
        assert outputs[name].tobytes() == expected.tobytes(), name
    assert cycles == simulate(program).cycles
    return cycles


def page(
    gemms: dict[str, tuple[int, int]],
    programs: dict[str, int],
    table: dict[tuple[int, str], dict[str, Cells]],
) -> str:
    """Markdown of both tables."""
    compared = [
        (f"array, {dataflow}: {count} GEMMs, 1 x 1 to 8 x 8 PEs", "stepper", _EACH_CLOCK, clocks)
        for dataflow, (count, clocks) in gemms.items()
    ]
    views = "functional and timing view"
    compared += [
        (f"chip: {what}", views, "outputs, cycles", clocks) for what, clocks in programs.items()
    ]
    lines = [f"| {what} | {other} | {how} | {clocks:,} |" for what, other, how, clocks in compared]
    lines = [_HEAD + "\n".join(lines) + _CELLS]
    for (size, dataflow), parts in table.items():
        element = parts["element"]
        areas = " | ".join(
            f"{parts[name].transistors:,}" for name in ("elements", "skew", "sequencer", "array")
        )
        name = "ws, is" if dataflow == "ws" else dataflow
        lines.append(
            f"| {size} x {size} | {name} | {element.gates:,} | {element.flip_flops} | {areas} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
