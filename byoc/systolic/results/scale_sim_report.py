"""Layers as SCALE-Sim 3 has them: read from its topology files, and counted as in its COMPUTE_REPORT.csv."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Iterable
from dataclasses import dataclass

from ....core.errors import OptionError
from ..config import Accelerator
from ..simulation.cycles import mapping_efficiency
from ..simulation.scale_sim import MOST_ELEMENTS, Memories, kept_rows, scale_sim_cycles, window_addresses
from ..simulation.timing import Timing
from .report import LayerRow, layer_rows

#: As SCALE-Sim 3.0.0 writes them; each line there ends with a comma.
SCALE_SIM_COLUMNS = (
    "LayerID", "Total Cycles (incl. prefetch)", "Total Cycles", "Stall Cycles", "Overall Util %",
    "Mapping Efficiency %", "Compute Util %",
)  # fmt: skip
_FIX = "Layer, M, N, K; or Layer, height, width, filter height, filter width, channels, filters, stride; perhaps 2:4"


@dataclass(frozen=True)
class ScaleSimLayer:
    """A convolution without padding; a GEMM of m x k x n has the sizes (m, k, 1, k, 1, n, 1).

    Attributes:
        sizes: height and width of the input, height and width of the filters, channels, filters, stride.
        sparsity: (N, M): N of each M rows of weights are kept.
        dataflow: "ws", "os" or "is".
        batch: how many of it there are, one after the other.

    Raises:
        OptionError: a size below 1, a filter larger than the input, or more than MOST_ELEMENTS of A.
    """

    sizes: tuple[int, int, int, int, int, int, int]
    sparsity: tuple[int, int] = (1, 1)
    dataflow: str = "ws"
    batch: int = 1

    def __post_init__(self) -> None:
        height, width, filter_height, filter_width, channels, _, stride = self.sizes
        if min(self.sizes) < 1 or filter_height > height or filter_width > width:
            raise OptionError(f"layer {self.sizes}: sizes from 1, and no filter larger than its input, are needed")
        elements = (height // stride + 1) * (width // stride + 1) * filter_height * filter_width * channels
        if elements > MOST_ELEMENTS:
            raise OptionError(f"layer {self.sizes}: A has {elements} elements; {MOST_ELEMENTS} are the most")

    @classmethod
    def of(cls, row: LayerRow, sparsity: tuple[int, int] = (1, 1)) -> ScaleSimLayer:
        """The GEMMs of a layer that was timed."""
        batch, m, k, n = (row.facts[size] for size in ("batch", "m", "k", "n"))
        return cls((m, k, 1, k, 1, n, 1), sparsity, row.facts["dataflow"], batch)

    def counted(self, rows: int, cols: int, memories: Memories) -> tuple[float, ...]:
        """Cycles with prefetch, cycles, stalls, and three shares in percent, on an array of rows x cols PEs.

        Raises:
            OptionError: as :func:`..simulation.scale_sim.scale_sim_cycles`.
        """
        return _counted(self, rows, cols, memories)


@functools.lru_cache(maxsize=256)
def _counted(layer: ScaleSimLayer, rows: int, cols: int, memories: Memories) -> tuple[float, ...]:
    height, width, filter_height, filter_width, channels, n, stride = layer.sizes
    a = window_addresses(height, width, (filter_height, filter_width), channels, stride)
    cycles = scale_sim_cycles(layer.dataflow, a, n, rows, cols, memories, layer.sparsity)
    (m, k), kept = a.shape, len(kept_rows(a.shape[1], layer.sparsity))
    mapped = mapping_efficiency(layer.dataflow, m, kept, n, rows, cols)
    shares = _shares(m * k * n, rows * cols, cycles.total, cycles.stalls, mapped)
    return *(layer.batch * each for each in (cycles.with_prefetch, cycles.total, cycles.stalls)), *shares


def _shares(macs: int, pes: int, total: int, stalls: int, mapped: float) -> tuple[float, ...]:
    return tuple(100 * share for share in (macs / (total * pes), mapped, macs / ((total - stalls) * pes)))


def read_topology(text: str, dataflow: str = "ws") -> list[ScaleSimLayer]:
    """The layers of a topology file of SCALE-Sim, of convolutions or of GEMMs; its first line is a head.

    Raises:
        OptionError: a line is no layer; names it. Or there is no layer.
    """
    layers = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        _, *words = (word.strip() for word in line.rstrip(", \t").split(","))
        nm = words.pop().split(":") if words and ":" in words[-1] else ["1", "1"]
        if not line.strip():
            continue
        if len(words) not in (3, 7) or len(nm) != 2 or not all(word.isdecimal() for word in (*words, *nm)):
            raise OptionError(f"line {number} of the topology, {line!r}, is no layer", fix=f"write {_FIX}")
        h, w, *rest = map(int, words)
        sizes = (h, w, *rest) if rest[1:] else (h, rest[0], 1, rest[0], 1, w, 1)
        layers.append(ScaleSimLayer(sizes, (int(nm[0]), int(nm[1])), dataflow))  # type: ignore[arg-type]
    if not layers:
        raise OptionError("the topology has no layer behind its first line, the head", fix=f"write {_FIX}")
    return layers


def scale_sim_csv(timing: Timing, memories: Memories | None = None, sparsity: tuple[int, int] = (1, 1)) -> str:
    """The table in SCALE-Sim's columns. Layers of the vector unit alone have no line.

    Args:
        memories: None: the cycles of this timing. "Total Cycles" begin with the first GEMM, those "incl. prefetch" with
            its first load; a stall is a cycle of them in which the array does not work. Else the cycles that SCALE-Sim
            counts of the same GEMMs with these memories (:func:`..simulation.scale_sim.scale_sim_cycles`).
        sparsity: (N, M) of the weights there.

    Raises:
        OptionError: there are memories, and several arrays.
    """
    rows, hardware = [row for row in layer_rows(timing) if row.array_cycles], timing.program.accelerator
    if memories is None:
        return report_csv(_timed(row, hardware.macs_per_cycle) for row in rows)
    array = one_array(hardware)
    return report_csv(ScaleSimLayer.of(row, sparsity).counted(*array, memories) for row in rows)


def one_array(hardware: Accelerator) -> tuple[int, int]:
    """Rows and columns of the array of an accelerator; raises OptionError where there are several."""
    if hardware.arrays > 1:
        raise OptionError(f"arrays={hardware.arrays}: the buffers that SCALE-Sim counts feed one", fix="give arrays=1")
    return hardware.rows, hardware.cols


def report_csv(lines: Iterable[tuple[float, ...]]) -> str:
    """COMPUTE_REPORT.csv of what :meth:`ScaleSimLayer.counted` gives of each layer."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=",\n")
    writer.writerow(SCALE_SIM_COLUMNS)
    writer.writerows([n, *line[:3], *(f"{share:.4f}" for share in line[3:])] for n, line in enumerate(lines))
    return text.getvalue()


def _timed(row: LayerRow, pes: int) -> tuple[float, ...]:
    total = row.begin + row.cycles - row.compute_begin
    stalls = total - row.array_cycles
    return row.cycles, total, stalls, *_shares(row.macs, pes, total, stalls, row.mapping_efficiency)
