"""Weights of 2:4: tiles that come back, programs with the numbers of dense ones in every view, and what stays dense."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests import onnx_graphs as graphs
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.byoc.systolic.code.assembler import assemble, disassemble
from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.isa import Gemm, LoadConstant, SparseGemm
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, conv2d, filter_matrices, matmul
from tvm_ext.byoc.systolic.code.program import Program, Tensor, program_from_bytes
from tvm_ext.byoc.systolic.code.sparse import compress, expanded, kept, kept_depth, sparse_bytes, why_dense
from tvm_ext.byoc.systolic.config import Accelerator, SystolicOptions
from tvm_ext.byoc.systolic.results.report import layer_rows
from tvm_ext.byoc.systolic.rtl import verilog
from tvm_ext.byoc.systolic.simulation.cost import gemm_cost
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.stepper import step_gemm
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import InputError, OptionError, ProgramError

from ..cases import SMALL_INT8, dense, direct_conv2d, random_int8
from ..races import find_races

SPARSE = replace(SMALL_INT8, sparsity="2:4")
FLOWS = ("ws", "os", "is")


def pruned(rng: np.random.Generator, shape: tuple[int, ...], kept_values: int = 2) -> np.ndarray:
    """int8 [..., k, n], of each four rows of a column at most so many values that are not 0."""
    *batches, k, n = shape
    ranks = rng.random((*batches, -(-k // 4), 4, n)).argsort(axis=-2).reshape(*batches, -1, n)[..., :k, :]
    return np.where(ranks < kept_values, random_int8(rng, shape), np.int8(0))


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(x.astype(np.int64) @ w.astype(np.int64)).astype(np.int32)


@pytest.mark.parametrize("seed", range(20))
def test_tiles_come_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, n = (int(size) for size in rng.integers(1, 40, 2))
    w = pruned(rng, (k, n), int(rng.integers(0, 3)))
    tile = compress(w)
    assert tile.dtype == np.int8 and tile.size == sparse_bytes(k, n) == math.ceil(1.25 * kept_depth(k) * n)
    values, places = kept(tile, k, n)
    np.testing.assert_array_equal(expanded(values, places, k), w)
    pairs = places.reshape(-1, 2, n)
    assert np.all(pairs[:, 0] < pairs[:, 1])  # two rows, in their order


@pytest.mark.parametrize("dataflow", FLOWS)
@pytest.mark.parametrize("seed", range(6))
def test_registers(seed: int, dataflow: str) -> None:
    """Any bytes are a tile; both views of it agree, and clocks are those of half as many rows."""
    rng = np.random.default_rng(seed)
    m, k, n, rows, cols = (int(size) for size in rng.integers((1, 1, 1, 1, 1), (9, 30, 9, 7, 7)))
    a, tile = random_int8(rng, (m, k)), random_int8(rng, (sparse_bytes(k, n),))
    values, places = kept(tile, k, n)
    acc = rng.integers(-(2**31), 2**31, (m, n)).astype(np.int32)
    for model in ("overlapped", "physical"):
        c, clocks = step_gemm(a, values, dataflow, rows, cols, acc, model == "overlapped", places)
        np.testing.assert_array_equal(c, acc + exact(a, expanded(values, places, k)))
        hardware = Accelerator(rows, cols, compute_model=model, sparsity="2:4")
        cost = gemm_cost(hardware, dataflow, 0, m, k, n, True)
        assert (clocks, cost.macs) == (cost.cycles, m * kept_depth(k) * n)


@pytest.mark.parametrize("arrays", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_programs_have_the_numbers_of_dense_ones(seed: int, arrays: int) -> None:
    """Random shapes, many tiles: functional view, stepper, the dense program and numpy; fewer bytes and cycles."""
    rng = np.random.default_rng(seed)
    sizes = m, k, n = tuple(int(size) for size in rng.integers((1, 8, 1), (40, 150, 40)))
    x, w, flow = random_int8(rng, (m, k)), pruned(rng, (k, n)), (None, *FLOWS)[seed % 4]
    program = dense(replace(SPARSE, arrays=arrays), sizes, w, dataflow=flow)
    other = dense(replace(SMALL_INT8, arrays=arrays), sizes, w, dataflow=flow)
    y = run(program, {"x": x})["y"]
    np.testing.assert_array_equal(y, exact(x, w))
    np.testing.assert_array_equal(y, run(program, {"x": x}, backend="stepper")["y"])
    np.testing.assert_array_equal(y, run(other, {"x": x})["y"])
    assert not find_races(program)
    assert program.layers[0].facts["weights"] == "2:4"
    assert {type(each) for each in program.instructions if isinstance(each, Gemm)} == {SparseGemm}
    timing, alone = simulate(program), simulate(other)
    assert timing.totals.traffic["dram", "b"] < alone.totals.traffic["dram", "b"]
    assert sum(constant.nbytes for constant in program.constants) < w.nbytes
    assert timing.totals.macs < alone.totals.macs and timing.cycles < alone.cycles
    (row,) = layer_rows(timing)
    assert 0 < row.utilization <= row.mapping_efficiency <= 1
    assert program.layers[0].facts["estimated_cycles"] == pytest.approx(timing.cycles, rel=0.15)


def test_timing_has_the_clocks_of_the_registers() -> None:
    rng = np.random.default_rng(0)
    program = dense(SPARSE, (9, 100, 11), pruned(rng, (100, 11)))
    events = zip(program.instructions, simulate(program).events, strict=True)
    gemms = [(gemm, event.end - event.start) for gemm, event in events if isinstance(gemm, SparseGemm)]
    assert len({gemm.k for gemm, _ in gemms}) > 1
    for gemm, cycles in gemms:
        values, places = np.zeros((kept_depth(gemm.k), gemm.n), np.int8), np.zeros((kept_depth(gemm.k), gemm.n), int)
        a = np.zeros((gemm.m, gemm.k), np.int8)
        assert cycles == step_gemm(a, values, gemm.dataflow, 4, 4, overlapped=True, places=places)[1]


def test_half_of_the_cycles_and_five_eighths_of_the_bytes() -> None:
    """Of a layer that the array bounds, by weights that are loaded once."""
    w, large = pruned(np.random.default_rng(0), (1152, 256)), {"scratchpad_bytes": 1 << 20, "dma_bytes_per_cycle": 64}
    chips = [Accelerator(sparsity=each, **large) for each in ("dense", "2:4")]
    timings = [simulate(dense(chip, (196, 1152, 256), w, out_dtype="int8")) for chip in chips]
    before, after = (timing.totals.traffic["dram", "b"] for timing in timings)
    assert (before, after) == (1152 * 256, 1152 * 256 * 5 // 8)
    assert timings[1].cycles / timings[0].cycles == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_in_parts(groups: int) -> None:
    """Weights of nine bits are two int8, each of 2:4; groups have filters of their own."""
    rng = np.random.default_rng(groups)
    geometry = ConvGeometry(6 // groups, (7, 6), (3, 3), padding=(1, 1, 1, 1))
    matrices = pruned(rng, (2, groups, geometry.channels * 9, 8 // groups))
    filters = np.concatenate(list(matrices), axis=1)
    x = random_int8(rng, (2, 6, 7, 6))
    tensors = [Tensor("x", "input", x.shape, "int8"), Tensor("y", "output", (2, 8, 7, 6), "int32")]
    layer = conv2d("conv", "x", filters, "y", geometry, images=2, groups=groups, parts=2)
    program = lower([layer], tensors, SPARSE)
    weights = matrices.sum(axis=0, dtype=np.int64).transpose(0, 2, 1).reshape(8, -1, 3, 3)
    np.testing.assert_array_equal(filter_matrices(weights, groups), matrices.sum(axis=0, dtype=np.int64))
    expected = direct_conv2d(x.astype(np.int64), weights, geometry)
    for backend in ("numpy", "stepper"):
        np.testing.assert_array_equal(run(program, {"x": x}, backend)["y"], expected)
    assert program.layers[0].facts["weights"] == "2:4"


def test_what_is_not_of_2_4_stays_dense() -> None:
    rng = np.random.default_rng(0)
    w = pruned(rng, (50, 6))
    w[8:12, 4] = 1, 0, 2, 3
    assert why_dense(w[None]) == "column 4 has 3 weights in rows 8 to 11"
    assert why_dense(w[None, :5]) == "values and places of 5 rows take no less than these"
    assert why_dense(w[None, :8]) == ""
    x = random_int8(rng, (7, 50))
    for weights, told in ((w, why_dense(w[None])), (None, "they are computed")):
        program, other = (dense(each, (7, 50, 6), weights) for each in (SPARSE, SMALL_INT8))
        inputs = {"x": x} if weights is not None else {"x": x, "w": w}
        assert program.layers[0].facts["weights"] == f"dense: {told}"
        assert program.instructions == other.instructions
        np.testing.assert_array_equal(run(program, inputs)["y"], exact(x, w))


def test_results_that_stay_and_two_layers() -> None:
    """A plan with one sparse and one dense layer: both views have numpy's numbers."""
    rng = np.random.default_rng(5)
    x, first, second = random_int8(rng, (9, 40)), pruned(rng, (40, 24)), random_int8(rng, (24, 10))
    shapes = {"input": ("x", (9, 40)), "scratch": ("h", (9, 24)), "output": ("y", (9, 10))}
    tensors = [Tensor(name, role, shape, "int32" if name == "y" else "int8") for role, (name, shape) in shapes.items()]
    layers = [matmul("one", "x", first, "h", (9, 40, 24)), matmul("two", "h", second, "y", (9, 24, 10))]
    program = lower(layers, tensors, replace(SPARSE, scratchpad_bytes=4096), fusion=True)
    assert [layer.facts["weights"][:3] for layer in program.layers] == ["2:4", "den"]
    assert any(tensor.address is not None for tensor in program.tensors)
    between = np.clip(exact(x, first), -128, 127).astype(np.int8)
    for backend in ("numpy", "stepper"):
        np.testing.assert_array_equal(run(program, {"x": x}, backend)["y"], exact(between, second))


