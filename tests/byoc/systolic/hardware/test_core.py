"""Whole programs on the chip in Amaranth: values of the functional view, cycles of the timing view."""

from __future__ import annotations

import dataclasses

import pytest

from tvm_ext.byoc.systolic.code.isa import POP_NEXT, PUSH_PREV, Finish, Gemm, Load, Store, Sync
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.rtl import run_rtl
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.timing import simulate

from ..programs import small_program
from .programs import random_inputs, random_program

pytest.importorskip("amaranth")


def check(program: Program) -> None:
    inputs = random_inputs(program)
    outputs, cycles = run_rtl(program, inputs)
    for name, expected in run(program, inputs).items():
        assert outputs[name].tobytes() == expected.tobytes()
    assert cycles == simulate(program).cycles


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed: int) -> None:
    check(random_program(seed))


def test_a_program_with_all_kinds_of_instructions_that_it_has() -> None:
    program = small_program(in_hardware=True)
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
