"""Designs over the layers of :mod:`.layers`, timed: many arrays against a large one, energies by
their source; models whose results stay on the chip. Writes results/designs.md, which is the same on
any machine; takes some minutes.
"""

import pathlib
import statistics
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
import onnx
from tests.byoc.systolic.cases import table_rows
from tvm_ext.byoc.systolic import Accelerator, Timing, simulate, sweep
from tvm_ext.byoc.systolic.code.problem import GemmProblem
from tvm_ext.byoc.systolic.config import SPARSITIES, SystolicOptions
from tvm_ext.byoc.systolic.lowering.regions import plan_of
from tvm_ext.byoc.systolic.simulation.partition import partition
from tvm_ext.driver.regions import regions_of

from benchmarks.common.results import ALL_RESULTS, write_text
from benchmarks.common.rows import table
from benchmarks.offloading.layers import LAYERS
from benchmarks.offloading.mapping import LEVELS, measure, program_of
from benchmarks.offloading.models import REPORTED
from benchmarks.offloading.scalesim_multicore import PARTITIONS
from benchmarks.offloading.speed import MEMORIES

#: Rows, columns, arrays.
SHAPES = (
    (16, 16, 1),
    (16, 16, 2),
    (16, 32, 1),
    (16, 16, 4),
    (32, 32, 1),
    (16, 16, 8),
    (32, 64, 1),
    (16, 16, 16),
    (64, 64, 1),
)
#: Models of int8, and KiB of scratchpad and accumulators, whose results stay on the chip.
MODELS = ("ResNet-18, int8", "MobileNetV2, int8")
CHIPS = ((64, 16), (256, 64), (1024, 256))
SOURCES = (
    {},
    {"energy": "hwcomponents:45nm"},
    {"energy": "hwcomponents:22nm"},
    {"energy": "hwcomponents:22nm:HBM2"},
)
_PAGE = """\
# Designs

`python benchmarks/offloading/designs.py` writes this page: 20 layers of ResNet-18 and BERT as GEMMs
of int8, results of int8 included, by the timing view.

## Many arrays, or a large one

1 MiB of scratchpad, 256 KiB of accumulators, 64 bytes a cycle. Utilization is of all PEs; energies
are those of hwcomponents at 45 nm.

{arrays}

A GEMM is cut along the rows and columns of C, k stays whole. Of {problems} cases (layers on 4, 6
and 16 arrays of 16x16, 8x32) {equal} take the cycles of the best of all dataflows and of all
three ways of SCALE-Sim's model; all take {mean:.3f} times as many in the geometric mean, {most:.2f}
at most.

## Energy by its source

The default accelerator: 16x16 PEs, 256 KiB of scratchpad, 64 KiB of accumulators; microjoules of
all layers together.

{energy}

## Distance from the best mappings

The same layers with three sizes of buffers, over the optima that accelforge 1.0.467 finds with the
same memories and figures (Horowitz): fewest bytes of DRAM, and least energy of DRAM, scratchpad and
accumulators together, on 16x16 PEs in the best of three dataflows. Its optima have the whole of
each memory and look at no cycles; programs have two buffers for each operand and take at most 2 %
more cycles than the fastest. Ratios; geometric means, and the largest.

{distance}

Above 1.10 in energy:

{far}

The mapper's sums stay in the PEs in each of these. Of C's rows 196 and 49 are no multiple of 16:
PEs idle then, which costs cycles. The others have the smallest buffers, of which a tile has half.

## Dataflows

All layers of a model as one region, int8 (QDQ), 16x16 PEs, without a plan; "best" is of the first
three, layer by layer. Row stationary is another chip, whose PEs have memories. Microjoules by
Horowitz's figures: of all but DRAM, and of these what scratchpad and accumulators take, and the
memories of PEs and what is brought to them.

{flows}

## Weights of 2:4

ResNet-18 with the two largest of each four weights along the depth, int8 (QDQ), 16x16 PEs, without
a plan; sparsity "dense" and "2:4". Layers are those that go compressed.

{sparse}

## Results that stay on the chip

All layers of a model as one region, int8 (QDQ), 16x16 PEs, 16 bytes a cycle; with `fusion=False`
and with the plan, by the timing view. Edges are results that other layers read.

{plans}
"""