def test_a_compiled_model(tmp_path: Path) -> None:
    """QDQ convolutions, of which one is of 2:4: onnxruntime's numbers, those of the dense chip, and an artifact's."""
    rng = np.random.default_rng(2)
    sparse = pruned(rng, (4 * 3 * 3, 24)).T.reshape(24, 4, 3, 3)
    weights = {"wa": sparse, "wb": random_int8(rng, (5, 24, 1, 1)), "s": np.float32(1 / 32), "z": np.uint8(120)}
    weights |= {"zw": np.int8(0)}
    nodes = [graphs.node("QuantizeLinear", "x s z", "xq"), graphs.node("DequantizeLinear", "xq s z", "h")]
    for name, x, attributes in (("a", "h", {"pads": [1, 1, 1, 1]}), ("b", "a", {})):
        nodes += [
            graphs.node("DequantizeLinear", f"w{name} s zw", f"w{name}_d"),
            graphs.node("Conv", f"{x} w{name}_d", f"{name}_r", f"conv_{name}", **attributes),
            graphs.node("QuantizeLinear", f"{name}_r s z", f"{name}_q"),
            graphs.node("DequantizeLinear", f"{name}_q s z", name),
        ]
    proto = graphs.model(nodes, [graphs.value("x", [2, 4, 9, 7])], [graphs.value("b", [2, 5, 9, 7])], weights)
    options: dict[str, Any] = {"when": "always", "dtype": "int8"}
    chips = [
        tvm_ext.compile(proto, offload="systolic", cache=False, offload_options={**options, "sparsity": each})
        for each in ("dense", "2:4")
    ]
    x = rng.standard_normal((2, 4, 9, 7), np.float32)
    (wanted,) = onnxruntime_outputs(proto, {"x": x}, optimized=False).values()
    chips[1].export(tmp_path / "model.tvmx")
    for compiled in (*chips, tvm_ext.load(tmp_path / "model.tvmx")):
        np.testing.assert_array_equal(compiled.run({"x": x})["b"], wanted)
    reports = [compiled.offload_report() for compiled in chips]
    layers = [[layer for region in report.regions for layer in region.facts["layers"]] for report in reports]
    told = {layer["name"]: layer["weights"] for layer in layers[1] if "weights" in layer}
    assert sorted(text.partition(":")[0] for text in told.values()) == ["2", "dense"]
    table = reports[1].layer_table()
    assert [row[-1].content for row in table.rows] == [layer.get("weights", "") for layer in layers[1]]
    assert len(reports[0].layer_table().rows[0]) == len(table.rows[0]) - 1
    assert sum(region.program_bytes for region in reports[1].regions) < sum(r.program_bytes for r in reports[0].regions)
    assert sum(layer["cycles"] for layer in layers[1]) < sum(layer["cycles"] for layer in layers[0])


