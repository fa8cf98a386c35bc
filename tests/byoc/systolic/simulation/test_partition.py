"""GEMMs over several arrays: against SCALE-Sim's model of cores, against every cut stepped register by register."""

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import Gemm
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.results.report import layer_rows
from tvm_ext.byoc.systolic.results.scale_sim_report import scale_sim_csv
from tvm_ext.byoc.systolic.rtl import verilog
from tvm_ext.byoc.systolic.simulation.cost import block_of, gemm_cost
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.partition import Block, blocks, partition
from tvm_ext.byoc.systolic.simulation.scale_sim import Memories
from tvm_ext.byoc.systolic.simulation.stepper import step_gemm
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import OptionError

from ..cases import dense, random_int8, table_rows

FLOWS = ("ws", "os", "is")
SMALL = Accelerator(rows=3, cols=5, scratchpad_bytes=2048, accumulator_bytes=1024, arrays=4)


def test_every_row_of_scalesim() -> None:
    """Of its three ways the one that leaves k whole: spatial in os, the first of the spatio-temporal ones in ws, is."""
    rows = table_rows("scalesim_3_multicore.csv")
    assert len(rows) == 360
    for row in rows:
        sizes = [int(row[name]) for name in ("m", "k", "n", "rows", "cols", "arrays")]
        way = "spatial" if row["dataflow"] == "os" else "spatio-temporal1"
        assert partition(row["dataflow"], *sizes, "paper").cycles == int(row[way]), row


@pytest.mark.parametrize("dataflow", FLOWS)
def test_no_cut_is_better(dataflow: str) -> None:
    """Each array of each cut into a rectangle, by the registers: the slowest one says how long the cut takes."""
    rng = np.random.default_rng(ord(dataflow[0]))
    for arrays in (1, 2, 3, 4, 6):
        hardware = Accelerator(rows=2, cols=3, arrays=arrays)
        m, k, n = (int(size) for size in rng.integers(1, 13, 3))
        a, b = random_int8(rng, (m, k)), random_int8(rng, (k, n))
        clocks = []
        for ways in (ways for ways in range(1, arrays + 1) if arrays % ways == 0):
            c, slowest = np.zeros((m, n), np.int32), 0
            for rows, cols in blocks(m, n, Block(0, -(-m // ways), -(-n // (arrays // ways)))):
                c[rows, cols], clock = step_gemm(a[rows], b[:, cols], dataflow, 2, 3, overlapped=True)
                slowest = max(slowest, clock)
            clocks.append(slowest)
            np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
        assert gemm_cost(hardware, dataflow, 0, m, k, n).cycles == min(clocks)


@pytest.mark.parametrize("dataflow", FLOWS)
def test_traffic_is_that_of_the_arrays(dataflow: str) -> None:
    one, sizes = Accelerator(rows=3, cols=5), (11, 7, 23)
    cost = gemm_cost(SMALL, dataflow, 1, *sizes)
    cuts = list(blocks(11, 23, block_of(SMALL, dataflow, *sizes)))
    assert 1 < len(cuts) <= 4
    alone = [gemm_cost(one, dataflow, 1, m.stop - m.start, 7, n.stop - n.start) for m, n in cuts]
    assert cost.macs == sum(each.macs for each in alone) and cost.cycles == max(each.cycles for each in alone)
    for at, (memory, operand, nbytes) in enumerate(cost.traffic):
        assert nbytes == sum(each.traffic[at][2] for each in alone), (memory, operand)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
@pytest.mark.parametrize("dataflow", FLOWS)
def test_programs_have_one_result_in_all_views(dtype: str, dataflow: str) -> None:
    """Tiles that no block divides: values are those of one array, in each bit, by the registers too."""
    rng = np.random.default_rng(3)
    settings = {**SMALL.as_dict(), "dtype": dtype}
    several, one = Accelerator.from_dict(settings), Accelerator.from_dict({**settings, "arrays": 1})
    sizes, dtype = (17, 40, 29), several.tensor_dtype
    x, w = (rng.integers(-128, 128, shape).astype(dtype) / np.dtype(dtype).type(3) for shape in ((17, 40), (40, 29)))
    x, w = x.astype(dtype), w.astype(dtype)
    program = dense(several, sizes, w, dataflow=dataflow)
    y = run(program, {"x": x})["y"]
    np.testing.assert_array_equal(y, run(program, {"x": x}, backend="stepper")["y"])
    alone = dense(one, sizes, w, dataflow=dataflow)
    if dtype == "int8":
        np.testing.assert_array_equal(y, run(alone, {"x": x})["y"])
    assert simulate(program).busy["compute"] < simulate(alone).busy["compute"]


def test_timing_has_the_clocks_of_the_slowest_array() -> None:
    program = dense(SMALL, (17, 40, 29), np.ones((40, 29), np.int8))
    timing = simulate(program)
    for gemm, event in zip(program.instructions, timing.events, strict=True):
        if isinstance(gemm, Gemm):
            cuts = blocks(gemm.m, gemm.n, block_of(SMALL, gemm.dataflow, gemm.m, gemm.k, gemm.n))
            rows, cols = next(cuts)
            a, b = np.ones((rows.stop, gemm.k), np.int8), np.ones((gemm.k, cols.stop), np.int8)
            assert event.end - event.start == step_gemm(a, b, gemm.dataflow, 3, 5, overlapped=True)[1]
    (row,) = layer_rows(timing)
    assert 0 < row.utilization <= row.mapping_efficiency <= 1


def test_a_layer_of_one_tile_is_estimated_as_it_is_timed() -> None:
    hardware = Accelerator(arrays=6, dma_bytes_per_cycle=1024)
    program = dense(hardware, (60, 64, 100), np.ones((64, 100), np.int8))
    facts = program.layers[0].facts
    assert facts["tile"] == [60, 64, 100] and facts["block"] == [30, 34]
    assert facts["estimated_cycles"] == simulate(program).cycles


def test_refusals() -> None:
    with pytest.raises(OptionError, match="arrays=0"):
        Accelerator(arrays=0)
    with pytest.raises(OptionError, match="arrays=4: the buffers"):
        scale_sim_csv(simulate(dense(SMALL, (3, 4, 5))), Memories())
    with pytest.raises(OptionError, match="arrays=4"):
        verilog(SMALL)
