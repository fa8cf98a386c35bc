"""Whole programs on the chip in Amaranth: values of the functional view, cycles of the timing view."""

import dataclasses

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import POP_NEXT, PUSH_PREV, Finish, Gemm, Load, Store, Sync, Vector
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.rtl import run_rtl
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.timing import simulate

from ..programs import small_program
from .programs import random_inputs, random_program, random_reductions, resnet18

pytest.importorskip("amaranth")


def check(program: Program) -> dict[str, np.ndarray]:
    """The outputs, which are those of the functional view, in as many cycles as the timing view says."""
    inputs = random_inputs(program)
    outputs, cycles = run_rtl(program, inputs)
    for name, expected in run(program, inputs).items():
        assert outputs[name].tobytes() == expected.tobytes()
    assert cycles == simulate(program).cycles
    return outputs


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed: int) -> None:
    check(random_program(seed))


@pytest.mark.parametrize("seed", range(3))
def test_reductions(seed: int) -> None:
    program = random_reductions(seed)
    assert {"clip"} < {i.op for i in program.instructions if isinstance(i, Vector)}
    check(program)


@pytest.mark.parametrize(("image", "channels"), [(7, 2), pytest.param(13, 4, marks=pytest.mark.long)])
def test_layers_of_resnet18(image: int, channels: int) -> None:
    """Stem, pooling, blocks with and without a downsample, mean and head: hardware, stepper and functional view."""
    program = resnet18(image, channels)
    outputs = check(program)
    stepped = run(program, random_inputs(program), backend="stepper")
    assert outputs["y"].tobytes() == stepped["y"].tobytes() and len(np.unique(outputs["y"])) > 5


def test_a_program_with_all_kinds_of_instructions() -> None:
    program = small_program()
    check(dataclasses.replace(program, accelerator=dataclasses.replace(program.accelerator, vector_lanes=3)))


@pytest.mark.parametrize("latency", [0, 9])
def test_load_and_store_take_turns_on_the_channel(latency: int) -> None:
    """They ask in the same clock, or one while the other has it; the earlier instruction is first."""
    hardware = Accelerator(2, 2, scratchpad_bytes=64, accumulator_bytes=64, dma_bytes_per_cycle=3, vector_lanes=1)
    hardware = dataclasses.replace(hardware, dma_latency=latency)
    load, gemm = Load("a", 0, 0, 4, 4, 0, 4, 1), Gemm("ws", 0, 0, 16, 0, 4, 4, 2)
    store, other = Store(1, 0, 4, 2, 0, 2, 1), Load("b", 0, 16, 2, 4, 0, 4, 1)
    tensors = (Tensor("x", "input", (4, 4), "int8"), Tensor("y", "output", (4, 2), "int32"))
    for code in (
        (load, other, Sync(), gemm, Sync(), store, load, other, Sync(), Finish()),
        (load, other, Sync(), gemm, Sync(), load, store, store, other, Finish()),
        (load, other, Sync(), Sync(), gemm, Sync(), other, load, store, Sync(), store, load, Finish()),
        (load, dataclasses.replace(gemm, tokens=PUSH_PREV), dataclasses.replace(other, tokens=POP_NEXT), Finish()),
    ):
        check(Program(hardware, tensors, (), code))


@pytest.mark.parametrize("seed", [0, 3])
def test_tensors_that_stay_in_the_scratchpad(seed: int) -> None:
    """Of uint8, stored with strides, read by windows: on the chip as in the other views."""
    program = random_program(seed, fusion=True)
    assert any(tensor.address is not None for tensor in program.tensors)
    check(program)


def test_words_that_stay_in_the_scratchpad() -> None:
    """Stored transposed, and loaded so, beside loads from DRAM that write to the scratchpad in the same clocks."""
    hardware = Accelerator(2, 3, scratchpad_bytes=128, accumulator_bytes=64, dma_bytes_per_cycle=3, vector_lanes=1)
    tensors = (
        Tensor("x", "input", (4, 4), "int8"), Tensor("h", "scratch", (2, 4), "int32", 64),
        Tensor("y", "output", (4, 2), "int32"),
    )  # fmt: skip
    load, other = Load("a", 0, 0, 4, 4, 0, 4, 1), Load("b", 0, 16, 4, 2, 3, 3, 1)
    code = (
        load, other, Sync(), Gemm("ws", 0, 0, 16, 0, 4, 4, 2), Sync(), Store(1, 0, 4, 2, 0, 1, 4), load, load, Sync(),
        Load("epilogue", 1, 32, 4, 2, 0, 1, 4), Sync(), Vector("add", 0, 4, 2, "tile", 32, "int32"), Sync(),
        Store(2, 0, 4, 2, 0, 2, 1), Finish(),
    )  # fmt: skip
    y = check(Program(hardware, tensors, (), code))["y"]
    x = random_inputs(Program(hardware, tensors, (), code))["x"].astype(np.int32)
    right = np.lib.stride_tricks.as_strided(x.ravel()[3:], (4, 2), (12, 4))
    np.testing.assert_array_equal(y, 2 * (x @ right))