def test_text_and_bytes() -> None:
    program = dense(SPARSE, (5, 30, 7), pruned(np.random.default_rng(1), (30, 7)))
    for again in (assemble(disassemble(program)), program_from_bytes(program.to_bytes())):
        assert again.to_bytes() == program.to_bytes() and again.accelerator.sparsity == "2:4"
    assert "GEMM.SPARSE dataflow=" in disassemble(program)


def test_refusals() -> None:
    settings: list[tuple[dict[str, Any], str]] = [
        ({"sparsity": "1:4"}, "choose 'dense' or '2:4'"),
        ({"sparsity": "2:4", "dtype": "float32"}, "infinity times a weight of 0"),
        ({"sparsity": "2:4", "dtype": "int8", "dataflow": "rs"}, "row-stationary array has dense weights"),
        ({"sparsity": "2:4", "dtype": "int8", "run": "rtl"}, "the hardware has dense weights"),
    ]
    for options, message in settings:
        with pytest.raises(OptionError, match=message):
            SystolicOptions(**options)
    with pytest.raises(OptionError, match="the hardware has dense weights"):
        verilog(SPARSE, "ws")
    program = dense(SPARSE, (5, 30, 7), pruned(np.random.default_rng(1), (30, 7)))
    parts = program.tensors, program.constants, program.instructions
    with pytest.raises(ProgramError, match=r"GEMM\.SPARSE .* the accelerator has dense weights"):
        Program(SMALL_INT8, *parts)
    (at, load), *_ = [
        (at, each)
        for at, each in enumerate(program.instructions)
        if isinstance(each, LoadConstant) and each.operand == "b"
    ]
    longer = replace(load, cols=program.constants[load.constant].size + 1)
    with pytest.raises(ProgramError, match="it ends at element"):
        Program(SPARSE, *parts[:2], (*parts[2][:at], longer, *parts[2][at + 1 :]))
    with pytest.raises(InputError, match="places 0 to 3"):
        step_gemm(np.ones((2, 4), np.int8), np.ones((2, 3), np.int8), "ws", 2, 2, places=np.full((2, 3), 4))
    with pytest.raises(InputError, match=r"\(2, 8\) and b \(2, 3\)"):
        step_gemm(np.ones((2, 8), np.int8), np.ones((2, 3), np.int8), "ws", 2, 2, places=np.zeros((2, 3), int))