def main() -> int:
    """Time all, and write the page."""
    ratios, layers = cuts(), measure()
    text = _PAGE.format(
        arrays=table(arrays()),
        energy=table(energies()),
        distance=table(distance(layers)),
        far=table(far(layers)),
        flows=table(flows()),
        sparse=table(sparse()),
        plans=table(plans()),
        problems=len(ratios),
        equal=sum(ratio == 1 for ratio in ratios),
        mean=statistics.geometric_mean(ratios),
        most=max(ratios),
    )
    write_text(ALL_RESULTS / "designs.md", text)
    return 0


def timings(settings: Mapping[str, Any]) -> list[Timing]:
    """Of each layer on an accelerator."""
    hardware = Accelerator.from_dict(settings)
    problems = {
        name: GemmProblem(m, k, n, batch, a_batches=batch, b_batches=batch, out_bytes=1)
        for name, (batch, m, k, n) in LAYERS.items()
    }
    return [simulate(program_of(name, problem, hardware)) for name, problem in problems.items()]


def arrays() -> list[tuple[str, ...]]:
    """Rows of the table of shapes."""
    rows = [("PEs", "arrays", "cycles", "utilization", "scratchpad MB", "DRAM MB", "energy uJ")]
    for height, width, count in SHAPES:
        shape = {"rows": height, "cols": width, "arrays": count, "energy": "hwcomponents:45nm"}
        timed = timings({**shape, **MEMORIES["large"]})
        cycles = sum(each.cycles for each in timed)
        macs = sum(each.totals.macs for each in timed)
        moved = (
            f"{sum(each.totals.bytes_at(memory) for each in timed) / 1e6:.1f}"
            for memory in ("scratchpad", "dram")
        )
        energy = sum(sum(each.totals.energy.values()) for each in timed)
        used = macs / (cycles * height * width * count)
        cells = f"{cycles:,}", f"{used:.1%}", *moved, f"{energy / 1e6:.0f}"
        rows.append((f"{height * width * count:,}", f"{count} of {height}x{width}", *cells))
    return rows


def energies() -> list[tuple[str, ...]]:
    """Rows of the table of sources: a level each, and their sum."""
    columns = []
    for source in SOURCES:
        sums: Counter[str] = Counter()
        for each in timings(source):
            sums.update(each.totals.energy)
        columns.append(dict(sums) | {"all": sum(sums.values())})
    head = ["Horowitz, 45 nm", *(str(source["energy"]) for source in SOURCES[1:])]
    levels = ((level, *(f"{sums[level] / 1e6:.1f}" for sums in columns)) for level in columns[0])
    return [("level", *head), *levels]


