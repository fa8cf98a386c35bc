"""The table of layers against the timing it is made of, and SCALE-Sim's columns."""

import csv
import io

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import matmul
from tvm_ext.byoc.systolic.code.program import Tensor
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.results.report import SCALE_SIM_COLUMNS, layer_rows, scale_sim_csv
from tvm_ext.byoc.systolic.simulation.timing import Timing, simulate


@pytest.fixture(scope="module")
def timing() -> Timing:
    """A large layer that the array bounds, then one of a single row, which the weights bound."""
    layers = [
        matmul("wide", "x", np.ones((64, 64), np.int8), "h", (512, 64, 64), facts={"node": "MatMul_0"}),
        matmul("thin", "r", np.ones((256, 256), np.int8), "y", (1, 256, 256)),
    ]
    tensors = [
        Tensor("x", "input", (512, 64), "int8"),
        Tensor("h", "output", (512, 64), "int32"),
        Tensor("r", "input", (1, 256), "int8"),
        Tensor("y", "output", (1, 256), "int32"),
    ]
    return simulate(lower(layers, tensors, Accelerator(rows=8, cols=8)))


def test_rows(timing: Timing) -> None:
    wide, thin = layer_rows(timing)
    assert (wide.name, wide.facts["node"], wide.facts["m"]) == ("wide", "MatMul_0", 512)
    assert (wide.bound, thin.bound) == ("compute", "memory")
    assert wide.begin == 0 and wide.cycles == thin.begin and thin.begin + thin.cycles == timing.cycles
    assert (wide.macs, thin.macs) == (512 * 64 * 64, 256 * 256)
    assert thin.dram_bytes == 256 * 256 + 256 + 4 * 256
    assert thin.intensity == pytest.approx(256 * 256 / thin.dram_bytes)
    assert 0.5 < wide.utilization <= wide.mapping_efficiency <= 1
    for level, energy in timing.totals.energy.items():
        assert wide.energy[level] + thin.energy[level] == pytest.approx(energy)


def test_columns_of_scale_sim(timing: Timing) -> None:
    header, *rows = csv.reader(io.StringIO(scale_sim_csv(timing)))
    assert header == [*SCALE_SIM_COLUMNS, ""]
    for number, (values, row) in enumerate(zip(rows, layer_rows(timing), strict=True)):
        layer, prefetched, total, stalls = map(int, values[:4])
        assert (layer, prefetched) == (number, row.cycles)
        assert total < prefetched and total - stalls == row.array_cycles
        overall, mapping, compute = map(float, values[4:7])
        assert 0 < overall <= compute <= mapping <= 100
