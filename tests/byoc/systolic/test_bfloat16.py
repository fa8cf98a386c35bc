"""Operands of bfloat16: to the bit against ml_dtypes and sums in the stated order; in regions, and in whole models."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tvm_ext
from tests import onnx_graphs as graphs
from tvm_ext.byoc.systolic.bfloat16 import from_bits, to_bits
from tvm_ext.byoc.systolic.code.assembler import assemble, disassemble
from tvm_ext.byoc.systolic.code.program import Program, program_from_bytes
from tvm_ext.byoc.systolic.config import Accelerator, SystolicOptions
from tvm_ext.byoc.systolic.lowering.regions import timing_of
from tvm_ext.byoc.systolic.rtl import run_rtl
from tvm_ext.byoc.systolic.simulation import functional
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import OptionError

from .cases import dense, random_float
from .regions import SMALL, composite, conv2d, matmul, op, refusal, region, run, value

BF16 = Accelerator(rows=3, cols=5, dtype="bfloat16", scratchpad_bytes=512, accumulator_bytes=256)
OFFLOAD: dict[str, Any] = {"dtype": "bfloat16", "when": "always", "dataflow": "os", "rows": 4, "cols": 4}


def rounded(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def in_order(a: np.ndarray, b: np.ndarray, tile: int, fold: int) -> np.ndarray:
    """Rounded operands, multiplied; each fold of a tile of k is summed by itself from 0, then added."""
    a, b = rounded(a), rounded(b)
    sums = np.zeros((len(a), b.shape[1]), np.float32)
    for begin in range(0, len(b), tile):
        end = min(begin + tile, len(b))
        for first in range(begin, end, fold):
            total = np.zeros_like(sums)
            for k in range(first, min(first + fold, end)):
                total = total + np.outer(a[:, k], b[k])
            sums = sums + total
    return sums


def tile_and_fold(program: Program) -> tuple[int, int]:
    facts = program.layers[0].facts
    depth = facts["tile"][1]
    return depth, depth if facts["dataflow"] == "os" else program.accelerator.rows


def test_rounding_is_that_of_ml_dtypes() -> None:
    rng = np.random.default_rng(0)
    ties = (rng.integers(0, 1 << 16, 999) << 16) + 0x8000
    bits = np.concatenate([rng.integers(0, 1 << 32, 50000), ties, [0, 1 << 31, 0x7F7FFFFF, 0x7F800000, 0xFFFFFFFF]])
    values = bits.astype(np.uint32).view(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        expected, real = values.astype(ml_dtypes.bfloat16), ~np.isnan(values)
    np.testing.assert_array_equal(to_bits(values)[real], expected.view(np.uint16)[real])
    np.testing.assert_array_equal(from_bits(to_bits(values)), expected.astype(np.float32))  # a NaN is one


@pytest.mark.parametrize("flow", ["ws", "os", "is"])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_views_have_the_bits_of_sums_in_order(flow: str, constant: bool) -> None:
    rng = np.random.default_rng(1)
    a, b = random_float(rng, (7, 19)), random_float(rng, (19, 6))
    program = dense(BF16, (7, 19, 6), b if constant else None, dataflow=flow)
    inputs = {"x": a} if constant else {"x": a, "w": b}
    y = functional.run(program, inputs)["y"]
    assert y.tobytes() == functional.run(program, inputs, backend="stepper")["y"].tobytes()
    assert y.tobytes() == in_order(a, b, *tile_and_fold(program)).tobytes()
    assert np.abs(y - a @ b).max() > 1e-3  # it was rounded


def test_costs_of_two_bytes() -> None:
    """An element has 4 bytes in DRAM and 2 in the scratchpad, one of packed weights 2 in both; 2 pJ a multiply-add."""
    sizes = (m, k, n) = (16, 32, 8)
    chips = [Accelerator(rows=4, cols=4, dtype=dtype, dma_latency=1000) for dtype in ("bfloat16", "float32")]
    programs = [dense(chip, sizes, np.ones((k, n), np.float32), dataflow="ws") for chip in chips]
    timing, wide = map(simulate, programs)
    assert [program.layers[0].facts["tile"] for program in programs] == [[m, k, n]] * 2
    assert timing.cycles == programs[0].layers[0].facts["estimated_cycles"]
    moved = timing.totals.traffic
    assert (moved["dram", "a"], moved["dram", "b"], moved["dram", "output"]) == (4 * m * k, 2 * k * n, 4 * m * n)
    assert all(2 * moved["scratchpad", name] == wide.totals.traffic["scratchpad", name] for name in "ab")
    assert timing.totals.energy["array"] == 2.0 * m * k * n


def test_text_and_bytes_of_a_program() -> None:
    program = dense(BF16, (7, 9, 5), random_float(np.random.default_rng(2), (9, 5)))
    assert program_from_bytes(program.to_bytes()).to_bytes() == program.to_bytes()
    assert assemble(disassemble(program)).to_bytes() == program.to_bytes()


def test_hardware_refuses_it() -> None:
    pytest.importorskip("amaranth")
    program = dense(BF16, (2, 3, 4), np.ones((3, 4), np.float32))
    with pytest.raises(OptionError, match="the hardware has operands of int8"):
        run_rtl(program, {"x": np.ones((2, 3), np.float32)})
    with pytest.raises(OptionError, match="hardware has int8"):
        SystolicOptions(dtype="bfloat16", run="rtl")


def test_a_region_of_convolutions_and_a_matmul() -> None:
    """Each layer rounds what it multiplies; what lies between layers, bias and relu are float32. Pooling is refused."""
    rng = np.random.default_rng(3)
    x, w, bias, depthwise, dense_w, r = (
        random_float(rng, shape) for shape in ((1, 3, 6, 6), (4, 3, 3, 3), (4, 1, 1), (4, 1, 3, 3), (6, 5), (4, 6))
    )
    conv = conv2d(value("x", 1, 3, 6, 6), w, padding=(1, 1, 1, 1))
    relu = op("nn.relu", biased := op("add", conv, bias))
    apart, last = conv2d(relu, depthwise, groups=4), matmul(value("r", 4, 6), dense_w)
    offloaded = region(*(composite(*ops) for ops in ((conv, biased, relu), (apart,), (last,))))
    options: dict[str, Any] = {"dtype": "bfloat16", "dataflow": "os"}
    outputs = run(offloaded, {"x": x, "r": r}, **options)
    by_name = dict(zip((v.name for v in offloaded.outputs), outputs, strict=True))
    layers = timing_of(offloaded, SystolicOptions(**{**SMALL, **options})).program.layers
    patches = windows(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), 3)
    first = in_order(patches, w.reshape(4, -1).T, layers[0].facts["tile"][1], 1 << 20).T.reshape(1, 4, 6, 6)
    terms = windows(rounded(np.maximum(first + bias, 0)), 3).reshape(16, 4, 9) * rounded(depthwise.reshape(4, 9))
    summed = terms.sum(axis=2, dtype=np.float64)
    bound = 10 * 2.0**-24 * np.abs(terms).sum(axis=2)
    assert layers[1].facts["dataflow"] == "vector"
    assert (np.abs(by_name[apart.result.name].reshape(4, 16).T - summed) <= bound).all()
    assert by_name[last.result.name].tobytes() == in_order(r, dense_w, layers[2].facts["tile"][1], 1 << 20).tobytes()
    mean = op("mean", value("x", 1, 3, 6, 6), shape=(1, 3, 1, 1), axis=(2, 3), keepdims=True)
    assert "would round" in refusal(mean, dtype="bfloat16")


def windows(image: np.ndarray, kernel: int) -> np.ndarray:
    """im2col of [1, c, h, w]: [pixels, c * kernel * kernel]."""
    view = np.lib.stride_tricks.sliding_window_view(image[0], (kernel, kernel), axis=(1, 2))
    return view.transpose(1, 2, 0, 3, 4).reshape(view.shape[1] * view.shape[2], -1)


# ------------------------------------------------------------ whole models
def two_layers() -> tuple[Any, dict[str, np.ndarray]]:
    rng = np.random.default_rng(4)
    weights = {"w": random_float(rng, (24, 16)) / 5, "b": random_float(rng, (16,)), "v": random_float(rng, (16, 8)) / 4}
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[3, 24] x) => (float[3, 8] y) {
        [first] m = MatMul(x, w)  a = Add(m, b)  r = Relu(a)  [second] y = MatMul(r, v) }"""
    return graphs.text_model(text, weights), weights


