"""Programs of layers against the best mappings: bytes of DRAM, energy of memories, and cycles."""

from typing import Any

import numpy as np
from tests.byoc.systolic.cases import bounded_problem, energy_bounds, mapping_bounds
from tvm_ext.byoc.systolic import Accelerator, GemmLayer, Matrix, Program, Tensor, lower, simulate
from tvm_ext.byoc.systolic.code.problem import GemmProblem

#: Levels whose energy a mapping decides; that of multiply-adds is the same for all.
LEVELS = ("dram", "scratchpad", "accumulator")


def measure() -> list[dict[str, Any]]:
    """A row a layer and size of buffers: bytes that its program moves, and the fewest; picojoules
    that the memories take, and the least."""
    rows = []
    for bound, least in zip(mapping_bounds(), energy_bounds(), strict=True):
        problem, hardware = bounded_problem(bound)
        timing = simulate(program_of(bound["layer"], problem, hardware))
        facts = timing.program.layers[0].facts
        tile = "x".join(map(str, facts["tile"]))
        stays = f", {facts['stays'].upper()} stays" if facts["stays"] else ""
        rows.append({
            "layer": bound["layer"], "sizes": [problem.batch, problem.m, problem.k, problem.n],
            "scratchpad": hardware.scratchpad_bytes, "accumulator": hardware.accumulator_bytes,
            "bytes": timing.totals.bytes_at("dram"), "bound": int(bound["dram_bytes"]),
            "picojoules": sum(timing.totals.energy[level] for level in LEVELS),
            "least": int(least["picojoules"]), "least_dataflow": least["dataflow"],
            "cycles": timing.cycles, "macs_alone": problem.macs // hardware.macs_per_cycle,
            "tiling": f"{facts['dataflow']} {tile} {facts['order']}{stays}",
        })  # fmt: skip
    return rows


def program_of(name: str, problem: GemmProblem, hardware: Accelerator) -> Program:
    """A GEMM of int8 by constant weights, results of int8 included."""
    m, k, n, batch = problem.m, problem.k, problem.n, problem.batch
    a, out = (Matrix(at, size, 1, m * size, batch) for at, size in (("x", k), ("y", n)))
    layer = GemmLayer(name, m, k, n, a, np.zeros((batch, k, n), np.int8), out, batch=batch)
    shapes = {"input": ("x", (batch, m, k)), "output": ("y", (batch, m, n))}
    tensors = [Tensor(at, role, shape, "int8") for role, (at, shape) in shapes.items()]
    return lower([layer], tensors, hardware)


def cells(layers: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The rows as a table."""
    head = ("layer", "batch x m x k x n", "scratchpad, accumulator KiB", "bytes", "fewest", "ratio",
            "cycles", "multiply-adds alone", "tiling")  # fmt: skip
    return [head, *map(_line, layers)]


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["layer"], "x".join(map(str, row["sizes"])),
        f"{row['scratchpad'] >> 10}, {row['accumulator'] >> 10}",
        f"{row['bytes']:,}", f"{row['bound']:,}", f"{row['bytes'] / row['bound']:.2f}",
        f"{row['cycles']:,}", f"{row['macs_alone']:,}", row["tiling"],
    )  # fmt: skip
