"""The table of layers against the timing it is made of."""

import pytest

from tvm_ext.byoc.systolic.results.report import layer_rows
from tvm_ext.byoc.systolic.simulation.timing import Timing


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
