"""How fast the simulator is: `python _offload_speed.py resnet18 | sweep` prints one line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import tvm_ext
from tvm_ext.byoc.systolic import DesignPoint, programs_of, simulate
from tvm_ext.byoc.systolic.results import sweep
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.driver.regions import regions_of

#: Of the design sweep: 12 settings; the memories of the default accelerator, and four times as large ones.
ARRAYS, DATAFLOWS = ((8, 8), (16, 16), (32, 32), (64, 64)), ("ws", "os", "is")
MEMORIES: dict[str, dict[str, int]] = {
    "default": {},
    "large": {"scratchpad_bytes": 1 << 20, "accumulator_bytes": 1 << 18, "dma_bytes_per_cycle": 64},
}
ROUNDS = 5


def settings(memory: str) -> list[dict[str, Any]]:
    """The 12 settings of a sweep."""
    return [{"rows": r, "cols": c, "dataflow": d, **MEMORIES[memory]} for r, c in ARRAYS for d in DATAFLOWS]


def resnet18() -> dict[str, Any]:
    """Seconds of one image, everything offloaded: values (model.run), and timing of the programs."""
    compiled = tvm_ext.compile(
        tvm_ext.zoo.resnet18(), offload="systolic", offload_options={"when": "always"}, cache=False
    )  # fmt: skip
    inputs, programs = seeded_inputs(compiled.inputs), programs_of(compiled)
    compiled.run(inputs)
    functional = [seconds(lambda: compiled.run(inputs)) for _ in range(ROUNDS)]
    timing = [seconds(lambda: [simulate(program) for program in programs.values()]) for _ in range(ROUNDS)]
    return {
        "functional": functional, "timing": timing,
        "seconds": statistics.median(map(sum, zip(functional, timing, strict=True))),
        "instructions": sum(len(program.instructions) for program in programs.values()),
        "cycles": sum(simulate(program).cycles for program in programs.values()),
    }  # fmt: skip


def sweeps() -> dict[str, Any]:
    """Seconds of each sweep, and its table."""
    regions = regions_of(tvm_ext.zoo.resnet18())
    found: dict[str, Any] = {}
    for memory in MEMORIES:
        begin = time.perf_counter()
        points = sweep(regions, settings(memory))
        found[memory] = {"seconds": time.perf_counter() - begin, "rows": [row_of(point) for point in points]}
    return found


def seconds(action: Callable[[], object]) -> float:
    """Of one run."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def row_of(point: DesignPoint) -> dict[str, Any]:
    """A design point in plain values; energies in microjoules."""
    options = point.options
    return {
        "rows": options.rows, "cols": options.cols, "dataflow": options.dataflow, "cycles": point.cycles,
        "seconds": point.seconds, "utilization": point.utilization, "dram_bytes": point.dram_bytes,
        "energy": {level: picojoules / 1e6 for level, picojoules in point.energy.items()},
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps({"resnet18": resnet18, "sweep": sweeps}[sys.argv[1]]()), flush=True)
