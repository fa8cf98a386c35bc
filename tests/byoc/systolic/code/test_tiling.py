"""The search for tilings: what it takes is legal, what it counts is right, what it finds is near the best."""

import itertools
import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.offloading.mapping import program_of
from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import Matrix, Step, matmul
from tvm_ext.byoc.systolic.code.problem import GemmProblem
from tvm_ext.byoc.systolic.code.program import Tensor
from tvm_ext.byoc.systolic.code.tiling import (
    ORDERS,
    buffer_counts,
    estimate,
    is_legal,
    load_counts,
    loop_extents,
    scratchpad_need,
    search,
    sum_buffers,
)
from tvm_ext.byoc.systolic.config import Accelerator, EnergyTable
from tvm_ext.byoc.systolic.simulation.cycles import gemm_cycles
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import OptionError, ProgramError

from ..cases import bounded_problem, dense, energy_bounds, mapping_bounds
from ..races import find_races

SMALL = Accelerator(rows=4, cols=4, scratchpad_bytes=2048, accumulator_bytes=1024, dma_latency=10)
PROBLEMS = [
    GemmProblem(m=1, k=1, n=1),
    GemmProblem(m=1, k=512, n=1000, rows=1, vector_steps=2, out_bytes=1),
    GemmProblem(m=37, k=53, n=29, tile_bytes=4, vector_steps=1),
    GemmProblem(m=3, k=17, n=5, batch=6, a_batches=6, b_batches=3, row_batches=2, rows=2),
    GemmProblem(m=70, k=9, n=8, batch=2, a_batches=2, parts=2),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("hardware", [SMALL, Accelerator(), Accelerator(dtype="float32", cols=3)], ids=["s", "d", "f"])
def test_what_is_found_is_legal_and_sorted(problem: GemmProblem, hardware: Accelerator) -> None:
    result = search(problem, hardware)
    assert list(result[1:]) == sorted(result[1:]) and result[0].cycles <= 1.02 * min(each.cycles for each in result)
    for tiling in result:
        m, k, n = tiling.m, tiling.k, tiling.n
        assert 1 <= m <= problem.m and 1 <= k <= problem.k and 1 <= n <= problem.n
        counts = buffer_counts(problem, (m, k, n), tiling.stays)
        assert (counts["a"] * m * k + counts["b"] * k * n) * hardware.itemsize <= hardware.scratchpad_bytes
        assert sum_buffers(hardware, (m, k, n)) * m * n * 4 <= hardware.accumulator_bytes
        assert is_legal(problem, hardware, (m, k, n), tiling.stays)


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_a_dataflow_that_was_asked_for(dataflow: str) -> None:
    assert {tiling.dataflow for tiling in search(PROBLEMS[2], SMALL, dataflow)} == {dataflow}


def test_the_best_of_three_dataflows_is_the_best() -> None:
    """Of few cycles; and of these none takes less energy, by the timing view of its program."""
    for sizes in ((37, 53, 29), (64, 48, 40), (21, 90, 33)):
        w, energies = np.zeros((sizes[1], sizes[2]), np.int8), {}
        for dataflow in (None, "ws", "os", "is"):
            timing = simulate(dense(SMALL, sizes, w, (), "int8", dataflow=dataflow))
            spent = timing.totals.energy
            memories = sum(spent[level] for level in ("dram", "scratchpad", "accumulator"))
            energies[dataflow] = timing.program.layers[0].facts["estimated_cycles"], memories
        fastest = min(cycles for cycles, _ in energies.values())
        assert energies[None][0] <= 1.02 * fastest
        assert energies[None][1] <= min(energy for cycles, energy in energies.values() if cycles <= 1.02 * fastest)


def test_what_memories_take_decides() -> None:
    """A chip whose accumulators are dear has sums that stay in the PEs; one whose scratchpad is, fewer reads of it."""
    problem = GemmProblem(m=64, k=96, n=64, out_bytes=1)
    dear = search(problem, replace(SMALL, energy=EnergyTable(accumulator_byte=1e4)))[0]
    cheap = search(problem, replace(SMALL, energy=EnergyTable(accumulator_byte=0.0, scratchpad_byte=1e4)))[0]
    assert dear.dataflow == "os" and cheap.dataflow != "os"


def walked_loads(problem: GemmProblem, tile: tuple[int, int, int], order: str, stays: str) -> dict[str, int]:
    """Counts by walking the loops: a tile is loaded where it is none of those used last, as many as have a buffer."""
    extents, buffers = loop_extents(problem, tile), buffer_counts(problem, tile, stays)
    k_tiles = extents["k"] // problem.parts
    counts = {"a": 0, "b": 0, "rows": 0}
    used: dict[str, list[Any]] = {name: [] for name in counts}
    for point in itertools.product(*(range(extents[loop]) for loop in order)):
        at = dict(zip(order, point, strict=True))
        now: dict[str, Any] = {
            "a": (at["b"] % problem.a_batches, at["m"], at["k"] % k_tiles),
            "b": (at["b"] % problem.b_batches, at["k"], at["n"]),
            "rows": (at["b"] % problem.row_batches, at["n"]),
        }
        for name in counts:
            counts[name] += now[name] not in used[name]
            used[name] = [*(held for held in used[name] if held != now[name]), now[name]][-buffers[name] :]
    return counts


@pytest.mark.parametrize("stays", ["", "a", "b"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_loads_are_those_of_the_loops(problem: GemmProblem, order: str, stays: str) -> None:
    for parts in itertools.product((1, 2, 3), repeat=3):
        sizes = zip((problem.m, problem.k, problem.n), parts, strict=True)
        m, k, n = (-(-size // part) for size, part in sizes)
        assert load_counts(problem, (m, k, n), order, stays) == walked_loads(problem, (m, k, n), order, stays)


@pytest.mark.parametrize("sizes", [(384, 768, 768), (784, 1152, 128), (49, 4608, 512)], ids=str)
@pytest.mark.parametrize("scratchpad", [64, 256])
def test_bytes_are_those_of_the_timing_view(sizes: tuple[int, int, int], scratchpad: int) -> None:
    """To the byte where tiles divide; and a panel that stays is loaded once."""
    hardware = Accelerator(scratchpad_bytes=scratchpad << 10)
    m, k, n = sizes
    tensors = [Tensor("x", "input", (m, k), "int8"), Tensor("y", "output", (m, n), "int8")]
    program = lower([matmul("fc", "x", np.zeros((k, n), "int8"), "y", sizes)], tensors, hardware)
    best = search(GemmProblem(m=m, k=k, n=n, out_bytes=1), hardware)[0]
    moved = simulate(program).totals.traffic
    assert sum(moved["dram", name] for name in ("a", "b", "output")) == pytest.approx(best.dram_bytes, rel=0.01)
    if best.stays:
        assert moved["dram", best.stays] == {"a": m * k, "b": k * n}[best.stays]


def test_compute_cycles_are_the_sum_over_the_tiles() -> None:
    """Edges too: 10 x 11 x 13 in tiles of 4 x 5 x 6."""
    problem, tile = GemmProblem(m=10, k=11, n=13, batch=2, vector_steps=3), (4, 5, 6)
    pieces = [[min(t, size - at) for at in range(0, size, t)] for size, t in zip((10, 11, 13), tile, strict=True)]
    for dataflow, order in itertools.product(("ws", "os", "is"), ORDERS):
        gemms = sum(gemm_cycles(dataflow, *sizes, 4, 4, "overlapped") for sizes in itertools.product(*pieces))
        vectors = sum(3 * -(-m * n // 16) for m in pieces[0] for n in pieces[2])
        compute = estimate(problem, SMALL, dataflow, order, tile).compute
        assert 2 * gemms < compute <= 2 * (gemms + vectors)


def test_bounds_of_the_estimate() -> None:
    """No estimate is below the array's peak, or below moving each operand once."""
    for problem in PROBLEMS:
        for tiling in search(problem, SMALL):
            nbytes = problem.m * problem.k + problem.k * problem.n + problem.m * problem.n * problem.out_bytes
            assert tiling.cycles >= max(problem.macs / 16, nbytes / 16)
            assert tiling.cycles >= max(tiling.compute, tiling.load, tiling.store)


@pytest.mark.parametrize("dma", [2, 16, 64], ids="{} bytes a cycle".format)
@pytest.mark.parametrize("sizes", [(784, 64, 128), (196, 1152, 256), (1, 512, 1000), (100, 37, 50)], ids=str)
def test_the_estimate_is_near_the_timing_view(sizes: tuple[int, int, int], dma: int) -> None:
    """Bound by the array or by the DMA, many steps or few: at most a tenth from the simulated cycles."""
    m, k, n = sizes
    steps = (Step("dequantize", row=np.ones(n, "float32")), Step("relu"), Step("quantize"))
    layer = matmul("dense", "x", np.zeros((k, n), "int8"), "y", sizes, steps=steps)
    tensors = [Tensor("x", "input", (m, k), "int8"), Tensor("y", "output", (m, n), "int8")]
    program = lower([layer], tensors, Accelerator(dma_bytes_per_cycle=dma))
    assert program.layers[0].facts["estimated_cycles"] == pytest.approx(simulate(program).cycles, rel=0.1)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32"])
@pytest.mark.parametrize("latency", [0, 100, 400])
def test_the_estimate_of_one_tile_is_the_timing_view(dtype: str, latency: int) -> None:
    """However small, constant or computed, with a row and a residual: each load is counted once."""
    hardware = Accelerator(dtype=dtype, dma_latency=latency)
    for m, k, n in ((1, 1, 1), (3, 34, 79), (41, 67, 1), (51, 90, 42)):
        b = np.zeros((k, n), hardware.tensor_dtype)
        residual = Step("add", tile=Matrix("r", n))
        rows = (Step("dequantize"),) if dtype == "int8" else (Step("add", row=np.ones(n, "float32")),)
        for steps, right in ((), b), ((), "w"), ((*rows, residual, Step("relu")), b):
            tensors = [Tensor("x", "input", (m, k), hardware.tensor_dtype), Tensor("r", "input", (m, n), "float32")]
            tensors.append(Tensor("w", "input", (k, n), hardware.tensor_dtype))
            tensors.append(Tensor("y", "output", (m, n), "float32" if steps else hardware.accumulator_dtype))
            program = lower([matmul("fc", "x", right, "y", (m, k, n), steps=steps)], tensors, hardware)
            (facts,) = (layer.facts for layer in program.layers)
            if facts["tile"] == [m, k, n]:
                assert facts["estimated_cycles"] == simulate(program).cycles
            else:
                assert facts["estimated_cycles"] == pytest.approx(simulate(program).cycles, rel=0.15)


@pytest.mark.parametrize("seed", range(6))
def test_near_the_best_of_random_tiles(seed: int) -> None:
    """Against 500 legal tiles at random the search, which tries few, loses at most a twentieth."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(30, 200, 3)
    problem = GemmProblem(*(int(size) for size in sizes), vector_steps=1, out_bytes=1)
    tiles = [tuple(int(size) for size in tile) for tile in 1 + rng.integers(0, sizes, (20000, 3)) % 64]
    legal = [tile for tile in tiles if is_legal(problem, SMALL, tile)][:500]
    assert len(legal) == 500
    best = min(
        estimate(problem, SMALL, dataflow, order, tile).cycles
        for tile in legal
        for dataflow, order in itertools.product(("ws", "os", "is"), ORDERS)
    )
    assert search(problem, SMALL)[0].cycles <= 1.05 * best


def test_bytes_against_the_best_mappings() -> None:
    """Of layers of ResNet-18 and BERT: in the geometric mean within a tenth of accelforge's optimum, never below it."""
    ratios = []
    for row in mapping_bounds():
        problem, hardware = bounded_problem(row)
        ratios.append(search(problem, hardware)[0].dram_bytes / int(row["dram_bytes"]))
    assert len(ratios) == 60 and min(ratios) >= 1
    assert math.exp(statistics.fmean(map(math.log, ratios))) <= 1.10


def test_energy_against_the_best_mappings() -> None:
    """What the memories take for the programs of these layers: in the geometric mean within a tenth of the least."""
    ratios = []
    for row in energy_bounds():
        problem, hardware = bounded_problem(row)
        energy = simulate(program_of(row["layer"], problem, hardware)).totals.energy
        memories = sum(energy[level] for level in ("dram", "scratchpad", "accumulator"))
        ratios.append(memories / int(row["picojoules"]))
    assert len(ratios) == 60 and min(ratios) >= 1 - 1e-6
    assert math.exp(statistics.fmean(map(math.log, ratios))) <= 1.10


def test_a_tile_that_fits_no_scratchpad() -> None:
    hardware = Accelerator(rows=4, cols=4, scratchpad_bytes=64)
    with pytest.raises(ProgramError, match="no tile of a GEMM of 9x9x9 fits half of a scratchpad of 64") as caught:
        search(GemmProblem(m=9, k=9, n=9), hardware)
    need = scratchpad_need(GemmProblem(m=9, k=9, n=9), hardware, (1, 1, 1))
    assert f"scratchpad_bytes={need}" in str(caught.value)
    enough = Accelerator(rows=4, cols=4, scratchpad_bytes=need)
    assert search(GemmProblem(m=9, k=9, n=9), enough)


def test_an_accumulator_of_one_tile() -> None:
    """The next tile begins when the last one is stored: equal values, no race, and the estimate counts the waiting."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((33, 40), (40, 23)))
    for words in (1, 7, 24):
        hardware = Accelerator(rows=4, cols=4, scratchpad_bytes=4096, accumulator_bytes=4 * words, dma_latency=10)
        program = dense(hardware, (33, 40, 23), w)
        (facts,) = (layer.facts for layer in program.layers)
        np.testing.assert_array_equal(run(program, {"x": x})["y"], x.astype(np.int32) @ w)
        assert not find_races(program)
        assert facts["estimated_cycles"] == pytest.approx(simulate(program).cycles, rel=0.1)
    single = estimate(PROBLEMS[2], SMALL, "ws", "bmnk", (16, 53, 16))
    assert sum_buffers(SMALL, (16, 53, 16)) == 1 and sum_buffers(SMALL, (8, 53, 16)) == 2
    assert single.cycles > single.compute + 5 * SMALL.dma_latency


def test_unknown_dataflow() -> None:
    with pytest.raises(OptionError, match="dataflow='xs'"):
        search(PROBLEMS[0], SMALL, "xs")
