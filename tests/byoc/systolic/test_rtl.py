"""The accelerator as hardware: Verilog, cells, what has no hardware, and a model that runs on it."""

import dataclasses
import sys

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, value
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.byoc.systolic.code.assembler import assemble, disassemble
from tvm_ext.byoc.systolic.code.isa import Finish, Vector
from tvm_ext.byoc.systolic.code.program import Program, program_from_bytes
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.rtl import Cells, cells, run_rtl, simulator, verilog
from tvm_ext.core.errors import OptionError, ProgramError, ToolError

from .cases import SMALL_FLOAT, SMALL_INT8, dense, random_int8

SMALL = Accelerator(rows=2, cols=3, scratchpad_bytes=256, accumulator_bytes=128, vector_lanes=1, dma_bytes_per_cycle=2)
MLP = {"w1": (7, 6), "w2": (6, 5), "w3": (5, 4)}


def mlp(rng: np.random.Generator) -> onnx.ModelProto:
    """Three QLinearMatMul, relu between them as onnxruntime has it: a zero point at the end of the range."""
    nodes, constants = [], {"one": np.float32(0.05)}
    for at, (name, shape) in enumerate(MLP.items()):
        zero = np.int8((-128, -128, 3)[at])
        constants |= {name: random_int8(rng, shape), f"s{at}": np.float32(0.01 * (at + 1)), f"z{at}": np.int8(0)}
        constants |= {f"t{at}": np.float32((4.1, 7.3, 9.2)[at]), f"o{at}": zero}
        x, scale, point = (f"h{at - 1}", f"t{at - 1}", f"o{at - 1}") if at else ("x", "one", "z0")
        y = "y" if at == 2 else f"h{at}"
        nodes.append(node("QLinearMatMul", f"{x} {scale} {point} {name} s{at} z{at} t{at} o{at}", y))
    shapes = value("x", [3, 7], onnx.TensorProto.INT8), value("y", [3, 4], onnx.TensorProto.INT8)
    return model(nodes, [shapes[0]], [shapes[1]], constants)


def test_an_mlp_runs_on_the_hardware() -> None:
    pytest.importorskip("amaranth")
    rng = np.random.default_rng(0)
    proto, x = mlp(rng), random_int8(rng, (3, 7))
    options = {**SMALL.as_dict(), "scratchpad_bytes": 1024, "when": "always", "run": "rtl"}
    compiled = tvm_ext.compile(proto, offload="systolic", offload_options=options, cache=False)
    (program,) = compiled.offload_programs().values()
    assert program_from_bytes(program).run == "rtl"
    (y,) = compiled.run({"x": x}).values()
    (expected,) = onnxruntime_outputs(proto, {"x": x}).values()
    assert len(np.unique(y)) > 5
    np.testing.assert_array_equal(y, expected)


def test_what_runs_a_program_is_in_its_bytes_and_its_text() -> None:
    program = dataclasses.replace(dense(SMALL, (3, 4, 5)), run="rtl")
    assert program_from_bytes(program.to_bytes()).run == assemble(disassemble(program)).run == "rtl"
    assert assemble(disassemble(dense(SMALL, (3, 4, 5)))).run == "functional"
    with pytest.raises(ProgramError, match="run='fpga'"):
        dataclasses.replace(program, run="fpga")


@pytest.mark.parametrize(("part", "dataflow"), [("element", "os"), ("array", "is"), ("core", "ws")])
def test_verilog(part: str, dataflow: str) -> None:
    pytest.importorskip("pyosys")
    pytest.importorskip("amaranth")
    text = verilog(SMALL, dataflow, part)
    assert "module top(" in text
    assert text.count("module \\top.array.element_") == (SMALL.rows * SMALL.cols if part == "array" else 0)
    assert ("module \\top.scratchpad" in text) == (part == "core")


