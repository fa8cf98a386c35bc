"""The timing view: bounds that hold for every program, what double buffering brings, the sums, deadlock, the trace."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import QUEUES, Finish, Gemm, Load, Sync
from tvm_ext.byoc.systolic.code.layer import Step
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator, EnergyTable
from tvm_ext.byoc.systolic.results.timeline import chrome_trace
from tvm_ext.byoc.systolic.simulation.cycles import gemm_cycles
from tvm_ext.byoc.systolic.simulation.stepper import step_gemm
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import ProgramError

from ..cases import SIZES, SMALL_FLOAT, SMALL_INT8, dense


def weights(sizes: tuple[int, int, int], dtype: str) -> np.ndarray:
    return np.ones(sizes[1:], dtype)


def serial(program: Program) -> Program:
    """The same work with a SYNC behind every instruction: nothing overlaps."""
    code = [dataclasses.replace(i, tokens=0) for i in program.instructions[:-1]]
    woven = [each for instruction in code for each in (instruction, Sync())]
    return dataclasses.replace(program, instructions=(*woven, Finish()), layers=())


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
@pytest.mark.parametrize("accelerator", [SMALL_INT8, SMALL_FLOAT], ids=["int8", "float32"])
def test_bounds(sizes: tuple[int, int, int], dataflow: str, accelerator: Accelerator) -> None:
    program = dense(accelerator, sizes, weights(sizes, accelerator.dtype), dataflow=dataflow)
    timing = simulate(program)
    m, k, n = sizes
    assert timing.totals.macs == m * k * n
    assert max(timing.totals.compute_cycles, timing.totals.transfer_cycles) <= timing.cycles
    assert timing.cycles <= timing.totals.serial_cycles == simulate(serial(program)).cycles
    for queue in QUEUES:
        assert timing.busy[queue] + sum(timing.stalls[queue].values()) == timing.cycles
    assert 0 < timing.utilization <= 1 <= timing.overlap <= 3


def test_double_buffering_helps() -> None:
    program = dense(SMALL_INT8, (64, 64, 64), weights((64, 64, 64), "int8"))
    assert simulate(program).cycles < 0.6 * simulate(serial(program)).cycles


def test_one_tile_by_hand() -> None:
    """Two loads, one GEMM, one store; no two of them can overlap."""
    accelerator = Accelerator(rows=4, cols=4, dma_bytes_per_cycle=4, dma_latency=10)
    timing = simulate(dense(accelerator, (4, 4, 4), weights((4, 4, 4), "int8"), dataflow="ws"))
    gemm = gemm_cycles("ws", 4, 4, 4, 4, 4, model="overlapped")
    assert timing.cycles == 2 * (10 + 4) + gemm + (10 + 16)
    assert timing.busy == {"load": 28, "compute": gemm, "store": 26, "dma": 24}
    assert timing.stalls["compute"] == {"token from load": 28, "FINISH": 26}
    assert timing.stalls["store"] == {"token from compute": 28 + gemm}


@pytest.mark.parametrize("model", ["overlapped", "physical"])
@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_gemms_take_the_cycles_of_the_stepper(dataflow: str, model: str) -> None:
    accelerator = Accelerator(rows=3, cols=5, scratchpad_bytes=1024, accumulator_bytes=512, compute_model=model)
    program = dense(accelerator, (17, 40, 11), weights((17, 40, 11), "int8"), dataflow=dataflow)
    timing = simulate(program)
    gemms = [(i, event) for i, event in zip(program.instructions, timing.events, strict=True) if isinstance(i, Gemm)]
    assert len({(gemm.m, gemm.k, gemm.n) for gemm, _ in gemms}) > 1
    for gemm, event in gemms:
        a, b = np.ones((gemm.m, gemm.k), np.int8), np.ones((gemm.k, gemm.n), np.int8)
        stepped = step_gemm(a, b, dataflow, 3, 5, overlapped=model == "overlapped")[1]
        assert event.end - event.start == stepped


def test_traffic_and_energy() -> None:
    """In DRAM each byte once; energies are counts times the table."""
    table = EnergyTable(mac_int8=1, vector_op=10, scratchpad_byte=100, accumulator_byte=1000, dram_byte=10000)
    accelerator = Accelerator(energy=table)
    steps = [Step("dequantize", row=np.ones(24, np.float32)), Step("quantize")]
    program = dense(accelerator, (20, 40, 24), weights((20, 40, 24), "int8"), steps, "int8", dataflow="os")
    totals = simulate(program).totals
    dram = {operand: n for (memory, operand), n in totals.traffic.items() if memory == "dram"}
    assert dram == {"a": 20 * 40, "b": 40 * 24, "epilogue": 4 * 24, "output": 20 * 24}
    assert totals.vector_ops == 2 * 20 * 24
    assert totals.energy == {
        "array": 20 * 40 * 24,
        "vector": 10 * totals.vector_ops,
        "scratchpad": 100 * totals.bytes_at("scratchpad"),
        "accumulator": 1000 * totals.bytes_at("accumulator"),
        "dram": 10000 * sum(dram.values()),
    }


def test_the_compute_model_counts() -> None:
    sizes = (64, 64, 64)
    cycles = [
        simulate(dense(Accelerator(rows=4, cols=4, compute_model=model), sizes, weights(sizes, "int8"))).cycles
        for model in ("overlapped", "physical")
    ]
    assert cycles[0] < cycles[1]


def test_loads_and_stores_share_the_channel() -> None:
    sizes = (256, 4, 64)
    timing = simulate(dense(Accelerator(dma_bytes_per_cycle=1, accumulator_bytes=4096), sizes, weights(sizes, "int8")))
    assert timing.busy["dma"] <= timing.cycles
    assert any("DMA channel" in causes for causes in timing.stalls.values())


def test_layers() -> None:
    program = dense(SMALL_INT8, (33, 65, 17), weights((33, 65, 17), "int8"))
    timing, (layer,) = simulate(program), program.layers
    assert timing.layer_totals(layer) == timing.totals
    assert timing.layer_cycles(layer) == (0, timing.cycles)


def test_deadlock_names_the_instruction() -> None:
    """The GEMM waits for a load that itself waits for the GEMM."""
    code = (Load("a", 0, 0, 4, 4, 0, 4, 1, tokens=2 | 8), Gemm("ws", 0, 0, 64, 0, 4, 4, 4, tokens=1 | 4), Finish())
    program = Program(SMALL_INT8, (Tensor("x", "input", (4, 4), "int8"),), (), code)
    expected = (
        r"instruction 0 \(LOAD operand=a .*pop.next push.next\): deadlock: it waits for a token from the compute queue"
        r".*instruction 1 waits for a token from the load queue; instruction 2 waits for the load and compute queue"
    )
    with pytest.raises(ProgramError, match=expected):
        simulate(program)


def test_chrome_trace() -> None:
    program = dense(Accelerator(frequency_hz=2e9), (33, 65, 17), weights((33, 65, 17), "int8"))
    timing = simulate(program)
    events = json.loads(chrome_trace(timing))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    work = [event for event in spans if event["tid"] < len(QUEUES)]
    assert len(work) == len(program.instructions) - 1  # all but FINISH
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(timing.cycles / 2e3)
    assert {event["name"] for event in work} == {"LOAD", "LOAD.CONST", "GEMM", "STORE"}
    for track in {event["tid"] for event in spans}:
        on_track = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if e["tid"] == track)
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in itertools.pairwise(on_track))
