"""Programs of layers against the best mappings: bytes of DRAM, and cycles."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.byoc.systolic.cases import bounded_problem, mapping_bounds
from tvm_ext.byoc.systolic import GemmLayer, Matrix, Tensor, lower, simulate


def measure() -> list[dict[str, Any]]:
    """A row a layer and size of buffers: bytes that its program moves, and the fewest."""
    rows = []
    for bound in mapping_bounds():
        problem, hardware = bounded_problem(bound)
        m, k, n, batch = problem.m, problem.k, problem.n, problem.batch
        a, out = (Matrix(name, size, 1, m * size, batch) for name, size in (("x", k), ("y", n)))
        weights = np.zeros((batch, k, n), np.int8)
        layer = GemmLayer(bound["layer"], m, k, n, a, weights, out, batch=batch)
        shapes = {"input": ("x", (batch, m, k)), "output": ("y", (batch, m, n))}
        tensors = [Tensor(name, role, shape, "int8") for role, (name, shape) in shapes.items()]
        timing = simulate(lower([layer], tensors, hardware))
        facts = timing.program.layers[0].facts
        tile = "x".join(map(str, facts["tile"]))
        stays = f", {facts['stays'].upper()} stays" if facts["stays"] else ""
        rows.append({
            "layer": bound["layer"], "sizes": [batch, m, k, n],
            "scratchpad": hardware.scratchpad_bytes, "accumulator": hardware.accumulator_bytes,
            "bytes": timing.totals.bytes_at("dram"), "bound": int(bound["dram_bytes"]),
            "cycles": timing.cycles, "macs_alone": problem.macs // hardware.macs_per_cycle,
            "tiling": f"{facts['dataflow']} {tile} {facts['order']}{stays}",
        })  # fmt: skip
    return rows


def cells(found: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The rows as a table."""
    head = ("layer", "batch x m x k x n", "scratchpad, accumulator KiB", "bytes", "fewest", "ratio",
            "cycles", "multiply-adds alone", "tiling")  # fmt: skip
    return [head, *map(_line, found)]


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["layer"], "x".join(map(str, row["sizes"])),
        f"{row['scratchpad'] >> 10}, {row['accumulator'] >> 10}",
        f"{row['bytes']:,}", f"{row['bound']:,}", f"{row['bytes'] / row['bound']:.2f}",
        f"{row['cycles']:,}", f"{row['macs_alone']:,}", row["tiling"],
    )  # fmt: skip