def test_cells_of_an_array() -> None:
    """Registers of a PE: the values that move right and down, first and last, and three sums of 32 bits."""
    pytest.importorskip("pyosys")
    pytest.importorskip("amaranth")
    parts = cells(SMALL, "os")
    assert parts["element"].flip_flops == 2 * 8 + 2 + 3 * 32
    assert parts["elements"].flip_flops == 6 * parts["element"].flip_flops
    assert parts["skew"].flip_flops == 1 * (8 + 2) + 3 * 8
    sums = [parts[name] for name in ("elements", "skew", "sequencer")]
    assert parts["array"].gates == sum(each.gates for each in sums)
    assert Cells.of({"$_NAND_": 3, "$_NOT_": 1, "$_DFF_P_": 2}) == Cells(4, 2, 3 * 4 + 2 + 2 * 16)


def test_what_has_no_hardware() -> None:
    for wrong in ({"rows": 65}, {"scratchpad_bytes": 1 << 30}, {"dtype": "float32"}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            verilog(dataclasses.replace(SMALL, **wrong))
    with pytest.raises(OptionError, match="dataflow='rs'"):
        verilog(SMALL, "rs")
    with pytest.raises(OptionError, match="dtype='float32'"):
        run_rtl(dense(SMALL_FLOAT, (2, 2, 2)), {})
    with pytest.raises(ProgramError, match="the hardware has no gelu"):
        simulator(Program(SMALL_INT8, (), (), (Vector("gelu", 0, 1, 1), Finish())))


def test_a_part_that_is_none() -> None:
    pytest.importorskip("pyosys")
    pytest.importorskip("amaranth")
    with pytest.raises(OptionError, match="part='chip'"):
        verilog(SMALL, part="chip")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amaranth", None)
    for call in (lambda: verilog(SMALL), lambda: cells(SMALL), lambda: simulator(dense(SMALL, (2, 2, 2)))):
        with pytest.raises(ToolError) as caught:
            call()
        assert caught.value.fix == "pip install 'tvm-ext[rtl]'"


def test_a_convolution_and_a_pooling_run_on_the_hardware() -> None:
    pytest.importorskip("amaranth")
    rng = np.random.default_rng(2)
    constants = {"s": np.float32(0.1), "z": np.int8(3), "w": random_int8(rng, (2, 2, 2, 2)), "sw": np.float32(0.004),
                 "zw": np.int8(0)}  # fmt: skip
    nodes = [node("QLinearConv", "x s z w sw zw s z", "h"), node("MaxPool", "h", "y", kernel_shape=[2, 2])]
    proto = model(nodes, [value("x", [1, 2, 5, 5], onnx.TensorProto.INT8)],
                  [value("y", [1, 2, 3, 3], onnx.TensorProto.INT8)], constants, opset=20)  # fmt: skip
    options = {**dataclasses.replace(SMALL, scratchpad_bytes=512).as_dict(), "when": "always", "run": "rtl"}
    compiled = tvm_ext.compile(proto, offload="systolic", offload_options=options, cache=False)
    (program,) = compiled.offload_programs().values()
    assert {"Gemm", "Reduce"} < {type(i).__name__ for i in program_from_bytes(program).instructions}
    x = random_int8(rng, (1, 2, 5, 5))
    (y,), (expected,) = compiled.run({"x": x}).values(), onnxruntime_outputs(proto, {"x": x}).values()
    assert len(np.unique(y)) > 5
    np.testing.assert_array_equal(y, expected)


def test_a_composite_with_an_operation_that_it_lacks_stays_on_the_cpu() -> None:
    rng = np.random.default_rng(1)
    scales = {"sx": np.float32(0.1), "z": np.int8(0), "sw": np.float32(0.02)}
    nodes = [
        node("DequantizeLinear", "x sx z", "d"),
        node("DequantizeLinear", "w sw z", "e"),
        node("MatMul", "d e", "m"),
        node("Gelu", "m", "y"),
    ]
    constants = {"w": random_int8(rng, (4, 3)), **scales}
    proto = model(nodes, [value("x", [2, 4], onnx.TensorProto.INT8)], [value("y", [2, 3])], constants, opset=20)
    options = {**SMALL.as_dict(), "when": "always", "run": "rtl"}
    compiled = tvm_ext.compile(proto, offload="systolic", offload_options=options, cache=False)
    (program,) = compiled.offload_programs().values()
    ops = [i.op for i in program_from_bytes(program).instructions if isinstance(i, Vector)]
    assert ops and "gelu" not in ops
