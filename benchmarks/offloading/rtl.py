"""The accelerator as hardware: against its simulator in every clock, and the cells that it takes.
Writes results/rtl.json and rtl.md, which are the same on any machine; each part takes some minutes.
"""

import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
from tests.byoc.systolic.code.test_plan import chain
from tests.byoc.systolic.hardware.gemm_simulator import GemmSimulator
from tests.byoc.systolic.hardware.programs import (
    random_inputs,
    random_program,
    random_reductions,
    resnet18,
)
from tests.byoc.systolic.hardware.test_array import checker, stepper_run
from tvm_ext.byoc.systolic import (
    Accelerator,
    Program,
    cells,
    gemm_cycles,
    lower,
    run,
    run_rtl,
    simulate,
)

from benchmarks.common import arguments
from benchmarks.common.results import ALL_RESULTS, write_parts

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
    """Run the parts asked for, and write the page; the others keep what they had."""
    parser = arguments.parser(__doc__, "offloading/rtl.py --only ws cells-16", only=list(PARTS))
    write_parts("rtl", PARTS, parser.parse_args().only, page, ALL_RESULTS)
    return 0


def compare_gemms(dataflow: str) -> dict[str, Any]:
    """The row of random GEMMs on random arrays, each register compared after each clock.

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
    what = f"array, {dataflow}: {GEMMS} GEMMs, 1 x 1 to 8 x 8 PEs"
    return _row(what, "stepper", _EACH_CLOCK, total)


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


def fused_chain() -> Program:
    """Six layers, of which two run by bands."""
    layers, tensors, hardware = chain(7)
    return lower(layers, tensors, replace(hardware, vector_lanes=4), fusion=True)


def compare_programs(what: str, programs: Iterable[Program]) -> dict[str, Any]:
    """The row of programs, with the sum of :func:`compare_program`."""
    views = "functional and timing view"
    return _row(f"chip: {what}", views, "outputs, cycles", sum(map(compare_program, programs)))


def count_cells(size: int) -> dict[str, Any]:
    """Of arrays of size x size PEs, by dataflow: gates and flip-flops of an element, transistors of
    each part."""
    counts: dict[str, Any] = {}
    for flow in ("ws", "os"):
        parts = cells(Accelerator(rows=size, cols=size), flow)
        areas = [parts[name].transistors for name in ("elements", "skew", "sequencer", "array")]
        counts[flow] = [parts["element"].gates, parts["element"].flip_flops, *areas]
    return counts


def _row(*words: Any) -> dict[str, Any]:
    return {"row": words}


#: What is compared, each a row of the first table; and cells by size of the array.
PARTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    **{dataflow: partial(compare_gemms, dataflow) for dataflow in ("ws", "os", "is")},
    "dense": lambda: compare_programs(
        f"{PROGRAMS} programs of two layers, dense and convolutions",
        map(random_program, range(PROGRAMS)),
    ),
    "reductions": lambda: compare_programs(
        f"{PROGRAMS} programs of a pooling or depthwise convolution, clip",
        map(random_reductions, range(PROGRAMS)),
    ),
    "resnet18": lambda: compare_programs(
        "layers of ResNet-18, 4 channels of 13 x 13 pixels", [resnet18()]
    ),
    "fused": lambda: compare_programs(
        "results that stay in the scratchpad, whole and by bands of rows",
        [*(random_program(seed, fusion=True) for seed in (0, 3, 6, 9)), fused_chain()],
    ),
    **{f"cells-{size}": partial(count_cells, size) for size in SIZES},
}  # fmt: skip


def page(results: Mapping[str, Any]) -> str:
    """Markdown of both tables, of the parts that there are."""
    rows = [results[name]["row"] for name in PARTS if "row" in results.get(name, {})]
    lines = [f"| {what} | {other} | {how} | {clocks:,} |" for what, other, how, clocks in rows]
    lines = [_HEAD + "\n".join(lines) + _CELLS]
    for flow, name in (("ws", "ws, is"), ("os", "os")):
        for size in SIZES:
            if counts := results.get(f"cells-{size}", {}).get(flow):
                numbers = " | ".join(f"{count:,}" for count in counts)
                lines.append(f"| {size} x {size} | {name} | {numbers} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