def distance(layers: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row a size of buffers, and one of all."""
    rows = [
        ("scratchpad, accumulator KiB", "layers", "bytes of DRAM", "largest", "energy", "largest")
    ]
    sizes = {(row["scratchpad"], row["accumulator"]) for row in layers}
    for size in (*sorted(sizes), None):
        some = [row for row in layers if size in (None, (row["scratchpad"], row["accumulator"]))]
        moved = [row["bytes"] / row["bound"] for row in some]
        energy = [row["picojoules"] / row["least"] for row in some]
        cells = (
            f"{of(ratios):.3f}"
            for ratios in (moved, energy)
            for of in (statistics.geometric_mean, max)
        )
        name = f"{size[0] >> 10}, {size[1] >> 10}" if size else "all"
        rows.append((name, str(len(some)), *cells))
    return rows


def far(layers: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row a layer whose memories take more than 1.10 of the least."""
    rows = [
        (
            "layer",
            "batch x m x k x n",
            "scratchpad KiB",
            "energy",
            "bytes of DRAM",
            "tiling",
            "best",
        )
    ]
    for row in layers:
        if row["picojoules"] > 1.1 * row["least"]:
            ratios = row["picojoules"] / row["least"], row["bytes"] / row["bound"]
            sizes = "x".join(map(str, row["sizes"])), str(row["scratchpad"] >> 10)
            cells = (f"{ratio:.2f}" for ratio in ratios)
            rows.append((row["layer"], *sizes, *cells, row["tiling"], row["least_dataflow"]))
    return rows


def flows() -> list[tuple[str, ...]]:
    """Rows of the table of dataflows."""
    head = "model", "dataflow", "cycles", "utilization", "DRAM MB", "on chip uJ"
    rows = [(*head, "buffers uJ", "PEs' memories uJ")]
    for name in MODELS:
        make, dtype = REPORTED[name]
        regions = regions_of(make(), offload_options={"dtype": dtype})
        for flow in ("ws", "os", "is", None, "rs"):
            (point,) = sweep(regions, [{"dtype": dtype, "dataflow": flow}])
            energy = {"spad": 0.0, "network": 0.0, **point.energy}
            levels = (
                sum(energy.values()) - energy["dram"],
                energy["scratchpad"] + energy["accumulator"],
                energy["spad"] + energy["network"],
            )
            cells = f"{point.cycles:,}", f"{point.utilization:.1%}", f"{point.dram_bytes / 1e6:.2f}"
            rows.append((name, flow or "best", *cells, *(f"{pj / 1e6:.0f}" for pj in levels)))
    return rows


def sparse() -> list[tuple[str, ...]]:
    """Rows of the table of pruned weights."""
    rows = [("DMA bytes a cycle", "sparsity", "layers", "cycles", "DRAM MB", "memories uJ")]
    model = REPORTED[MODELS[0]][0]()
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.int8 and values.ndim > 1:
            tensor.CopyFrom(onnx.numpy_helper.from_array(_pruned(values), tensor.name))
    regions = regions_of(model, offload_options={"dtype": "int8"})
    for dma in (16, 64):
        for sparsity in SPARSITIES:
            setting = {"dtype": "int8", "sparsity": sparsity, "dma_bytes_per_cycle": dma}
            (point,) = sweep(regions, [setting])
            layers = sum(row.facts.get("weights") == "2:4" for row in point.layers)
            energy = sum(point.energy[level] for level in LEVELS) / 1e6
            moved = f"{point.dram_bytes / 1e6:.2f}", f"{energy:.0f}"
            counts = f"{layers} of {len(point.layers)}", f"{point.cycles:,}"
            rows.append((str(dma), sparsity, *counts, *moved))
    return rows


def _pruned(weights: np.ndarray) -> np.ndarray:
    """Weights [filters, ...] with 0 for the two smallest of each four of a filter."""
    flat = weights.reshape(len(weights), -1)
    padded = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 4))).reshape(len(flat), -1, 4)
    smallest = np.argsort(np.abs(padded.astype(int)), axis=2)[:, :, :2]
    np.put_along_axis(padded, smallest, 0, axis=2)
    return padded.reshape(len(flat), -1)[:, : flat.shape[1]].reshape(weights.shape)


def plans() -> list[tuple[str, ...]]:
    """Rows of the table of models with and without results that stay on the chip."""
    head = "model", "scratchpad, accumulator KiB", "DRAM MB", "with plan", "cycles", "with plan"
    rows = [(*head, "edges", "whole", "by bands")]
    for name in MODELS:
        make, dtype = REPORTED[name]
        regions = regions_of(make(), offload_options={"dtype": dtype})
        for scratchpad, accumulator in CHIPS:
            sizes = {"scratchpad_bytes": scratchpad << 10, "accumulator_bytes": accumulator << 10}
            options = [SystolicOptions(dtype=dtype, **sizes, fusion=f) for f in (False, True)]
            points = sweep(regions, options)
            edges = [edge for region in regions for edge in plan_of(region, options[1]).edges]
            places = Counter(edge.place for edge in edges)
            moved = (f"{point.dram_bytes / 1e6:.2f}" for point in points)
            cycles = (f"{point.cycles:,}" for point in points)
            counts = (str(n) for n in (len(edges), places["scratchpad"], places["bands"]))
            rows.append((name, f"{scratchpad}, {accumulator}", *moved, *cycles, *counts))
    return rows


def cuts() -> list[float]:
    """Cycles of the best dataflow over those of the best one and way of SCALE-Sim, of each case."""
    best: dict[tuple[str, ...], tuple[int, int]] = {}
    for row in table_rows("scalesim_3_multicore.csv"):
        sizes = [int(row[name]) for name in ("m", "k", "n", "rows", "cols", "arrays")]
        cycles = partition(row["dataflow"], *sizes, "paper").cycles
        key = row["layer"], row["rows"], row["cols"], row["arrays"]
        ours, theirs = best.get(key, (cycles, cycles))
        best[key] = min(ours, cycles), min(theirs, *(int(row[way]) for way in PARTITIONS))
    return [ours / theirs for ours, theirs in best.values()]


if __name__ == "__main__":
    sys.exit(main())
