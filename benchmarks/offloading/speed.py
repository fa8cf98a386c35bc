"""How fast the simulator is; each function runs in a fresh process."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import tvm_ext
from tvm_ext.byoc.systolic import DesignPoint, programs_of, simulate, sweep
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.driver.regions import regions_of

from benchmarks.offloading.models import offloaded

#: Of the design sweep: 12 settings; the memories of the default accelerator, and four times as
#: large ones.
ARRAYS, DATAFLOWS = ((8, 8), (16, 16), (32, 32), (64, 64)), ("ws", "os", "is")
MEMORIES: dict[str, dict[str, int]] = {
    "default": {},
    "large": {
        "scratchpad_bytes": 1 << 20, "accumulator_bytes": 1 << 18, "dma_bytes_per_cycle": 64,
    },
}  # fmt: skip
ROUNDS = 5


def settings(memory: str) -> list[dict[str, Any]]:
    """The 12 settings of a sweep."""
    shapes = [{"rows": rows, "cols": cols} for rows, cols in ARRAYS]
    return [{**s, "dataflow": flow, **MEMORIES[memory]} for s in shapes for flow in DATAFLOWS]


def resnet18() -> dict[str, Any]:
    """Seconds of one image, everything offloaded: values (model.run), and timing of the
    programs."""
    compiled = offloaded(tvm_ext.zoo.resnet18())
    inputs, programs = seeded_inputs(compiled.inputs), list(programs_of(compiled).values())
    compiled.run(inputs)
    functional = [seconds(lambda: compiled.run(inputs)) for _ in range(ROUNDS)]
    timing = [seconds(lambda: [*map(simulate, programs)]) for _ in range(ROUNDS)]
    return {
        "functional": functional, "timing": timing,
        "seconds": statistics.median(map(sum, zip(functional, timing, strict=True))),
        "instructions": sum(len(program.instructions) for program in programs),
        "cycles": sum(simulate(program).cycles for program in programs),
    }  # fmt: skip


def sweeps() -> dict[str, Any]:
    """Seconds of each sweep, and its table."""
    regions = regions_of(tvm_ext.zoo.resnet18())
    swept: dict[str, Any] = {}
    for memory in MEMORIES:
        begin = time.perf_counter()
        points = sweep(regions, settings(memory))
        swept[memory] = {"seconds": time.perf_counter() - begin, "rows": [*map(row_of, points)]}
    return swept


def seconds(action: Callable[[], object]) -> float:
    """Of one run."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def row_of(point: DesignPoint) -> dict[str, Any]:
    """A design point in plain values; energies in microjoules."""
    options, facts = point.options, ("cycles", "seconds", "utilization", "dram_bytes")
    return {
        **{name: getattr(options, name) for name in ("rows", "cols", "dataflow")},
        **{name: getattr(point, name) for name in facts},
        "energy": {level: picojoules / 1e6 for level, picojoules in point.energy.items()},
    }