def test_a_model_has_the_bits_of_the_reference_and_is_near_onnxruntime() -> None:
    model, weights = two_layers()
    compiled = tvm_ext.compile(model, precision="bf16", offload="systolic", offload_options=OFFLOAD, cache=False)
    x = random_float(np.random.default_rng(5), (3, 24))
    hidden = np.maximum(in_order(x, weights["w"], 24, 24) + weights["b"], 0)
    assert compiled.run({"x": x})["y"].tobytes() == in_order(hidden, weights["v"], 16, 16).tobytes()
    assert tvm_ext.verify(compiled, model).ok and len(compiled.offload_report().regions) == 1
    plan = compiled.report["precision"]
    assert [(row["nodes"], row["precision"]) for row in plan["layers"]] == [(["first"], "bf16"), (["second"], "bf16")]
    assert plan["depth"] == 2


def test_what_keeps_float32_stays_on_the_cpu() -> None:
    model, _ = two_layers()
    options = {"offload": "systolic", "offload_options": OFFLOAD, "cache": False}
    compiled = tvm_ext.compile(model, precision="bf16", keep_float32=["first"], **options)
    places = {op.node: op.place for op in compiled.offload_report().ops}
    assert places["first"] == "cpu" and places["second"] == "systolic_region_0"
    plan = compiled.report["precision"]
    assert {tuple(row["nodes"]): row["precision"] for row in plan["layers"]} == {
        ("first",): "float32", ("second",): "bf16"
    }  # fmt: skip
    assert plan["depth"] == 1 and tvm_ext.verify(compiled, model).ok
    with pytest.raises(OptionError, match="rounds as precision='bf16', and not 'float32'"):
        tvm_ext.compile(model, **options)
