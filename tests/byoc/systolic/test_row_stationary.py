"""Layers that are row stationary: values, cycles, races, plans, reports; and where the dataflow is refused."""

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tvm_ext.byoc.systolic import sweep
from tvm_ext.byoc.systolic.code.assembler import assemble, disassemble
from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.isa import Conv, Gemm
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, Step, conv2d, filter_matrices, nchw
from tvm_ext.byoc.systolic.code.program import Program, Tensor, program_from_bytes
from tvm_ext.byoc.systolic.config import Accelerator, SystolicOptions
from tvm_ext.byoc.systolic.results.report import layer_rows
from tvm_ext.byoc.systolic.rtl import check_instructions, verilog
from tvm_ext.byoc.systolic.simulation.cycles import gemm_cycles
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.row_stationary import RowShape, row_mapping
from tvm_ext.byoc.systolic.simulation.scale_sim import Memories, scale_sim_cycles
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import OptionError, ProgramError

from . import regions
from .cases import SIZES, SMALL_FLOAT, SMALL_INT8, dense, direct_conv2d, random_float, random_int8
from .races import find_races
from .test_conv2d import GEOMETRIES

SMALL_BF16 = dataclasses.replace(SMALL_FLOAT, dtype="bfloat16")


def convolution(
    hardware: Accelerator, geometry: ConvGeometry, w: np.ndarray, images: int = 1, dtype: str = "", groups: int = 1,
    **options: Any,
) -> Program:  # fmt: skip
    """y = x * w, row stationary."""
    filters = filter_matrices(w, groups)
    shape = (images, w.shape[0], *geometry.out_size)
    tensors = [
        Tensor("x", "input", (images, groups * geometry.channels, *geometry.size), dtype or hardware.tensor_dtype),
        Tensor("y", "output", shape, hardware.accumulator_dtype),
    ]
    layer = conv2d("conv", "x", filters, "y", geometry, images=images, groups=groups, **options)
    return lower([layer], tensors, hardware, "rs")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_int8_convolutions(geometry: ConvGeometry, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x, w = (
        random_int8(rng, (2, geometry.channels, *geometry.size)),
        random_int8(rng, (5, geometry.channels, *geometry.kernel)),
    )
    program = convolution(SMALL_INT8, geometry, w, images=2, dtype=dtype, pad_value=-128)
    stored = x if dtype == "int8" else (x.astype(np.int16) + 128).astype(np.uint8)
    expected = direct_conv2d(x.astype(np.int32), w.astype(np.int32), geometry, -128)
    np.testing.assert_array_equal(run(program, {"x": stored})["y"], expected)
    assert not find_races(program)
    assert {type(i) for i in program.instructions if i.queue == "compute"} == {Conv}
    assert program_from_bytes(program.to_bytes()).instructions == program.instructions
    assert assemble(disassemble(program)).to_bytes() == program.to_bytes()


@pytest.mark.parametrize("geometry", GEOMETRIES[1:5], ids=str)
@pytest.mark.parametrize("model", ["overlapped", "physical"])
def test_the_stepper_agrees(geometry: ConvGeometry, model: str) -> None:
    """int8 and bfloat16, the bits of the registers; and their clocks are those of the timing view."""
    rng = np.random.default_rng(2)
    x, w = (
        random_float(rng, (1, geometry.channels, *geometry.size)),
        random_float(rng, (3, geometry.channels, *geometry.kernel)),
    )
    for hardware in (SMALL_INT8, SMALL_BF16):
        hardware = dataclasses.replace(hardware, compute_model=model)
        values, weights = ((10 * v).astype(np.int8) if hardware.dtype == "int8" else v for v in (x, w))
        program = convolution(hardware, geometry, weights)
        fast, slow = (run(program, {"x": values}, backend)["y"] for backend in ("numpy", "stepper"))
        assert fast.tobytes() == slow.tobytes()
        timing = simulate(program)
        convs = [index for index, i in enumerate(program.instructions) if isinstance(i, Conv)]
        assert [timing.costs[index].cycles for index in convs] == [
            row_mapping(RowShape.of(program.instructions[index]), hardware)[0] for index in convs
        ]


@pytest.mark.parametrize("arrays", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_several_arrays(dtype: str, arrays: int) -> None:
    """Rows of the output and filters that no cut divides: the registers have the bits of the functional view, and of
    integers the values are those of a convolution by its definition."""
    rng = np.random.default_rng(arrays)
    one = SMALL_INT8 if dtype == "int8" else SMALL_BF16
    several = dataclasses.replace(one, arrays=arrays)
    geometry = ConvGeometry(5, (11, 8), (3, 3), strides=(2, 1), padding=(1, 1, 1, 1))
    shapes = (1, 5, 11, 8), (7, 5, 3, 3)
    x, w = (random_int8(rng, shape) if dtype == "int8" else random_float(rng, shape) for shape in shapes)
    program, alone = convolution(several, geometry, w), convolution(one, geometry, w)
    fast, slow = (run(program, {"x": x}, backend)["y"] for backend in ("numpy", "stepper"))
    assert fast.tobytes() == slow.tobytes()
    if dtype == "int8":
        np.testing.assert_array_equal(fast, direct_conv2d(x.astype(np.int32), w.astype(np.int32), geometry))
    timing = simulate(program)
    (row,) = layer_rows(timing)
    assert timing.busy["compute"] < simulate(alone).busy["compute"] and not find_races(program)
    assert 0 < row.utilization <= row.mapping_efficiency <= 1 and len(row.facts["block"]) == 2


def test_bfloat16_is_rounded_once() -> None:
    rng = np.random.default_rng(3)
    x, w = random_float(rng, (1, 6, 9, 8)), random_float(rng, (4, 6, 3, 3))
    geometry = ConvGeometry(6, (9, 8), (3, 3), padding=(1, 1, 1, 1))
    y = run(convolution(SMALL_BF16, geometry, w), {"x": x})["y"]
    rounded = (v.astype(ml_dtypes.bfloat16).astype(np.float64) for v in (x, w))
    np.testing.assert_allclose(y, direct_conv2d(*rounded, geometry), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_matrices_are_images_of_one_row(sizes: tuple[int, int, int], constant: bool) -> None:
    rng = np.random.default_rng(sum(sizes))
    m, k, n = sizes
    x, w = random_int8(rng, (m, k)), random_int8(rng, (k, n))
    program = dense(SMALL_INT8, sizes, w if constant else None, dataflow="rs")
    y = run(program, {"x": x} if constant else {"x": x, "w": w})["y"]
    np.testing.assert_array_equal(y, x.astype(np.int32) @ w.astype(np.int32))
    assert not find_races(program) and not any(isinstance(i, Gemm) for i in program.instructions)


def test_groups_with_bias_residual_and_relu() -> None:
    rng = np.random.default_rng(4)
    geometry = ConvGeometry(3, (7, 9), (3, 3), strides=(1, 2), padding=(1, 1, 1, 1))
    x, w = random_float(rng, (2, 6, 7, 9)), random_float(rng, (8, 3, 3, 3))
    bias, residual = random_float(rng, (8,)), random_float(rng, (2, 8, *geometry.out_size))
    steps = (Step("add", row=bias.reshape(2, -1)), Step("add", tile=nchw("r", 4, geometry.out_size, 4)), Step("relu"))
    layer = conv2d("conv", "x", filter_matrices(w, 2), "y", geometry, images=2, groups=2, steps=steps)
    shapes = (("x", "input", x.shape), ("r", "input", residual.shape), ("y", "output", residual.shape))
    program = lower([layer], [Tensor(*each, "float32") for each in shapes], SMALL_FLOAT, "rs")
    expected = np.maximum(direct_conv2d(x.astype(float), w, geometry) + bias[:, None, None] + residual, 0)
    np.testing.assert_allclose(run(program, {"x": x, "r": residual})["y"], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scratchpad", [1536, 4096, 16384])
def test_results_that_stay_whole_or_by_bands(scratchpad: int) -> None:
    rng = np.random.default_rng(5)
    geometry = ConvGeometry(4, (16, 12), (3, 3), padding=(1, 1, 1, 1))
    x, first, second = (random_int8(rng, shape) for shape in ((1, 4, 16, 12), (4, 4, 3, 3), (4, 4, 3, 3)))
    steps = (Step("dequantize", scale=0.01), Step("quantize", scale=1.0))
    layers = [
        conv2d("first", "x", filter_matrices(first), "h", geometry, steps=steps),
        conv2d("second", "h", filter_matrices(second), "y", geometry),
    ]
    tensors = [
        Tensor(name, role, (1, 4, 16, 12), dtype)
        for name, role, dtype in (("x", "input", "int8"), ("h", "scratch", "int8"), ("y", "output", "int32"))
    ]
    hardware = dataclasses.replace(SMALL_INT8, scratchpad_bytes=scratchpad)
    by_rows, by_windows = (lower(layers, tensors, hardware, flow, fusion=True) for flow in ("rs", "ws"))
    np.testing.assert_array_equal(run(by_rows, {"x": x})["y"], run(by_windows, {"x": x})["y"])
    assert not find_races(by_rows) and any(tensor.address is not None for tensor in by_rows.tensors)


def test_the_estimate_of_one_tile_is_the_timing_view() -> None:
    geometry = ConvGeometry(8, (10, 10), (3, 3), padding=(1, 1, 1, 1))
    program = convolution(Accelerator(8, 8), geometry, np.ones((8, 8, 3, 3), np.int8))
    (row,) = layer_rows(timing := simulate(program))
    assert row.facts["estimated_cycles"] == timing.cycles
    assert row.facts["dataflow"] == "rs" and row.facts["tile"] == [100, 72, 8]
    mapping = row_mapping(RowShape(8, 8, (10, 10), (3, 3)), Accelerator(8, 8))[1]
    assert row.facts["mapping"] == {name: getattr(mapping, name) for name in "herqtp"}
    assert row.mapping_efficiency == pytest.approx(mapping.efficiency * mapping.active_pes[0] / 64)
    assert {"spad", "network"} < row.energy.keys() and min(row.energy.values()) >= 0
    assert timing.totals.bytes_at("spad") * 0.31 == pytest.approx(row.energy["spad"])


def test_estimates_of_many_tiles() -> None:
    """Within a tenth of the timing view in the mean, as those of the other dataflows."""
    rng, ratios = np.random.default_rng(6), []
    hardware = Accelerator(8, 8, scratchpad_bytes=8192, accumulator_bytes=4096, dma_latency=10)
    for _ in range(10):
        channels, filters, size = (int(n) for n in rng.integers(8, 33, 3))
        geometry = ConvGeometry(channels, (size, size), (3, 3), padding=(1, 1, 1, 1))
        program = convolution(hardware, geometry, np.ones((filters, channels, 3, 3), np.int8))
        ratios.append(program.layers[0].facts["estimated_cycles"] / simulate(program).cycles)
    assert 0.9 < np.exp(np.mean(np.log(ratios))) < 1.1


# ------------------------------------------------------------ the back end
def test_a_region_and_a_sweep_of_it() -> None:
    rng = np.random.default_rng(7)
    x, w = regions.value("x", 1, 3, 8, 8), random_float(rng, (4, 3, 3, 3))
    layer = regions.conv2d(x, w, padding=(1, 1, 1, 1))
    region = regions.region(regions.composite(layer))
    values = random_float(rng, (1, 3, 8, 8))
    (y,) = regions.run(region, {"x": values}, dataflow="rs")
    expected = direct_conv2d(values.astype(float), w, ConvGeometry(3, (8, 8), (3, 3), padding=(1, 1, 1, 1)))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
    rows, free = sweep([region], [{"dataflow": "rs"}, {}])
    assert rows.layers[0].facts["dataflow"] == "rs" and "spad" in rows.energy
    assert free.layers[0].facts["dataflow"] in ("ws", "os", "is") and "spad" not in free.energy


def test_what_the_array_has_no_room_for_stays_on_the_cpu() -> None:
    wide = regions.conv2d(regions.value("x", 1, 2, 4, 40), np.ones((2, 2, 1, 20), np.float32))
    assert "input_spad=12" in regions.refusal(wide, dataflow="rs")
    row = regions.conv2d(regions.value("x", 1, 2, 4, 400), np.ones((2, 2, 1, 3), np.float32))
    assert "a row of 398 sums" in regions.refusal(row, dataflow="rs")


def test_hardware_and_scale_sim_have_the_other_three() -> None:
    matrix = np.arange(6).reshape(2, 3)
    for refused in (
        lambda: SystolicOptions(dtype="int8", run="rtl", dataflow="rs"),
        lambda: verilog(Accelerator(2, 2), "rs"),
        lambda: gemm_cycles("rs", 1, 1, 1, 1, 1),
        lambda: scale_sim_cycles("rs", matrix, 2, 2, 2, Memories()),
    ):
        with pytest.raises(OptionError, match="dataflow='rs' is not of a systolic array") as caught:
            refused()
        assert caught.value.fix == "choose one of 'ws', 'os', 'is'"
    with pytest.raises(ProgramError, match=r"instruction 0 \(CONV.*dataflow='rs'; it has ws, os, is"):
        check_instructions([Conv(0, 0, 0, 0, 1, 1, 1, 1, 1, 1)])


def test_no_layer_is_row_stationary_by_itself() -> None:
    problem = dense(SMALL_INT8, (8, 8, 8), np.ones((8, 8), np.int8)).layers[0].facts
    assert problem["dataflow"] != "rs" and "mapping" not in problem
