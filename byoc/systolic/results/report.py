"""A timing as a table, one row a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.errors import OptionError
from ..code.isa import Conv, Gemm, Reduce, Vector
from ..code.program import Layer, Program, program_from_bytes
from ..simulation.cost import block_of
from ..simulation.cycles import mapping_efficiency
from ..simulation.row_stationary import RowShape, block_mapping
from ..simulation.timing import Timing, simulate


@dataclass(frozen=True)
class LayerRow:
    """One layer as it was timed.

    Attributes:
        name, facts: of the layer; facts hold its sizes, dataflow, tile, and what the partitioner put there.
        begin, cycles: when its first load starts, and how long it takes until its last store is done.
        compute_begin: when its first GEMM, CONV or REDUCE starts.
        array_cycles, vector_cycles: how long array and vector unit work.
        macs, dram_bytes: multiply-adds of the array; bytes between DRAM and the chip.
        energy: picojoules by level.
        utilization: multiply-adds of all that the PEs could do in `cycles`.
        mapping_efficiency: mean part of the PEs, of all arrays, that a fold uses; of products that PEs could do in the
            windows of a row-stationary one, those that there are.
        bound: side of the roofline: "compute" where multiply-adds at full speed would take longer than the transfers.
    """

    name: str
    facts: dict[str, Any]
    begin: int
    cycles: int
    compute_begin: int
    array_cycles: int
    vector_cycles: int
    macs: int
    dram_bytes: int
    energy: dict[str, float]
    utilization: float
    mapping_efficiency: float
    bound: str

    @property
    def intensity(self) -> float:
        """Multiply-adds for each byte between DRAM and the chip."""
        return self.macs / self.dram_bytes if self.dram_bytes else float("inf")


def layer_rows(timing: Timing) -> list[LayerRow]:
    """One row for each layer of the program, in order."""
    return [_row(timing, layer) for layer in timing.program.layers]


def _row(timing: Timing, layer: Layer) -> LayerRow:
    hardware = timing.program.accelerator
    begin, end = timing.layer_cycles(layer)
    totals = timing.layer_totals(layer)
    span = range(layer.begin, layer.end)
    cycles_of = {
        kind: sum(timing.costs[i].cycles for i in span if isinstance(timing.program.instructions[i], kind))
        for kind in (Gemm, Conv, Reduce, Vector)
    }
    works = (timing.events[i].start for i in span if isinstance(timing.program.instructions[i], Gemm | Conv | Reduce))
    dram = totals.bytes_at("dram")
    peak_compute, peak_transfer = totals.macs / hardware.macs_per_cycle, dram / hardware.dma_bytes_per_cycle
    return LayerRow(
        name=layer.name, facts=dict(layer.facts), begin=begin, cycles=end - begin,
        compute_begin=min(works, default=begin), array_cycles=cycles_of[Gemm] + cycles_of[Conv],
        vector_cycles=cycles_of[Reduce] + cycles_of[Vector], macs=totals.macs, dram_bytes=dram,
        energy=dict(totals.energy),
        utilization=totals.macs / ((end - begin) * hardware.macs_per_cycle) if end > begin else 0.0,
        mapping_efficiency=_mapping_efficiency(timing, layer),
        bound="compute" if peak_compute >= peak_transfer else "memory",
    )  # fmt: skip


def _mapping_efficiency(timing: Timing, layer: Layer) -> float:
    """Of the GEMMs and convolutions of a layer, weighted by their cycles; an array without a block maps nothing."""
    hardware = timing.program.accelerator
    weighted = cycles = 0.0
    for index in range(layer.begin, layer.end):
        gemm = timing.program.instructions[index]
        if isinstance(gemm, Conv):
            (m, _, n), (block, mapping) = gemm.sizes, block_mapping(RowShape.of(gemm), hardware)
            used = mapping.efficiency * mapping.active_pes[0] / (hardware.rows * hardware.cols)
        elif isinstance(gemm, Gemm):
            m, n, block = gemm.m, gemm.n, block_of(hardware, gemm.dataflow, gemm.m, gemm.depth, gemm.n)
            used = mapping_efficiency(gemm.dataflow, block.m, gemm.depth, block.n, hardware.rows, hardware.cols)
        else:
            continue
        busy = timing.costs[index].cycles
        weighted += busy * used * m * n / (block.m * block.n * hardware.arrays)
        cycles += busy
    return weighted / cycles if cycles else 0.0


# ------------------------------------------------------------ of compiled models
def programs_of(compiled: Any) -> dict[str, Program]:
    """Region -> its program.

    Args:
        compiled: what `tvm_ext.compile(model, offload="systolic")` or `tvm_ext.load` gives.

    Raises:
        OptionError: nothing of the model was offloaded.
        ProgramError: it was, to another back end.
    """
    programs = compiled.offload_programs()
    if not programs:
        raise OptionError(
            "nothing of this model runs on the systolic array",
            fix='compile(..., offload="systolic", offload_options={"when": "always"}); offload_report() says why',
        )
    return {region: program_from_bytes(data) for region, data in programs.items()}


def timings_of(compiled: Any) -> dict[str, Timing]:
    """Region -> when each of its instructions runs; raises as :func:`programs_of`."""
    return {region: simulate(program) for region, program in programs_of(compiled).items()}


def rows_of(compiled: Any) -> list[LayerRow]:
    """A row a layer, over all regions; raises as :func:`programs_of`."""
    return [row for timing in timings_of(compiled).values() for row in layer_rows(timing)]
