"""SCALE-Sim's columns of a timing, by the timing itself and by SCALE-Sim's memories; topology files."""

import csv
import io

import pytest

from tvm_ext.byoc.systolic.results.report import layer_rows
from tvm_ext.byoc.systolic.results.scale_sim_report import (
    SCALE_SIM_COLUMNS,
    ScaleSimLayer,
    read_topology,
    scale_sim_csv,
)
from tvm_ext.byoc.systolic.simulation.scale_sim import Memories
from tvm_ext.byoc.systolic.simulation.timing import Timing
from tvm_ext.core.errors import OptionError


def test_columns_of_scale_sim(timing: Timing) -> None:
    header, *rows = csv.reader(io.StringIO(scale_sim_csv(timing)))
    assert header == [*SCALE_SIM_COLUMNS, ""]
    for number, (values, row) in enumerate(zip(rows, layer_rows(timing), strict=True)):
        layer, prefetched, total, stalls = map(int, values[:4])
        assert (layer, prefetched) == (number, row.cycles)
        assert total < prefetched and total - stalls == row.array_cycles
        overall, mapping, compute = map(float, values[4:7])
        assert 0 < overall <= compute <= mapping <= 100


def test_lines_of_a_timing_are_those_of_its_gemms(timing: Timing) -> None:
    topology = read_topology("Layer,M,N,K\nwide, 512, 64, 64, 2:4,\n\nthin, 1, 256, 256, 2:4", "os")
    flows = [row.facts["dataflow"] for row in layer_rows(timing)]
    assert [layer.sizes for layer in topology] == [(512, 64, 1, 64, 1, 64, 1), (1, 256, 1, 256, 1, 256, 1)]
    lines = list(csv.reader(io.StringIO(scale_sim_csv(timing, Memories(words_per_cycle=4), (2, 4)))))[1:]
    for flow, layer, line in zip(flows, topology, lines, strict=True):
        counted = ScaleSimLayer(layer.sizes, (2, 4), flow).counted(8, 8, Memories(words_per_cycle=4))
        assert [float(word) for word in line[1:7]] == pytest.approx(counted, abs=5e-5)
        doubled = ScaleSimLayer(layer.sizes, (2, 4), flow, batch=2).counted(8, 8, Memories(words_per_cycle=4))
        assert doubled == (*(2 * cycles for cycles in counted[:3]), *counted[3:])


@pytest.mark.parametrize(
    "sizes", [(2, 2, 3, 1, 1, 1, 1), (1, 1, 1, 1, 1, 0, 1), (1 << 14, 1 << 14, 1, 1 << 14, 1, 1, 1)]
)
def test_sizes_that_are_none(sizes: tuple[int, int, int, int, int, int, int]) -> None:
    with pytest.raises(OptionError):
        ScaleSimLayer(sizes)


@pytest.mark.parametrize("text", ["", "Layer,M,N,K", "Layer,M,N,K\n\n"])
def test_a_topology_without_layers(text: str) -> None:
    with pytest.raises(OptionError, match="no layer behind its first line"):
        read_topology(text)
